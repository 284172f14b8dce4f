"""One training run in one process, with all its files: metrics, log, snapshots."""

import contextlib
import functools
import logging
import math
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from ..environments.failures import close_quietly
from ..run_directory import resuming
from ..run_directory.config_file import check_new_directory, new_directory, write_config
from ..run_directory.directory_lock import DirectoryLock
from ..run_directory.log import FILE_ONLY, close_log, setup_log
from ..run_directory.metrics_logger import MetricsLogger
from ..run_directory.metrics_writer import MetricsTable
from ..run_directory.resuming import Unfinished, open_snapshots
from ..run_directory.snapshots import Snapshots
from ..runtime.assembly import given_environments
from ..runtime.checks import checked_agent
from ..runtime.intervals import SnapshotInterval, next_multiple
from ..runtime.loop import Loop
from ..runtime.metrics import Advice, episode_columns
from ..runtime.run_config import RunConfig
from ..runtime.stop import stop_on_signals
from .evaluations import PeriodicEvaluation
from .failing import kept_on_failure, run_failed
from .progress import Expectation, Progress, describe, ending


class Summary(NamedTuple):
    """How a run ended.

    Attributes:
      directory: the run directory.
      steps: transitions taken, earlier parts of the run included.
      updates: updates of the learner, earlier parts of the run included.
      last_return: mean return of the last log row in which an episode ended, NaN if none did.
      interrupted: whether it was stopped before its last step, by a signal or by `on_metrics`.
      best_evaluation: mean return of the best evaluation, NaN if there was none. Its parameters are
        those of the snapshot `best`.
    """

    directory: Path
    steps: int
    updates: int
    last_return: float
    interrupted: bool
    best_evaluation: float = math.nan


def train(
    config: RunConfig,
    directory: Path | str | None = None,
    *,
    resume: bool = False,
    plain: bool = False,
    environment: Any = None,
    data: Iterable[Any] | None = None,
    on_metrics: Callable[[int, dict[str, float]], Any] | None = None,
    raise_interrupt: bool = False,
) -> Summary:
    """Trains an agent in this process. Everything is checked before anything is written.

    Ctrl-C, or an error in an environment's step, ends it with a snapshot; a second Ctrl-C at once.

    Args:
      config: what to run.
      directory: the run directory; a new one under runs/ if None. If `resume`, an existing one.
      resume: continue from the newest whole snapshot in the directory; start from the beginning
        if there is none yet.
      plain: log lines instead of a progress bar.
      environment: `config.num_envs` environments of the id of the config, closed at the end; made
        if None. See `environments.custom.as_vector`. For one actor, and not with `resume`.
      data: `retrax.Episode`s, or Minari's, to learn from in place of acting; steps are updates.
      on_metrics: gets the steps and the numbers of each row of metrics.csv, evaluations included.
        If it returns True, the run is stopped, with a snapshot. Its errors end no run. See
        `MetricsLogger`.
      raise_interrupt: raise KeyboardInterrupt after the snapshot if a signal stopped the run, so
        that Ctrl-C ends a loop over runs too.

    Raises:
      ValueError: the environment, the agent, its config, the replay's size, the directory or the
        snapshot is refused, or another process writes into the directory.
      RunFailedError: the run failed after the first step; the traceback is in the log.
    """
    assert directory or not resume, "resume needs a directory"
    if on_metrics is not None and not callable(on_metrics):
        raise ValueError(f"on_metrics must be a function of steps and metrics, got {on_metrics!r}.")
    environment = given_environments(environment, config, resume)
    directory, config = Path(directory or new_directory(config)).absolute(), config.anchored()
    with contextlib.ExitStack() as stack:
        lock = stack.enter_context(DirectoryLock(directory))
        snapshots, notes = open_snapshots(directory, config.steps) if resume else (None, [])
        if snapshots:
            stack.callback(snapshots.close)
        resumed_at = snapshots.newest_whole() if snapshots else None
        unfinished = resuming.read_unfinished(snapshots)
        with contextlib.ExitStack() as on_error:
            environments = [environment] if environment else []
            if not environments:
                environments, unfinished = resuming.environments_of(config, resumed_at, unfinished)
            for made in environments:
                on_error.callback(close_quietly, made)
            spec = environments[0].spec
            config = config.resolve(spec)
            if not resume:
                check_new_directory(directory, config)
            agent = checked_agent(config, spec)
            loop = resuming.loop_of(config, agent, environments, unfinished, data)
            on_error.pop_all()
        closing = stack.enter_context(contextlib.ExitStack())
        closing.callback(loop.close)
        lock.acquire()
        run = _Run(config, directory, loop)
        evaluation = PeriodicEvaluation(config, agent, start=resumed_at or 0)
        where = [run.restore(snapshots, unfinished, evaluation)] if snapshots else []
        names = [*episode_columns(config.entry), *loop.learner.metric_names, *evaluation.columns]
        if not resume:
            write_config(directory, config)  # first: what a kill leaves can be resumed
        log = setup_log(directory)
        stack.callback(close_log, log)
        stack.push(closing.pop_all())  # before the log
        table = MetricsTable(directory, names, resumed_at=loop.flushed_at if resume else None)
        stack.callback(table.close)
        for note in notes:
            log.warning(note)
        write_config(directory, config)
        stop = stack.enter_context(stop_on_signals(loop.doing))
        for line in (*describe(config, directory, loop.replays, spec), *where):
            log.info(line)
        logger = stack.enter_context(MetricsLogger(config, directory, on_metrics, stop=stop))
        try:
            summary = run.run(table, evaluation, logger, log, stop, plain=plain)
        except (Exception, SystemExit) as error:
            log.exception("The run failed.")
            raise run_failed(error, loop, directory) from error
    if raise_interrupt and stop.is_set() and not logger.has_stopped:
        raise KeyboardInterrupt
    return summary


class _Run:
    """The loop with its outputs."""

    def __init__(self, config: RunConfig, directory: Path, loop: Loop):
        self._config, self._directory, self._loop = config, directory, loop
        self._advice = Advice(config.entry, config.agent_config)
        self._seconds = 0.0  # wall-clock time of earlier parts of the run
        self._last_return = float("nan")
        self._evaluated: dict[str, float] = {}  # the newest evaluation, until it has a row
        self._extra: dict[str, float] = {}  # that at the end, if it is due at no interval

    def restore(
        self, snapshots: Snapshots, unfinished: Unfinished, evaluation: PeriodicEvaluation
    ) -> str:
        """Restores the newest snapshot, or raises `ValueError`; a sentence about it."""
        self._seconds = resuming.restore(self._loop, snapshots, unfinished)
        if unfinished.outputs is not None:
            self._evaluated, evaluation.next, self._last_return = unfinished.outputs
        return unfinished.describe(self._loop.counters.steps)

    def run(
        self,
        table: MetricsTable,
        evaluation: PeriodicEvaluation,
        logger: MetricsLogger,
        log: logging.Logger,
        stop: threading.Event,
        *,
        plain: bool,
    ) -> Summary:
        """Runs to the last step, or until a stop is requested; leaves a snapshot either way."""
        config, loop = self._config, self._loop
        steps, log_every, snapshot_every = config.schedule
        self._started = time.perf_counter() - self._seconds
        next_log = next_multiple(loop.flushed_at, log_every)
        seconds = config.snapshot_seconds
        interval = SnapshotInterval(loop.counters.steps, every=snapshot_every, seconds=seconds)
        with contextlib.ExitStack() as stack:
            snapshots = Snapshots(self._directory, keep=config.keep_snapshots)
            stack.enter_context(contextlib.closing(snapshots))
            snapshots.remove_newer(loop.counters.steps)
            progress = Progress(steps, loop.counters, plain=plain)
            stack.enter_context(progress)
            write_row = functools.partial(self._write_row, table, progress, logger, log)
            keep = functools.partial(self._keep, write_row, snapshots)
            stack.enter_context(kept_on_failure(loop, keep))
            expectation = Expectation(steps, loop.counters)
            loop.start()
            while True:  # a stopped run is resumed in the middle of a round
                evaluated, is_best = self._evaluate(evaluation, snapshots, log, stop)
                if stop.is_set():
                    break
                if loop.counters.steps >= next_log and not self._extra:
                    write_row()
                    next_log = next_multiple(loop.counters.steps, log_every)
                    if stop.is_set():  # a logger has asked for it
                        break
                at_end = loop.counters.steps >= steps
                if is_best or (interval.is_due(loop.counters.steps) and not at_end):
                    took = self._save(snapshots, self._unfinished(evaluation), evaluated)
                    interval.saved(loop.counters.steps, took=took)
                if at_end:
                    break
                loop.advance(min(steps, next_log, interval.next, evaluation.next or steps))
                elapsed = time.perf_counter() - self._started
                if line := expectation.line(loop.counters, looped=loop.seconds, elapsed=elapsed):
                    log.info(line)
            keep(self._unfinished(evaluation), evaluated)
            best = snapshots.best()
        interrupted = stop.is_set() and loop.counters.steps < steps
        seconds = time.perf_counter() - self._started
        log.info(ending(loop.counters, seconds, self._last_return, interrupted=interrupted))
        counted = loop.counters.steps, loop.counters.updates, self._last_return
        return Summary(self._directory, *counted, interrupted, best[1] if best else math.nan)

    def _evaluate(
        self,
        evaluation: PeriodicEvaluation,
        snapshots: Snapshots,
        log: logging.Logger,
        stop: threading.Event,
    ) -> tuple[float | None, bool]:
        """An evaluation if one is due: its return, and whether that is the best so far."""
        steps, loop = self._loop.counters.steps, self._loop
        if not evaluation.is_due(steps):
            return None, False
        awaiting = self._extra if steps < evaluation.next else self._evaluated
        means = evaluation.run(steps, loop.learner.params, loop.actor_states, stop)
        if not means:
            return None, False
        found, best = means["evaluation_return"], snapshots.best()
        awaiting.update(means)
        is_best = found >= (-math.inf if best is None else best[1])
        log.info(
            f"Evaluation at {steps} steps: return {found:.3g} over "
            f"{self._config.evaluation_episodes} episodes{', the best so far' * is_best}."
        )
        return found, is_best

    def _write_row(
        self, table: MetricsTable, progress: Progress, logger: MetricsLogger, log: logging.Logger
    ) -> None:
        means, clock = self._loop.flush()
        clock["seconds"] = time.perf_counter() - self._started
        found = {**means, **self._evaluated, **self._extra}
        logger.write(self._loop.counters.steps, table.write(self._loop.counters, found, clock))
        self._evaluated = {}
        self._last_return = means.get("episode_return", self._last_return)
        if line := progress.show(self._loop.counters, self._last_return, clock):
            log.info(line, extra={FILE_ONLY: progress.has_bar})
        if advice := self._advice.first(means):
            log.warning(advice)

    def _unfinished(self, evaluation: PeriodicEvaluation) -> bytes:
        return resuming.pack_unfinished(
            self._loop, [self._evaluated, evaluation.next, self._last_return]
        )

    def _keep(
        self,
        write_row: Callable[[], None],
        snapshots: Snapshots,
        unfinished: bytes | None = None,
        evaluated: float | None = None,
    ) -> None:
        """Writes what the last steps add: a row and a snapshot.

        `unfinished` was packed before the row: a resumed run replaces it by that of the whole
        interval. Without it, as after a failure, a resumed run begins new episodes.
        """
        if self._loop.has_new_steps:
            write_row()
        self._save(snapshots, unfinished, evaluated)

    def _save(
        self, snapshots: Snapshots, unfinished: bytes | None, evaluated: float | None
    ) -> float:
        """Saves a snapshot, unless there is one of this step; the seconds that it took."""
        steps, began = self._loop.counters.steps, time.perf_counter()
        if steps in snapshots.steps():
            return 0.0
        snapshot = self._loop.snapshot()
        counters = {**snapshot.counters, "seconds": time.perf_counter() - self._started}
        snapshot = snapshot._replace(counters=counters, unfinished=unfinished)
        snapshots.save(steps, snapshot, evaluation_return=evaluated)
        return time.perf_counter() - began
