"""One run with all its files, from its start to its end: metrics, log, snapshots."""

import contextlib
import contextvars
import math
import threading
import time
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from ..agents.base import Agent
from ..basics.sentences import first_line
from ..datatypes import EnvironmentSpec, VectorEnvironment
from ..evaluation.evaluations import PeriodicEvaluation
from ..training.config_file import check_new_directory, write_config
from ..training.directory_lock import DirectoryLock
from ..training.log import FILE_ONLY, close_log, setup_log
from ..training.loop import Loop
from ..training.metrics import Advice, EqualReturns, episode_columns, next_multiple
from ..training.metrics_logger import MetricsLogger
from ..training.metrics_writer import MetricsTable
from ..training.other_states import BestParameters, check_states
from ..training.run_config import RunConfig
from ..training.snapshots import SnapshotInterval, Snapshots, newest_snapshot
from ..training.stop import EitherStop
from . import resuming
from .progress import Progress, describe, ending
from .resuming import open_snapshots


class RunFailedError(RuntimeError):
    """A run that failed after its start; the message says where and why."""


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


class Run:
    """The loop of a run with its outputs. The methods are called in their order.

    Attributes:
      config: resolved by `check`.
      context: in which its log is known.
      continuation: from the snapshot from which it is resumed.
    """

    def __init__(
        self, config: RunConfig, directory: Path, *, resume: bool, stack: contextlib.ExitStack
    ):
        """Reads what a resumed run needs; writes nothing."""
        self.config, self._directory = config.anchored(), directory.absolute()
        self.context, self._resume = contextvars.copy_context(), resume
        self._lock = stack.enter_context(DirectoryLock(self._directory))
        found = open_snapshots(self._directory, config.steps) if resume else (None, list[str]())
        self._snapshots, self._notes = found
        self._resumed_at = self._snapshots.newest_whole() if self._snapshots else None
        check_states(self._directory)
        self.continuation = resuming.read_continuation(self._snapshots)
        self._best = BestParameters(self._directory)
        self._seconds = 0.0  # wall-clock time of earlier parts of the run
        self._last_return = float("nan")
        self._evaluated: dict[str, float] = {}  # the newest evaluation, until it has a row
        self._extra: dict[str, float] = {}  # that at the end, if it is due at no interval

    def make_environments(self) -> list[VectorEnvironment]:
        """Those of each actor."""
        environments, self.continuation = resuming.environments_of(
            self.config, self._resumed_at, self.continuation
        )
        return environments

    def check(self, spec: EnvironmentSpec) -> None:
        """Resolves the config, and refuses a directory of another run."""
        self.config, self._spec = self.config.resolve(spec), spec
        if not self._resume:
            check_new_directory(self._directory, self.config)

    def restore(self, loop: Loop, agent: Agent) -> None:
        """Locks the directory, and takes a loop at its beginning, which continues if it has to."""
        self._lock.acquire()
        self._loop, self._advice = loop, Advice(self.config.entry, self.config.agent_config)
        self._equal = EqualReturns(self.config.schedule[0], start=self._resumed_at or 0)
        self._evaluation = PeriodicEvaluation(self.config, agent, start=self._resumed_at or 0)
        if self._snapshots:
            self._seconds = resuming.restore(loop, self._snapshots, self.continuation)
            if (outputs := self.continuation.outputs) is not None:
                self._evaluated, self._evaluation.next, self._last_return = outputs

    def open(self, stack: contextlib.ExitStack, *, console: bool) -> None:
        """Writes the first files; the console has the log, too, if it is free."""
        loop, directory, config = self._loop, self._directory, self.config
        names = [*episode_columns(config.entry), *loop.learner.metric_names]
        names += self._evaluation.columns
        if not self._resume:
            write_config(directory, config)  # first: what a kill leaves can be resumed
        self._log = setup_log(directory, console=console)
        stack.callback(self.context.run, close_log, self._log)
        resumed_at = loop.flushed_at if self._resume else None
        self._table = MetricsTable(directory, names, resumed_at=resumed_at)
        stack.callback(self._table.close)
        for note in self._notes:
            self._log.warning(note)
        write_config(directory, config)
        if self._snapshots is None:
            self._best.forget()  # that of a run that was stopped before its first snapshot

    def begin(
        self,
        stack: contextlib.ExitStack,
        stop: threading.Event,
        on_metrics: Callable[[int, dict[str, float]], Any] | None,
    ) -> None:
        """Describes the run, and gives it to its loggers, which may stop it alone."""
        for line in describe(self.config, self._directory, self._loop.replays, self._spec):
            self._log.info(line)
        if self._snapshots:
            self._log.info(self.continuation.describe(self._loop.counters.steps))
        self._stop = EitherStop(stop)
        self._logger = MetricsLogger(self.config, self._directory, on_metrics, stop=self._stop)
        self._logger.__enter__()
        stack.push(lambda *error: self.context.run(self._logger.__exit__, *error))

    def run(self, *, plain: bool) -> Generator[None, None, Summary]:
        """Runs to the last step, or until a stop is requested; leaves a snapshot either way.

        Pauses before each `Loop.advance`, which it has announced.

        Raises:
          RunFailedError: see `train`.
        """
        loop, stop, steps = self._loop, self._stop, self.config.schedule[0]
        self._started = time.perf_counter() - self._seconds
        try:
            self._kept = Snapshots(self._directory, keep=self.config.keep_snapshots)
            self._kept.remove_newer(loop.counters.steps)
            self._progress = Progress(steps, loop.counters, plain=plain)
            with self._progress, self._kept_on_failure():
                yield from self._steps()
                self._keep(self._continuation())
        except (Exception, SystemExit) as error:
            self._log.exception("The run failed.")
            raise RunFailedError(self._failure(error)) from error
        interrupted = stop.is_set() and loop.counters.steps < steps
        seconds = time.perf_counter() - self._started
        self._log.info(ending(loop.counters, seconds, self._last_return, interrupted=interrupted))
        counted = loop.counters.steps, loop.counters.updates, self._last_return
        return Summary(self._directory, *counted, interrupted, self._best.mean_return)

    def _steps(self) -> Iterator[None]:
        config, loop, evaluation, stop = self.config, self._loop, self._evaluation, self._stop
        steps, log_every, snapshot_every = config.schedule
        next_log = next_multiple(loop.flushed_at, log_every)
        seconds = config.snapshot_seconds
        interval = SnapshotInterval(loop.counters.steps, every=snapshot_every, seconds=seconds)
        loop.start()
        while True:  # a stopped run is resumed in the middle of a round
            self._evaluate()
            if stop.is_set():
                return
            if loop.counters.steps >= next_log and not self._extra:
                self._write_row()
                next_log = next_multiple(loop.counters.steps, log_every)
                if stop.is_set():  # a logger has asked for it
                    return
            if loop.counters.steps >= steps:
                return
            if interval.is_due(loop.counters.steps):
                interval.saved(loop.counters.steps, took=self._save(self._continuation()))
            until = min(steps, next_log, interval.next, evaluation.next or steps)
            loop.announce(until)
            yield
            loop.advance(until)
            elapsed = time.perf_counter() - self._started
            line = self._progress.expect(loop.counters, looped=loop.seconds, elapsed=elapsed)
            if line:
                self._log.info(line)

    @contextlib.contextmanager
    def _kept_on_failure(self) -> Iterator[None]:
        """Keeps the state of a run that fails where it is consistent: in an environment."""
        try:
            yield
        except (Exception, SystemExit):
            if self._loop.is_consistent:
                with contextlib.suppress(Exception):  # the first error explains the failure
                    self._keep(None)
            raise

    def _failure(self, error: BaseException) -> str:
        """Where and why the run failed, and how to continue."""
        reason = first_line(error).rstrip(".")
        if isinstance(error, SystemExit):
            reason = f"the environment or the agent called sys.exit({error.code!r})"
        directory = self._directory
        kept = newest_snapshot(directory)
        advice = f"; retrax train --resume {directory} continues at {kept} steps"
        return (
            f"The run failed at {self._loop.counters.steps} steps: {reason} (traceback in "
            f"{directory / 'log.txt'}){'' if kept is None else advice}."
        )

    def _evaluate(self) -> None:
        """An evaluation if one is due; keeps the best parameters."""
        steps, loop, evaluation = self._loop.counters.steps, self._loop, self._evaluation
        if not evaluation.is_due(steps):
            return
        awaiting = self._extra if steps < evaluation.next else self._evaluated
        params = loop.learner.params
        actors = loop.actor_states() if self.config.entry.warm_start else None
        means = evaluation.run(steps, params, actors, self._stop)
        if not means:
            return
        awaiting.update(means)
        found = means["evaluation_return"]
        is_best = self._best.offer(params, mean_return=found, steps=steps, actors=actors)
        self._log.info(
            f"Evaluation at {steps} steps: return {found:.3g} over "
            f"{self.config.evaluation_episodes} episodes{', the best so far' * is_best}."
        )

    def _write_row(self) -> None:
        sentence = self._equal.sentence(self._loop.counters.steps, self._loop.returns)
        means, clock = self._loop.flush()
        clock["seconds"] = time.perf_counter() - self._started
        found = {**means, **self._evaluated, **self._extra}
        row = self._table.write(self._loop.counters, found, clock)
        self._logger.write(self._loop.counters.steps, row)
        self._evaluated = {}
        self._last_return = means.get("episode_return", self._last_return)
        if line := self._progress.show(self._loop.counters, self._last_return, clock):
            self._log.info(line, extra={FILE_ONLY: self._progress.has_bar})
        if advice := self._advice.first(means):
            self._log.warning(advice)
        if sentence:
            self._log.warning(sentence)

    def _continuation(self) -> bytes:
        outputs = [self._evaluated, self._evaluation.next, self._last_return]
        return resuming.pack_continuation(self._loop, outputs)

    def _keep(self, continuation: bytes | None) -> None:
        """Writes what the last steps add: a row and a snapshot.

        `continuation` was packed before the row: a resumed run replaces it by that of the whole
        interval. Where it is None, as after a failure, a resumed run begins new episodes.
        """
        if self._loop.has_new_steps:
            self._write_row()
        self._save(continuation)

    def _save(self, continuation: bytes | None) -> float:
        """Saves a snapshot, unless there is one of this step; the seconds that it took."""
        steps, began = self._loop.counters.steps, time.perf_counter()
        if steps in self._kept.steps():
            return 0.0
        snapshot = self._loop.snapshot()
        counters = {**snapshot.counters, "seconds": time.perf_counter() - self._started}
        self._kept.save(steps, snapshot._replace(counters=counters, running=continuation))
        return time.perf_counter() - began
