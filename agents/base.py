"""The interface of every agent: one NamedTuple of pure functions."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from dm_env import specs

from ..environments.types import EnvironmentSpec, TimeStep
from ..replay.spec import Sample, SequenceSpec

Params = Any  # what actors need to act: a pytree of arrays
LearnerState = Any  # a NamedTuple of arrays, the PRNG key included: saving it saves the learner
ActorState = Any  # a NamedTuple of arrays, the PRNG key included


class Decision(NamedTuple):
    """What an actor does at one time step.

    Attributes:
      action: an action of the environment's action spec; ignored on a last step.
      extras: a dictionary of arrays to be stored in the row, as `Agent.sequence.extras` says.
      state: the actor's state for the next time step.
    """

    action: jax.Array
    extras: Any
    state: ActorState


class Update(NamedTuple):
    """What a learner's update tells besides its new state.

    Of several updates in one call, the priorities of all, and the metrics' means.

    Attributes:
      priorities: float32 `[B]`, finite and >= 0, one for each sampled sequence.
      metrics: a dictionary of float32 scalars.
    """

    priorities: jax.Array
    metrics: dict[str, jax.Array]


class Agent(NamedTuple):
    """An agent as pure, jittable functions; nothing is jitted inside.

    The acting functions are unbatched over environments (`jax.vmap` batches them) and are called on
    **every** time step, last ones too, so that an agent can close its books without another hook.

    Attributes:
      init: `key -> LearnerState`: networks, targets, optimiser state, number of updates, key.
      acting_params: `LearnerState -> Params`: what actors fetch (no optimiser, no targets).
      begin: `(key, actor_id, num_actors) -> ActorState`: once per environment; `actor_id` in
        0 .. num_actors - 1.
      explore: `(Params, ActorState, TimeStep) -> Decision`: behaviour for training.
      exploit: `(Params, ActorState, TimeStep) -> Decision`: behaviour for evaluation.
      update: `(LearnerState, Sample) -> (LearnerState, Update)`: one step of learning.
      sequence: what the replay must store and serve. Static.
    """

    init: Callable[[jax.Array], LearnerState]
    acting_params: Callable[[LearnerState], Params]
    begin: Callable[[jax.Array, jax.Array, int], ActorState]
    explore: Callable[[Params, ActorState, TimeStep], Decision]
    exploit: Callable[[Params, ActorState, TimeStep], Decision]
    update: Callable[[LearnerState, Sample], tuple[LearnerState, Update]]
    sequence: SequenceSpec


def updates_in_one_call(
    update: Callable[[LearnerState, Sample], tuple[LearnerState, Update]], count: int
) -> Callable[[LearnerState, Sample], tuple[LearnerState, Update]]:
    """An agent's update, made `count` times in turn, each with its part of a larger batch.

    Args:
      update: `Agent.update`.
      count: >= 1.

    Returns:
      A function like `update`, of samples `[count * B, ...]`: priorities are `[count * B]`, metrics
      means over the updates.
    """
    if count == 1:
        return update

    def updates(state: LearnerState, sample: Sample) -> tuple[LearnerState, Update]:
        parts = jax.tree.map(lambda x: x.reshape(count, -1, *x.shape[1:]), sample)
        state, each = jax.lax.scan(update, state, parts)
        return state, Update(each.priorities.reshape(-1), jax.tree.map(jnp.mean, each.metrics))

    return updates


def count_actions(agent: str, spec: EnvironmentSpec) -> int:
    """The number of discrete actions.

    Args:
      agent: its name, for the error.
      spec: of the environment.

    Raises:
      ValueError: the actions are continuous.
    """
    if not isinstance(spec.actions, specs.DiscreteArray):
        raise ValueError(f"{agent} needs discrete actions (a DiscreteArray), got {spec.actions!r}.")
    return int(spec.actions.num_values)


def paper_or_small(environment: str, spec: EnvironmentSpec) -> str:
    """The default preset of most agents: `paper` for images, `small` for vectors."""
    del environment
    return "paper" if len(spec.observations.shape) == 3 else "small"
