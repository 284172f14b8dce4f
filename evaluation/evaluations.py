"""Evaluations of the greedy policy: during a run, of a saved run, and in a program.

`E` denotes the number of parallel environments, `N` the number of episodes.
"""

import functools
import itertools
import logging
import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..agents.base import ActorState, Agent, Params
from ..basics.sentences import first_line
from ..datatypes import TimeStep, VectorEnvironment
from ..environments.failures import closing_quietly, drawn
from ..environments.start_states import load_states
from ..replay.interface import Stopped
from ..training.loop import RunningReturns
from ..training.process import StopEvent
from ..training.run_config import Purpose, RunConfig, derive_seed, next_multiple
from .statistics import interval_of_episodes

MAX_ENVS = 16  # stepped together in an evaluation
_PREFIX = "evaluation_"
_SHARE = 10  # an evaluation by default takes a tenth of the run's time steps at most,
_LAST_SECONDS = 20.0  # or, at the end of the run, so long or a tenth of its time
_log = logging.getLogger("retrax")


class Scores(NamedTuple):
    """Results of an evaluation."""

    mean_return: float  # undiscounted
    low: float  # bound of its 95 % confidence interval; NaN for fewer than 10 episodes
    high: float
    episodes: int
    steps: int  # of training, of the evaluated parameters
    mean_length: float  # in transitions
    modes: dict[str, dict[str, Any]]  # `mean_return` and `episodes` of each evaluation mode
    metrics: dict[str, float]  # means of the agent's episode metrics
    policy: str = ""  # what acted, in the words of the agent's entry

    def means(self) -> dict[str, float]:
        """Means over episodes: `return`, `length`, and `return_MODE` of each mode that occurred."""
        found = [(f"return_{name}", mode) for name, mode in self.modes.items()]
        modes = {name: mode["mean_return"] for name, mode in found if mode["episodes"]}
        return {"return": self.mean_return, "length": self.mean_length, **modes}


class Evaluation:
    """Greedy episodes of an agent in environments that no training uses.

    The environment (see `evaluation_environments`) is reset by each `run`, and not closed. The
    config is resolved. The seed is of the first actor states. `before_step` and `on_frame` are
    called as by `run_episodes`.
    """

    def __init__(
        self,
        config: RunConfig,
        agent: Agent,
        environment: VectorEnvironment,
        *,
        seed: int,
        episodes: int,
        before_step: Callable[[TimeStep], None] | None = None,
        on_frame: Callable[[np.ndarray], None] | None = None,
    ):
        self._config, self._agent, self._environment = config, agent, environment
        self._key, self._episodes = jax.random.key(seed), episodes
        self._before_step, self._on_frame = before_step, on_frame
        self._states: ActorState = None

    def run(self, params: Params, actors: ActorState, steps: int) -> Scores:
        """Runs the episodes with acting parameters of so many training steps.

        `actors` are the states of the run's actors, `[num_envs, ...]`, from which the entry's
        `warm_start` makes the states to begin with. If one of the two is None, the states continue
        from the `run` before.
        """
        config, entry = self._config, self._config.entry
        states, self._states = self._states, None  # they are donated, also where an error ends it
        if entry.warm_start is not None and actors is not None:
            fresh = begin_states(self._agent, self._key, self._environment.num_envs)
            states = batched(entry.warm_start, (0, None))(fresh, actors)
        results = run_episodes(
            self._agent,
            params,
            self._environment,
            key=self._key,
            num_episodes=self._episodes,
            before_step=self._before_step,
            on_frame=self._on_frame,
            states=states,
            modes=entry.evaluation_modes,
            metrics=entry.episode_metrics,
        )
        self._states = results.states
        modes = {}
        for name, chosen in results.modes.items():
            mean = float(results.returns[chosen].mean()) if chosen.any() else math.nan
            modes[name] = {"mean_return": mean, "episodes": int(chosen.sum())}
        metrics = {name: float(values.mean()) for name, values in results.metrics.items()}
        describe = entry.evaluation_policy
        interval, length = interval_of_episodes(results.returns), float(results.lengths.mean())
        policy = describe(config.agent_config) if describe else ""
        return Scores(*interval, len(results.returns), steps, length, modes, metrics, policy)


def evaluation_environments(
    config: RunConfig,
    starts: Sequence[str] = ("noop",),
    *,
    seed: int,
    num_envs: int,
    render: bool = False,
) -> VectorEnvironment:
    """Makes the environments of an evaluation, without switches that are for training only.

    `starts` is `("noop",)`, or for Atari games `("states", PATH)`, where PATH is a file or a folder
    that has `GAME.npz`. A ValueError refuses others.
    """
    kind, *rest = starts or [""]
    if kind == "noop" and not rest:
        return config.make_environment(seed=seed, num_envs=num_envs, render=render, evaluation=True)
    if kind != "states" or len(rest) != 1:
        raise ValueError(f"--starts must be noop or states PATH, got {' '.join(starts)!r}.")
    from ..environments.atari import EmulatedAtari, emulated_game

    (game, switches), path = emulated_game(config.environment), Path(rest[0])
    path = path / f"{game.replace('_', '-')}.npz" if path.is_dir() else path
    other, states = load_states(path)
    if other != game:
        raise ValueError(f"{path} has start states of {other}, not of {game}.")
    return EmulatedAtari(game, num_envs=num_envs, seed=seed, states=states, **switches)


class PeriodicEvaluation:
    """Evaluates an agent each time that its run has taken so many steps, and at the run's end.

    Its environments are new, so a resumed run, at `start` steps, makes the same evaluations.
    `columns` are names of metrics; at `next` steps the next evaluation is due, at 0 none. Those by
    default pause for ten times the time steps that they took, and may fail.
    """

    def __init__(self, config: RunConfig, agent: Agent, *, start: int):
        self._config, self._agent, self._last = config, agent, config.schedule[0]
        default = self._last if config.on_device else max(1, self._last // _SHARE)
        self._began, self._is_default = time.monotonic(), config.evaluate_every is None
        self._every = default if config.evaluate_every is None else config.evaluate_every
        names = "return", "length", *(f"return_{x}" for x in config.entry.evaluation_modes)
        self.columns = [f"{_PREFIX}{name}" for name in names if self._every]
        self.next = next_multiple(start, self._every) if self._every else 0

    def is_due(self, steps: int) -> bool:
        """Whether the run has to be evaluated at this number of steps."""
        return self.next > 0 and steps >= min(self.next, self._last)

    def run(
        self, steps: int, params: Params, actors: ActorState, stop: StopEvent
    ) -> dict[str, float]:
        """Means of an evaluation at a number of steps, named as in `columns`; {} if it has none."""
        config, episodes, taken = self._config, self._config.evaluation_episodes, 0
        seed = derive_seed(config.seed, Purpose.PERIODIC_EVALUATION, steps)
        count, now = min(episodes, MAX_ENVS), time.monotonic()
        limit = self._last // _SHARE // count
        until = now + max(_LAST_SECONDS, (now - self._began) / _SHARE)

        def check(_: TimeStep) -> None:
            nonlocal taken
            if stop.is_set():
                raise Stopped("Stopped in the middle of an episode.")
            is_long = taken >= limit and (steps < self._last or time.monotonic() > until)
            if is_long and self._is_default:
                raise TimeoutError(f"not all episodes ended within {taken} time steps")
            taken += 1

        try:
            made = evaluation_environments(config, seed=seed, num_envs=count)
            with closing_quietly(made):
                parts = config, self._agent, made
                evaluation = Evaluation(*parts, seed=seed, episodes=episodes, before_step=check)
                means = evaluation.run(params, actors, steps).means()
        except Stopped:
            return {}
        except (Exception, SystemExit) as error:
            if not self._is_default:
                raise
            self.next = self._last if isinstance(error, TimeoutError) else 0
            if self.next <= steps:  # else a later one may have a result
                _log.warning(f"The evaluation at {steps} steps has no result: {first_line(error)}")
            return {}
        self.next = next_multiple(steps + _SHARE * taken * count * self._is_default, self._every)
        return {f"{_PREFIX}{name}": value for name, value in means.items()}


class EpisodeResults(NamedTuple):
    """Results of N episodes, ordered by environment and then by time."""

    returns: np.ndarray  # float64 `[N]`, undiscounted sums of rewards
    lengths: np.ndarray  # int64 `[N]`, transitions: time steps minus one
    modes: dict[str, np.ndarray]  # bool `[N]`: whether the episode was of this mode
    metrics: dict[str, np.ndarray]  # float64 `[N]`, at the last time step
    states: ActorState = None  # final ones, which a later call may continue from


def run_episodes(
    agent: Agent,
    params: Params,
    environment: VectorEnvironment,
    *,
    key: jax.Array,
    num_episodes: int,
    before_step: Callable[[TimeStep], None] | None = None,
    on_frame: Callable[[np.ndarray], None] | None = None,
    states: ActorState = None,
    modes: Sequence[str] = (),
    metrics: Sequence[str] = (),
) -> EpisodeResults:
    """Acts with `agent.exploit` until `num_episodes` episodes have ended.

    The first N episodes that end in any environment would be a sample biased towards short ones.
    Therefore the number of episodes of each environment is fixed beforehand (the first `N mod E`
    environments have one more than the others), and further episodes are ignored. The environment
    is reset first. Its seed and `key` are the only sources of randomness.

    Args:
      agent: its `begin` and `exploit` are used.
      params: output of `agent.acting_params`.
      environment: E environments.
      key: PRNG key of the initial actor states.
      num_episodes: N, at least 1; it may be less than E, and need not be divisible by it.
      before_step: called with the newest time steps before each step of the environments; an error
        of it ends the episodes.
      on_frame: called with a frame of the first environment, uint8 `[height, width, 3]`, at each
        of its counted time steps.
      states: final states of an earlier call, whose buffers are donated; None: new states.
      modes: `AgentEntry.evaluation_modes`.
      metrics: names of extras; those that `exploit` does not return are left out.
    """
    if num_episodes < 1:
        raise ValueError(f"num_episodes must be at least 1, got {num_episodes}.")
    num_envs = environment.num_envs
    if states is None:
        states = begin_states(agent, key, num_envs)
    decide = batched(agent.exploit, (None, 0, 0), donate_argnums=1)
    timestep = environment.reset()
    extras = jax.eval_shape(decide, params, states, timestep).extras
    metrics = [name for name in metrics if name in extras]
    running, finished = RunningReturns(num_envs), [list[tuple[Any, ...]]() for _ in range(num_envs)]
    share, rest = divmod(num_episodes, num_envs)

    def is_done(index: int) -> bool:
        return len(finished[index]) == share + (index < rest)

    while True:
        if on_frame is not None and not is_done(0):
            on_frame(drawn(environment.render))
        decision = decide(params, states, timestep)
        states = decision.state
        chosen = jax.device_get([decision.extras[name] for name in (*modes, *metrics)])
        for index, *episode in zip(*running.add(timestep), strict=True):
            if not is_done(index):
                finished[index].append((*episode, *(extra[index] for extra in chosen)))
        if all(map(is_done, range(num_envs))):
            break
        if before_step is not None:
            before_step(timestep)
        timestep = environment.step(np.asarray(decision.action))
    returns, lengths, *chosen = zip(*itertools.chain(*finished), strict=True)
    return EpisodeResults(
        np.array(returns, np.float64),
        np.array(lengths, np.int64),
        {name: np.array(x, bool) for name, x in zip(modes, chosen, strict=False)},
        {name: np.array(x, float) for name, x in zip(metrics, chosen[len(modes) :], strict=True)},
        states,
    )


def begin_states(agent: Agent, key: jax.Array, num_envs: int) -> ActorState:
    """New actor states `[E, ...]`."""
    keys, ids = jax.random.split(key, num_envs), jnp.arange(num_envs, dtype=jnp.int32)
    return batched(agent.begin, (0, 0, None), static_argnums=2)(keys, ids, num_envs)


@functools.lru_cache(maxsize=24)  # each new jax.jit compiles again; an agent is evaluated often
def batched(
    function: Callable[..., Any], in_axes: tuple[int | None, ...], **options: Any
) -> Callable[..., Any]:
    """`jax.jit` with options, of a function over the environments of an evaluation."""
    return jax.jit(jax.vmap(function, in_axes=in_axes), **options)
