"""Greedy evaluations: what `retrax evaluate` and evaluations during a run have in common."""

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax

from ..agents.base import ActorState, Agent, Params
from ..agents.entry import AgentEntry
from ..datatypes import VectorEnvironment
from ..environments.failures import closing_quietly
from ..environments.start_states import StartStates, load_states
from ..evaluation.episodes import Interruptible, batched, begin_states, run_episodes
from ..replay.interface import Stopped
from ..training.metrics import next_multiple
from ..training.run_config import RunConfig
from ..training.seeds import Purpose, derive_seed
from ..training.stop import StopEvent

MAX_ENVS = 16  # stepped together in an evaluation
_PREFIX = "evaluation_"


def warm_states(
    entry: AgentEntry, agent: Agent, key: jax.Array, num_envs: int, actors: ActorState
) -> ActorState:
    """Actor states `[num_envs, ...]` at the start of an evaluation, as `run_episodes` takes them.

    Args:
      entry: of the agent.
      agent: made by it.
      key: of new states.
      num_envs: of the evaluation.
      actors: the states of all actors of the run, which the entry's `warm_start` takes.

    Returns:
      States with what the run's actors have learned; None, for new ones, without `warm_start`.
    """
    if entry.warm_start is None:
        return None
    return batched(entry.warm_start, (0, None))(begin_states(agent, key, num_envs), actors)


def make_with_starts(
    config: RunConfig, starts: Sequence[str], *, seed: int, num_envs: int, render: bool = False
) -> VectorEnvironment:
    """Makes the environments of an evaluation, without switches that are for training only.

    Args:
      config: of the run.
      starts: `["noop"]`, or `["states", FILE]` for Atari games.
      seed: as for `environments.make`, as `num_envs` and `render`.
      num_envs: their number.
      render: whether frames are wanted.

    Raises:
      ValueError: `make` refuses the environment, other starts, or a file that is not of this game.
    """
    kind, *rest = starts or [""]
    if kind == "noop" and not rest:
        return config.make_environment(seed=seed, num_envs=num_envs, render=render, evaluation=True)
    if kind != "states" or len(rest) != 1:
        raise ValueError(f"--starts must be noop or states FILE, got {' '.join(starts)!r}.")
    from ..environments.emulated_atari import EmulatedAtari, emulated_game

    game, switches = emulated_game(config.environment)
    found = states_of(game, Path(rest[0]))
    return EmulatedAtari(game, num_envs=num_envs, seed=seed, states=found.states, **switches)


def states_of(game: str, path: Path) -> StartStates:
    """The states in a file, which must be of a game.

    Raises:
      ValueError: the file is damaged or of another game.
    """
    found = load_states(path)
    if found.game != game:
        raise ValueError(f"{path} has start states of {found.game}, not of {game}.")
    return found


class PeriodicEvaluation:
    """Evaluates an agent each time that its run has taken so many steps, and at the run's end.

    An evaluation depends on parameters, actor states, the run's seed and the number of steps only:
    its environments are new, so a resumed run makes the same evaluations, and without switches that
    are for training only. Training never depends on evaluations.

    Attributes:
      columns: names of the metrics.
      next: steps at which the next evaluation is due; that at the run's end comes besides.
    """

    def __init__(self, config: RunConfig, agent: Agent, *, start: int):
        """Prepares the evaluations of a resolved run that is at `start` steps."""
        self._config, self._agent = config, agent
        self._every, self._last = config.evaluate_every, config.schedule[0]
        modes = (f"return_{name}" for name in config.entry.evaluation_modes)
        names = ("return", "length", *modes) if self._every else ()
        self.columns = [f"{_PREFIX}{name}" for name in names]
        self.next = self._after(start)

    def is_due(self, steps: int) -> bool:
        """Whether the run has to be evaluated at this number of steps."""
        return self._every > 0 and (steps >= self.next or steps >= self._last)

    def run(
        self, steps: int, params: Params, actors: ActorState, stop: StopEvent
    ) -> dict[str, float]:
        """One evaluation of the newest parameters, at a number of steps; a stop ends it.

        Returns:
          Means over the episodes, named as in `columns`; empty if it was stopped.
        """
        config, entry = self._config, self._config.entry
        seed = derive_seed(config.seed, Purpose.PERIODIC_EVALUATION, steps)
        num_envs = min(config.evaluation_episodes, MAX_ENVS)
        environment = config.make_environment(seed=seed, num_envs=num_envs, evaluation=True)
        interruptible: Any = Interruptible(environment, stop)
        with closing_quietly(environment), contextlib.suppress(Stopped):
            key = jax.random.key(seed)
            results = run_episodes(
                self._agent,
                params,
                interruptible,
                key=key,
                num_episodes=config.evaluation_episodes,
                states=warm_states(entry, self._agent, key, num_envs, actors),
                modes=entry.evaluation_modes,
            )
            self.next = self._after(steps)
            return {f"{_PREFIX}{name}": value for name, value in results.means().items()}
        return {}

    def _after(self, steps: int) -> int:
        return next_multiple(steps, self._every) if self._every else 0
