"""Evaluation with averaged parameters: an agent of values that differ much from update to update.

Actors act with the newest parameters. Evaluators and trained agents act with an exponential average
over the updates (Polyak and Juditsky 1992): a policy that is greedy in values changes wherever two
values are close, and an update moves all of them. The average is bias-corrected, as the moments of
Adam are (Kingma and Ba 2015, section 3): the initial parameters have no part in it. Our addition.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from ..datatypes import TimeStep
from .base import ActorState, Agent, Decision, MakeAgent, decorator


class AveragedLearnerState(NamedTuple):
    """The average, before the first update the initial parameters; and the agent's own state."""

    average: Any
    num_updates: jax.Array
    learner: Any


class AveragedParams(NamedTuple):
    """Acting parameters: the newest, and the average of them or of a part of them."""

    newest: Any
    average: Any


def evaluates_average(part: str | None = None) -> Callable[[MakeAgent], MakeAgent]:
    """Decorates `make_agent(environment_spec, config, ...)`.

    The config has `evaluation_average_decay`, the share of itself that the average keeps at each
    update: 1 gives their mean; 0 is no average, and the agent is unchanged.

    Args:
      part: name of the averaged field of the acting parameters, a NamedTuple; None: all of them.
    """

    @decorator
    def averaging(make_agent: Any, environment_spec: Any, config: Any, **parts: Any) -> Agent:
        agent: Agent = make_agent(environment_spec, config, **parts)
        decay = config.evaluation_average_decay
        if not decay:
            return agent

        def newest(learner: Any) -> Any:
            params = agent.acting_params(learner)
            return getattr(params, part) if part else params

        def init(key: jax.Array) -> AveragedLearnerState:
            learner = agent.init(key)
            return AveragedLearnerState(newest(learner), jnp.zeros((), jnp.int32), learner)

        def exploit(params: AveragedParams, state: ActorState, timestep: TimeStep) -> Decision:
            average = params.average
            averaged = params.newest._replace(**{part: average}) if part else average
            return agent.exploit(averaged, state, timestep)

        def apply(state: AveragedLearnerState, grads: Any) -> AveragedLearnerState:
            """After n updates: sum_k w_k newest_k / sum_k w_k, where w_k = decay^(n - k)."""
            learner = agent.apply(state.learner, grads)
            num_updates = state.num_updates + 1
            count = num_updates.astype(jnp.float32)
            step_size = (1.0 - decay) / (1.0 - decay**count) if decay < 1 else 1.0 / count
            average = optax.incremental_update(newest(learner), state.average, step_size)
            return AveragedLearnerState(average, num_updates, learner)

        return agent._replace(
            init=init,
            acting_params=lambda state: AveragedParams(
                agent.acting_params(state.learner), state.average
            ),
            explore=lambda params, state, timestep: agent.explore(params.newest, state, timestep),
            exploit=exploit,
            gradients=lambda state, sample: agent.gradients(state.learner, sample),
            apply=apply,
        )

    return averaging
