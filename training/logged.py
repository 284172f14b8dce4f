"""A loop without actors: updates on recorded episodes.

What an agent stores with an action is given with the episodes, unless it can be computed: the sums
that scale rewards are, and a recurrent network begins each sequence with zeros (R2D2's zero start).
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from dm_env import StepType, TimeStep, specs

from ..agents.base import Agent
from ..agents.reward_scale import DISCOUNTED_SUM, logged_sums
from ..agents.sequences import MEMORY
from ..datatypes import EnvironmentSpec, Row, VectorEnvironment
from ..environments.failures import closing_quietly
from ..environments.sequential import SequentialVector
from ..replay.logged import Episode, LoggedReplay, array_of, numbers_of, rows_of
from .learner import Learner
from .loop import Loop
from .run_config import RunConfig


class LoggedLoop(Loop):
    """A `Loop` whose time steps are counted, but taken in no environment: each is one update."""

    def __init__(
        self,
        config: RunConfig,
        agent: Agent,
        environment: VectorEnvironment,
        episodes: Iterable[Any],
    ):
        """Converts `Episode`s, or what has their attributes, by the environment, then closes it."""
        with closing_quietly(environment):
            if config.num_actors > 1 or config.workers.num_workers or config.on_device:
                raise ValueError("data must be None for several actors, workers and --on-device.")
            spec = environment.spec
            found = [_converted(x, n, environment) for n, x in enumerate(episodes)]
        if not found:
            raise ValueError("data must have at least one episode, got none.")
        rows = list(_with_extras(found, config, agent, spec))
        self._replay = LoggedReplay(spec, agent.sequence, config.replay, rows, seed=config.seed)
        learner = Learner.of_run(config, agent, self._replay)
        super().__init__([], learner, [self._replay])
        begin = jax.vmap(agent.begin, in_axes=(0, 0, None))
        ids = jnp.arange(config.num_envs, dtype=jnp.int32)
        self._states = begin(config.prng_keys()[1], ids, config.num_envs)

    def act(self) -> None:
        """Makes one more update due."""
        self._replay.tick()
        self.counters.steps += 1

    def actor_states(self) -> Any:
        """Those of `Agent.begin`: nobody has acted."""
        return self._states


def _converted(data: Any, number: int, environment: VectorEnvironment) -> Episode:
    """An episode with observations and actions in the form of the environment's spec."""
    names = ("observations", "actions", "rewards", "terminations")
    missing = [name for name in names if not hasattr(data, name)]
    if missing:
        raise ValueError(
            f"episode {number} must be a retrax.Episode or have its attributes; a "
            f"{type(data).__name__} has no {', '.join(missing)}."
        )
    observations, actions, rewards, terminations = (getattr(data, name) for name in names)
    if isinstance(environment, SequentialVector) and array_of(actions).size:
        try:
            observations, actions = environment.recorded(observations, actions)
        except Exception as error:  # of whatever stands in place of arrays
            raise ValueError(f"episode {number} does not fit the environment: {error}") from error
    return Episode(
        observations, actions, rewards, terminations, getattr(data, "extras", None) or {}
    )


def _with_extras(
    episodes: Sequence[Episode], config: RunConfig, agent: Agent, spec: EnvironmentSpec
) -> Iterator[Row]:
    """The rows of each episode, with everything that the agent stores."""
    rows = [rows_of(episode, number, spec) for number, episode in enumerate(episodes)]
    sums: list[np.ndarray] = []
    if DISCOUNTED_SUM in agent.sequence.extras:
        whole: Row = jax.tree.map(lambda *x: np.concatenate(x), *rows)
        kind = np.where(whole.is_first, StepType.FIRST, StepType.MID).astype(np.int32)
        kind[whole.is_last] = StepType.LAST
        timesteps = TimeStep(kind, whole.reward, whole.discount, np.zeros(len(kind)))
        found = np.asarray(logged_sums(timesteps, config.agent_config.discount))
        sums = np.split(found, np.cumsum([len(row.reward) for row in rows])[:-1])
    for number, (row, episode) in enumerate(zip(rows, episodes, strict=True)):
        extras: dict[str, Any] = {}
        for name, like in agent.sequence.extras.items():
            if name == DISCOUNTED_SUM:
                extras[name] = sums[number]
            elif name == MEMORY and name in agent.sequence.first_row_extras:
                extras[name] = _zeros(like, len(row.reward))
            else:
                extras[name] = _given(name, like, episode, number, config.agent)
        if "mu" in extras and isinstance(spec.actions, specs.DiscreteArray):
            _check_mu(extras["mu"][:-1], row.action[:-1], number)
        yield row._replace(extras=extras)


def _zeros(like: Any, count: int) -> Any:
    return jax.tree.map(lambda x: np.zeros((count, *x.shape), x.dtype), like)


def _given(name: str, like: Any, episode: Episode, number: int, agent: str) -> np.ndarray:
    """An extra that came with an episode, and zeros for its last row."""
    if name not in episode.extras:
        why = "which the policy that chose the actions must have recorded"
        if name == "mu":
            why = "the probabilities with which the actions were chosen, by which Retrace divides"
        raise ValueError(
            f"{agent} needs {name}, {why}: episode {number} must have it in its extras "
            f"([{len(episode.actions)}, {', '.join(map(str, like.shape))}])."
        )
    shape, what = (len(episode.actions), *like.shape), f"extra {name} of episode {number}"
    array = numbers_of(episode.extras[name], shape, like.dtype, what)
    return np.concatenate([array, np.zeros_like(array[:1])])


def _check_mu(mu: np.ndarray, actions: np.ndarray, number: int) -> None:
    """Refuses probabilities that are none, or by which nothing can be divided."""
    if mu.shape[1:] and (
        (mu < 0).any()
        or (np.abs(mu.sum(axis=-1) - 1) > 1e-3).any()
        or (np.take_along_axis(mu, actions[:, None], axis=1) == 0).any()
    ):
        raise ValueError(
            f"mu of episode {number} must be probabilities that sum to 1 and are above 0 for the "
            "actions taken."
        )
