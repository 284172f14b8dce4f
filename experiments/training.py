"""One training run in one process, with all its files: metrics, log, snapshots."""

import contextlib
import dataclasses
import logging
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax

from ..datatypes import ReplayConfig
from ..environments import VectorEnvironment, make
from ..replay.store import SequenceStore
from .config import RESUME, RunConfig, agent_package, derive_seed, write_config
from .loggers import FILE_ONLY, MetricsWriter, close_log, setup_log
from .loop import Loop
from .progress import Progress
from .snapshots import Snapshot, Snapshots

# Columns that differ between two runs of the same command; everything else is the same bit for bit.
WALL_CLOCK_COLUMNS = (
    "seconds",
    "acting_steps_per_second",
    "learning_updates_per_second",
    "steps_per_second",
)


class Summary(NamedTuple):
    """How a run ended.

    Attributes:
      directory: where it is.
      steps: transitions taken, earlier parts of the run included.
      updates: updates of the learner, likewise.
      last_return: mean return of the last window in which an episode ended, NaN if none did.
      interrupted: whether it was stopped before its last step.
    """

    directory: Path
    steps: int
    updates: int
    last_return: float
    interrupted: bool


class RunFailedError(RuntimeError):
    """A run that could not go on; says in one sentence where and why."""


class _Parts(NamedTuple):
    environment: VectorEnvironment
    loop: Loop
    store: SequenceStore
    seconds: float  # wall-clock time of the run's earlier parts


def train(
    config: RunConfig, directory: Path, *, resume: bool = False, plain: bool = False
) -> Summary:
    """Trains an agent; everything is checked before anything is written.

    Args:
      config: what to run.
      directory: the run directory; new unless `resume`.
      resume: go on from the newest snapshot in the directory.
      plain: log lines in place of a progress bar.

    Raises:
      ValueError: the environment, the agent's config, the replay's size or the snapshot is refused.
      RunFailedError: something went wrong after the first step; the traceback is in the log.
    """
    parts = _restored(config, directory) if resume else _fresh(config)
    with contextlib.ExitStack() as stack:
        stack.enter_context(contextlib.closing(parts.environment))
        log = setup_log(directory)
        stack.callback(close_log, log)
        run = _Run(config, directory, parts, log, resume=resume, plain=plain)
        write_config(directory, config)
        stop = stack.enter_context(_stop_requested())
        try:
            return run.run(stop)
        except Exception as error:
            log.exception("The run failed.")
            reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
            raise RunFailedError(
                f"The run failed at {parts.loop.counters.steps} steps: {reason.rstrip('.')} "
                f"(traceback in {directory / 'log.txt'})."
            ) from error


class _Run:
    """The loop with its outputs."""

    def __init__(
        self,
        config: RunConfig,
        directory: Path,
        parts: _Parts,
        log: logging.Logger,
        *,
        resume: bool,
        plain: bool,
    ):
        self._config, self._directory, self._log = config, directory, log
        self._loop, self._store = parts.loop, parts.store
        self._metric_names = self._loop.metric_names()
        counters = [field.name for field in dataclasses.fields(self._loop.counters)]
        columns = [
            *counters,
            "episode_return",
            "episode_length",
            *self._metric_names,
            *WALL_CLOCK_COLUMNS,
        ]
        steps = self._loop.counters.steps
        self._metrics = (
            MetricsWriter.resume(directory, columns, steps)
            if resume
            else MetricsWriter(directory, columns)
        )
        self._snapshots = Snapshots(directory)
        self._progress = Progress(config.steps, start=steps, plain=plain)
        self._started = time.perf_counter() - parts.seconds
        self._last_return = float("nan")

    def run(self, stop: "_Stop") -> Summary:
        """Runs to the last step, or until asked to stop; leaves a snapshot either way."""
        counters, config = self._loop.counters, self._config
        self._describe()
        next_log = _next_multiple(counters.steps, config.log_every)
        next_snapshot = _next_multiple(counters.steps, config.snapshot_every)
        with contextlib.closing(self._metrics), contextlib.closing(self._snapshots), self._progress:
            while counters.steps < config.steps and not stop.requested:
                self._loop.advance()
                if counters.steps >= next_log:
                    self._write_metrics()
                    next_log = _next_multiple(counters.steps, config.log_every)
                if next_snapshot <= counters.steps < config.steps:
                    self._save()
                    next_snapshot = _next_multiple(counters.steps, config.snapshot_every)
            if self._loop.window.steps:
                self._write_metrics()
            self._save()
        return self._summary(stop.requested and counters.steps < config.steps)

    def _describe(self) -> None:
        config, store = self._config, self._store
        self._log.info(
            f"{config.agent} on {config.environment}, preset {config.preset}, "
            f"{config.steps} steps, seed {config.seed}, "
            f"{config.num_envs} environments, in {self._directory}"
        )
        self._log.info(
            f"Replay: {store.capacity} rows take {store.nbytes / 1e9:.2f} GB when it is full; "
            f"learning starts at {config.agent_config.replay.min_rows} rows."
        )
        if self._loop.counters.steps:
            self._log.info(f"Resumed at {self._loop.counters.steps} steps.")

    def _write_metrics(self) -> None:
        window, counters = self._loop.look(), self._loop.counters
        seconds = time.perf_counter() - self._started
        elapsed = window.acting_seconds + window.learning_seconds
        means = dict.fromkeys(self._metric_names, float("nan")) | window.means()
        clock = {
            "seconds": seconds,
            "acting_steps_per_second": _rate(window.steps, window.acting_seconds),
            "learning_updates_per_second": _rate(window.updates, window.learning_seconds),
            "steps_per_second": _rate(window.steps, elapsed),
        }
        self._metrics.write({**dataclasses.asdict(counters), **means, **clock})
        if window.returns:
            self._last_return = means["episode_return"]
        line = self._progress.show(counters, self._last_return, clock)
        if line:
            self._log.info(line, extra={FILE_ONLY: self._progress.has_bar})

    def _save(self) -> None:
        counters = self._loop.counters
        if counters.steps in self._snapshots.steps():
            return
        values = {**dataclasses.asdict(counters), "seconds": time.perf_counter() - self._started}
        loop = self._loop
        self._snapshots.save(
            counters.steps, Snapshot(loop.learner, loop.replay_state(), values, loop.actors)
        )

    def _summary(self, interrupted: bool) -> Summary:
        counters = self._loop.counters
        self._log.info(
            f"{'Stopped' if interrupted else 'Finished'} at {counters.steps} steps and "
            f"{counters.updates} updates; last training return {self._last_return:.3g}."
        )
        return Summary(
            self._directory, counters.steps, counters.updates, self._last_return, interrupted
        )


class _Stop:
    requested = False


@contextlib.contextmanager
def _stop_requested() -> Iterator[_Stop]:
    """Turns the first Ctrl-C (or SIGTERM) into a request; a second one interrupts at once."""
    stop = _Stop()

    def request(number: int, frame: Any) -> None:
        if stop.requested:
            raise KeyboardInterrupt
        stop.requested = True

    try:
        before = {
            number: signal.signal(number, request) for number in (signal.SIGINT, signal.SIGTERM)
        }
    except ValueError:  # not the main thread: signals are somebody else's
        before = {}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _fresh(config: RunConfig) -> _Parts:
    environment = make(config.environment, seed=config.seed, num_envs=config.num_envs)
    try:
        return _Parts(environment, *_build(config, environment), seconds=0.0)
    except BaseException:
        environment.close()
        raise


def _restored(config: RunConfig, directory: Path) -> _Parts:
    with contextlib.closing(Snapshots(directory, writable=False)) as snapshots:
        if snapshots.newest() >= config.steps:
            raise ValueError(
                f"{directory} is at {snapshots.newest()} steps already: to go on, give --steps "
                f"more than that, got {config.steps}."
            )
        # New episodes that differ from those at the run's beginning, whatever the snapshot says.
        seed = derive_seed(config.seed, RESUME, snapshots.newest())
        environment = make(config.environment, seed=seed, num_envs=config.num_envs)
        try:
            loop, store = _build(config, environment)
            snapshot = snapshots.restore(*_shapes((loop.learner, loop.actors)))
            seconds = _take_over(snapshots, snapshot, loop)
        except BaseException:
            environment.close()
            raise
    return _Parts(environment, loop, store, seconds)


def _take_over(snapshots: Snapshots, snapshot: Snapshot, loop: Loop) -> float:
    """Puts the snapshot in; returns the seconds that the run had taken."""
    try:
        counters = dict(snapshot.counters)
        seconds = float(counters.pop("seconds"))
        loop.restore(snapshot.learner, snapshot.actors, counters, snapshot.replay)
    except Exception as error:
        raise snapshots.damaged(error) from error
    return seconds


def _build(config: RunConfig, environment: VectorEnvironment) -> tuple[Loop, SequenceStore]:
    replay: ReplayConfig = config.agent_config.replay
    agent = agent_package(config.agent).make_agent(environment.spec, config.agent_config)
    store = SequenceStore(
        environment.spec, agent.sequence, replay, num_envs=config.num_envs, seed=config.seed
    )
    return Loop(agent, environment, store, replay, seed=config.seed), store


def _shapes(tree: Any) -> Any:
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), tree)


def _next_multiple(value: int, of: int) -> int:
    return (value // of + 1) * of


def _rate(count: int, seconds: float) -> float:
    return count / seconds if count else float("nan")
