"""An agent that is cheap to compile and draws random numbers in its actors and its learner.

What it learns depends on all that its actors saw, on their parameters and on priorities, so a run
that loses any of them differs. Its learner diverges where `rate` is huge.
"""

import collections
import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from retrax.agents import Agent, Decision, Update
from retrax.agents.entry import AgentEntry
from retrax.datatypes import ReplayConfig, SequenceSpec

_REPLAY = ReplayConfig(
    capacity=80, min_rows=20, batch_size=2, acting_steps_per_update=3.0, selector="proportional"
)
NUM_ARMS = 3
_WARM = 60  # calls, more than those of an evaluator without a warm start


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config:
    rate: float = 2.0**-7
    """Step size."""

    sequence_length: int = 4
    """Rows of a sequence."""

    size: int = 2
    """Of an array that is not used."""

    arm: int | None = None
    """The action of evaluations; None: the learned scores decide."""

    replay: ReplayConfig = _REPLAY
    """Replay."""


ActorState = collections.namedtuple("ActorState", "key calls")


def make_agent(spec, config, *, has_arms=False):
    num_actions = spec.actions.num_values

    def act(params, state, timestep, arm=None):
        key, action_key, luck_key = jax.random.split(state.key, 3)
        noise = jax.random.normal(action_key, (num_actions,))
        action = jnp.argmax(noise + params["scores"]) if arm is None else jnp.asarray(arm)
        extras = {"score": params["scores"][0]}
        if has_arms:
            extras |= {"arm": jnp.float32(-1 if arm is None else arm)}
            extras["intrinsic_return"] = 10.0 * extras["arm"]
        state = ActorState(key, state.calls + 1)
        return Decision(action.astype(jnp.int32), extras, state), luck_key

    def exploit(params, state, timestep):
        decision, luck_key = act(params, state, timestep, config.arm)
        modes = {"warm": state.calls > _WARM, "lucky": jax.random.bernoulli(luck_key)}
        return decision._replace(extras={**decision.extras, **modes})

    def gradients(learner, sample):
        rows = sample.rows
        actions = jax.nn.one_hot(rows.action[:, :-1], num_actions)
        weights = jnp.linspace(-1.0, 1.0, rows.observation.shape[-1])
        seen = rows.observation[:, :-1] @ weights + rows.extras["score"][:, :-1]
        gradient = jnp.mean(actions * (rows.reward[:, 1:] - seen)[..., None], axis=(0, 1))
        noise = jax.random.normal(learner["key"], gradient.shape)
        priorities = jnp.abs(rows.reward).sum(axis=1) + 0.1 + jnp.abs(learner["scores"]).sum()
        # Exact sums: programs that XLA makes in other ways learn the same, bit for bit.
        gradient = jnp.round(1024 * (gradient + 0.1 * noise)) / 1024
        return gradient, Update(priorities, {"score": learner["scores"][0]})

    def apply(learner, gradients):
        key = jax.random.split(learner["key"])[0]
        return {**learner, "key": key, "scores": learner["scores"] + config.rate * gradients}

    def init(key):
        return {"key": key, "scores": jnp.zeros(num_actions), "unused": jnp.zeros(config.size)}

    names = ["score", *(["arm", "intrinsic_return"] if has_arms else [])]
    return Agent(
        init=init,
        acting_params=lambda learner: {"scores": learner["scores"]},
        begin=lambda key, actor_id, num_actors: ActorState(key, jnp.int32(0)),
        explore=lambda *arguments: act(*arguments)[0],
        exploit=exploit,
        gradients=gradients,
        apply=apply,
        sequence=SequenceSpec(
            length=config.sequence_length,
            period=3 if config.replay.on_policy else 1,
            crosses_episodes=config.replay.on_policy,
            extras={name: jax.ShapeDtypeStruct((), jnp.float32) for name in names},
        ),
    )


def warm_start(evaluator: Any, actors: Any) -> Any:
    """The evaluator has made the calls of all actors."""
    return evaluator._replace(calls=evaluator.calls + jnp.sum(actors.calls))


def with_arm(config, arm):
    if arm >= NUM_ARMS:
        raise ValueError(f"arm must be at most {NUM_ARMS - 1}, got {arm}.")
    return dataclasses.replace(config, arm=arm)


NOISY = AgentEntry(
    name="noisy",
    make_agent=make_agent,
    Config=Config,
    presets={"default": Config},
    default_steps=lambda environment, preset: 240,
    evaluation_policy=lambda config: f"random, with {config.replay.capacity} rows",
    evaluation_modes=("warm", "lucky"),
    warm_start=warm_start,
)
ARMS = dataclasses.replace(
    NOISY.override("arms", has_arms=True),
    with_arm=with_arm,
    episode_metrics=("arm", "intrinsic_return"),
)
