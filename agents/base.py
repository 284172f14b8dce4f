"""The interface of every agent: one NamedTuple of pure functions."""

import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias, TypeVar, cast

import jax
import jax.numpy as jnp
from dm_env import specs

from ..datatypes import EnvironmentSpec, Sample, SequenceSpec, TimeStep

Params = Any  # what actors need to act: a pytree of arrays
LearnerState = Any  # a NamedTuple of arrays, the PRNG key included: saving it saves the learner
ActorState = Any  # a NamedTuple of arrays, the PRNG key included
Gradients = Any  # a pytree of float arrays

UNLIMITED = 1e9  # of limits in configs: JSON has no infinity
_LARGE_IMAGE = 64
_IMAGES = 5  # axes of a batch of sequences of images


class Decision(NamedTuple):
    """Outputs of an acting function at one time step."""

    action: jax.Array  # an action of the environment's action spec; ignored on a last step
    extras: Any  # a dictionary of arrays to be stored in the row, as `Agent.sequence.extras` says
    state: ActorState  # the actor's state for the next time step


class Update(NamedTuple):
    """Outputs of an update other than the new learner state.

    Of several updates in one call: the priorities of all of them, and the metrics' means.
    """

    priorities: jax.Array  # float32 `[B]`, finite and >= 0, one for each sampled sequence
    metrics: dict[str, jax.Array]  # a dictionary of float32 scalars


ActingFunction: TypeAlias = Callable[[Params, ActorState, TimeStep], Decision]
UpdateFunction: TypeAlias = Callable[[LearnerState, Sample], tuple[LearnerState, Update]]
UpdatesFunction: TypeAlias = Callable[[LearnerState, Sample, int], tuple[LearnerState, Update]]


class Agent(NamedTuple):
    """An agent as pure, jittable functions; nothing is jitted inside.

    The acting functions are unbatched over environments (`jax.vmap` batches them) and are called on
    **every** time step, last ones included, so that an agent can do its end-of-episode bookkeeping
    in the same function.

    Learning is split in two. `gradients` reads the learner state and changes nothing; `apply` needs
    no data. So gradients may be averaged over devices, or computed by workers that are elsewhere.
    `update` composes the two.

    Attributes:
      init: `key -> LearnerState`: networks, targets, optimiser state, number of updates, key.
      acting_params: `LearnerState -> Params`: what actors fetch (no optimiser, no targets).
      begin: `(key, actor_id, num_actors) -> ActorState`: once per environment; `actor_id` in
        0 .. num_actors - 1.
      explore: `(Params, ActorState, TimeStep) -> Decision`: behaviour for training.
      exploit: `(Params, ActorState, TimeStep) -> Decision`: behaviour for evaluation.
      gradients: `(LearnerState, Sample) -> (Gradients, Update)`: `Gradients` is a pytree of float
        arrays that may be averaged.
      apply: `(LearnerState, Gradients) -> LearnerState`: one step of the optimisers, target
        networks, averages and counts.
      sequence: what the replay stores and serves. Static.
    """

    init: Callable[[jax.Array], LearnerState]
    acting_params: Callable[[LearnerState], Params]
    begin: Callable[[jax.Array, jax.Array, int], ActorState]
    explore: Callable[[Params, ActorState, TimeStep], Decision]
    exploit: Callable[[Params, ActorState, TimeStep], Decision]
    gradients: Callable[[LearnerState, Sample], tuple[Gradients, Update]]
    apply: Callable[[LearnerState, Gradients], LearnerState]
    sequence: SequenceSpec


MakeAgent = TypeVar("MakeAgent", bound=Callable[..., Agent])  # what is decorated


def decorator(make: Callable[..., Agent]) -> Callable[[MakeAgent], MakeAgent]:
    """A decorator of `make_agent`; `make` gets what it decorates, and then its arguments."""

    def decorate(make_agent: MakeAgent) -> MakeAgent:
        @functools.wraps(make_agent)
        def decorated(environment_spec: EnvironmentSpec, config: Any, **parts: Any) -> Agent:
            return make(make_agent, environment_spec, config, **parts)

        return cast(MakeAgent, decorated)

    return decorate


@decorator
def takes_wrapper(
    make_agent: Any, environment_spec: Any, config: Any, *, wrap: Any = None, **parts: Any
) -> Agent:
    """`make_agent` takes `wrap`, `(agent, config) -> agent`, which changes the agent.

    As the innermost decorator, it gives `wrap` the agent's own learner state, and scaled rewards.
    """
    agent: Agent = make_agent(environment_spec, config, **parts)
    return agent if wrap is None else wrap(agent, config)


def update(agent: Agent) -> UpdateFunction:
    """One update of an agent: `apply` after `gradients`."""

    def update(state: LearnerState, sample: Sample) -> tuple[LearnerState, Update]:
        gradients, outputs = agent.gradients(state, sample)
        return agent.apply(state, gradients), outputs

    return update


def updates_in_one_call(agent: Agent) -> UpdatesFunction:
    """Several updates in turn, each with its part of a larger batch `[count * B, ...]`.

    The count is static. Priorities are `[count * B]`, metrics means over the updates.
    """
    once = update(agent)

    def updates(state: LearnerState, sample: Sample, count: int) -> tuple[LearnerState, Update]:
        if count == 1:
            return once(state, sample)
        parts = jax.tree.map(lambda x: x.reshape(count, -1, *x.shape[1:]), sample)
        # On CPUs, XLA computes convolutions within a loop 15 to 60 times as slowly.
        are_images = sample.rows.observation.ndim == _IMAGES
        state, each = jax.lax.scan(once, state, parts, unroll=count if are_images else 1)
        return state, Update(each.priorities.reshape(-1), jax.tree.map(jnp.mean, each.metrics))

    return updates


def count_actions(agent: str, spec: EnvironmentSpec) -> int:
    """The number of discrete actions; `ValueError` names the agent if they are continuous."""
    if not isinstance(spec.actions, specs.DiscreteArray):
        raise ValueError(f"{agent} needs discrete actions (a DiscreteArray), got {spec.actions!r}.")
    return int(spec.actions.num_values)


def paper_or_small(environment: str, spec: EnvironmentSpec) -> str:
    """A default preset: `paper` for large images, else `small`."""
    return "paper" if is_large_image(spec) else "small"


def is_large_image(spec: EnvironmentSpec) -> bool:
    """Whether observations are images with at least 64 pixels a side, as Atari's are."""
    shape = spec.observations.shape
    return len(shape) == 3 and min(shape[:2]) >= _LARGE_IMAGE


def steps_by_preset(
    small: Mapping[str, int], presets: Mapping[str, int] | None = None
) -> Callable[[str, str], int]:
    """`AgentEntry.default_steps`: the environment's steps for presets that begin with `small`.

    Those are the steps after which it is solved, 200,000 if unknown. `presets` has the steps of
    others: if not named 10 million frames, of four action repeats, for `atari_laptop`, and 200
    million for the rest (Reactor, section 4).
    """

    def default_steps(environment: str, preset: str) -> int:
        if preset.startswith("small"):
            return small.get(environment, 200_000)
        return {"atari_laptop": 2_500_000, **(presets or {})}.get(preset, 50_000_000)

    return default_steps


def check_network_or_torso(network: Any, torso: Any) -> None:
    """Refuses a network and a torso that are given together, with a `ValueError`."""
    if network is not None and torso is not None:
        raise ValueError(
            "torso replaces the torso of the agent's default network, so it cannot be given "
            "together with a network: give one of the two."
        )
