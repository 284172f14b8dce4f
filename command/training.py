"""Training in one process: one run, or several that are computed together on a device."""

import contextlib
import contextvars
import dataclasses
import logging
import math
import sysconfig
import threading
import time
import traceback
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ..agents.base import Agent
from ..basics.sentences import first_line, reason, typed
from ..datatypes import EnvironmentSpec, VectorEnvironment
from ..environments.failures import RefusedError, close_quietly
from ..evaluation.arguments import checked
from ..evaluation.evaluations import PeriodicEvaluation
from ..training import assembly, process
from ..training.assembly import Start
from ..training.loop import Loop
from ..training.recorder import Progress, Recorder, describe
from ..training.run_config import RunConfig, check_directory, new_directory, write_config
from ..training.snapshots import SnapshotInterval, Snapshots

if TYPE_CHECKING:
    from ..device.loop import DeviceLoop

_log = logging.getLogger("retrax")
_PACKAGE = str(Path(__file__).parents[1])
_LIBRARIES = (_PACKAGE, "<", *sysconfig.get_paths().values())


class RunFailedError(RuntimeError):
    """A run that failed after its start; the message says where and why."""


class Summary(NamedTuple):
    """How a run ended; steps and updates include its earlier parts, returns are means or NaN."""

    directory: Path
    steps: int  # transitions taken
    updates: int  # of the learner
    last_return: float  # of the last row of metrics.csv in which an episode ended
    interrupted: bool  # before its last step, by a signal or by `on_metrics`
    best_evaluation: float = math.nan  # whose parameters are the snapshot `best`


_Part = Generator[None, None, Summary]  # a run, see `_run`


@checked
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
      resume: continue from the newest whole snapshot; start from the beginning if there is none.
      plain: log lines instead of a progress bar.
      environment: `config.num_envs` environments of the id of the config, closed at the end; made
        if None. See `environments.factory.as_vector`. For one actor, and not with `resume`.
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
    if resume and directory is None:
        raise ValueError("directory must be the run's if resume is True, got None.")
    if on_metrics is not None and not callable(on_metrics):
        raise ValueError(f"on_metrics must be a function of steps and metrics, got {on_metrics!r}.")
    environment = assembly.given_environments(environment, config, resume)
    if environment is not None and config.evaluate_every is None:
        config = dataclasses.replace(config, evaluate_every=0)  # one like it may not exist
    runs = {Path(directory or new_directory(config)): config}
    given: dict[str, Any] = {"environment": environment, "data": data, "on_metrics": on_metrics}
    (summary,), is_signalled = train_together(runs, resume=resume, plain=plain, **given)
    if raise_interrupt and is_signalled:
        raise KeyboardInterrupt
    return summary


@contextlib.contextmanager
def own_code(config: RunConfig) -> Iterator[None]:
    """A ValueError names the line of a user's file that made an agent fail, or was given to it."""
    try:
        yield
    except (Exception, SystemExit) as error:
        frames = traceback.extract_tb(error.__traceback__)
        given = getattr(config.entry.make_agent, "keywords", {})
        is_ours = frames[-1].filename.startswith(_PACKAGE)
        if is_ours and isinstance(error, (ValueError, ImportError, OSError)):
            said = str(error).rstrip(".")  # a sentence about its cause, or about the config
            given = given if error.__cause__ else {}
            frames = traceback.extract_tb((error.__cause__ or error).__traceback__)
        elif isinstance(error, SystemExit):
            said = f"{config.agent} called sys.exit({error.code!r})"
        else:
            said = f"{config.agent} fails: {reason(error)}"
        lines = [(x.filename, x.lineno) for x in frames if not x.filename.startswith(_LIBRARIES)]
        codes = [x.__code__ for x in given.values() if hasattr(x, "__code__")]
        lines = lines or [(code.co_filename, code.co_firstlineno) for code in codes]
        if not lines and not given:
            raise
        where = f" ({lines[-1][0]}, line {lines[-1][1]})" if lines else ""
        raise ValueError(f"{said}{where}.") from error


def train_together(
    runs: Mapping[Path, RunConfig],
    *,
    resume: bool = False,
    plain: bool = False,
    environment: VectorEnvironment | None = None,
    data: Iterable[Any] | None = None,
    on_metrics: Callable[[int, dict[str, float]], Any] | None = None,
) -> tuple[list[Summary], bool]:
    """`train` for one run, or for several on a device that differ in their seeds alone.

    The console shows the first; one that fails does not end the others. The last three arguments
    are for one run. Returns how each ended, and whether a signal stopped them.
    """
    # Paths are absolute before an environment may change the working directory.
    configs = {directory.absolute(): config.anchored() for directory, config in runs.items()}
    with contextlib.ExitStack() as stack:
        locks = [stack.enter_context(process.DirectoryLock(directory)) for directory in configs]
        starts = [Start.resumed(*run) if resume else Start() for run in configs.items()]
        with contextlib.ExitStack() as on_error:
            config, *_ = configs.values()
            environments = [environment] if environment else []
            if not environments:
                environments, starts[0] = assembly.environments_at(config, starts[0])
            for made in environments:
                on_error.callback(close_quietly, made)
            spec = environments[0].spec
            configs = {directory: config.resolve(spec) for directory, config in configs.items()}
            for directory, config in configs.items():
                check_directory(directory, config, resume=resume)
            config, *_ = configs.values()
            with own_code(config):
                agent = assembly.checked_agent(config, spec)
            loops: Sequence[Loop | DeviceLoop]
            if config.on_device and data is None:
                from ..device.loop import make_loops  # only here: most runs need none of it

                loops = make_loops([*configs.values()], agent, environments)
            else:
                loops = [assembly.make_loop(config, agent, environments, starts[0], data)]
            on_error.pop_all()
        stop = stack.enter_context(process.stop_on_signals(loops[0].doing))
        shared: dict[str, Any] = {"agent": agent, "spec": spec, "resume": resume, "plain": plain}
        shared |= {"from_data": data is not None, "on_metrics": on_metrics}
        parts: dict[_Part, contextvars.Context] = {}
        for directory, lock, start, loop in zip(configs, locks, starts, loops, strict=True):
            context = contextvars.copy_context()
            seeds = 0 if parts else len(configs)  # of which the console shows the first
            own: dict[str, Any] = {"stop": process.EitherStop(stop), "seeds": seeds}
            part = _run(configs[directory], directory, lock, start, loop, **own, **shared)
            parts[part] = context
            stack.callback(context.run, part.close)
        return in_turn(parts), stop.is_set()


def in_turn(parts: Mapping[_Part, contextvars.Context]) -> list[Summary]:
    """Runs all to their ends, each in its own context; a RunFailedError says which failed."""
    ended: dict[_Part, StopIteration | RunFailedError] = {}
    while len(ended) < len(parts):
        for part in [part for part in parts if part not in ended]:
            try:
                parts[part].run(next, part)
            except (StopIteration, RunFailedError) as end:
                ended[part] = end
    if failed := [end for end in ended.values() if isinstance(end, RunFailedError)]:
        raise RunFailedError(" ".join(map(str, failed))) if failed[1:] else failed[0]
    return [ended[part].value for part in parts]  # type: ignore[union-attr]


def _run(
    config: RunConfig,
    directory: Path,
    lock: process.DirectoryLock,
    start: Start,
    loop: "Loop | DeviceLoop",
    *,
    stop: threading.Event,
    seeds: int,
    agent: Agent,
    spec: EnvironmentSpec,
    resume: bool,
    plain: bool,
    from_data: bool,
    on_metrics: Callable[[int, dict[str, float]], Any] | None,
) -> _Part:
    """One run: pauses when its files are open, and before each `Loop.advance`; closes its loop.

    A ValueError before the first pause says that the snapshot or metrics.csv is of another run.
    """
    steps, _, snapshot_every = config.schedule
    evaluation = PeriodicEvaluation(config, agent, start=start.steps or 0)
    with contextlib.ExitStack() as stack:
        closing = stack.enter_context(contextlib.ExitStack())
        closing.callback(loop.close)
        lock.acquire()
        seconds = start.restore(loop)
        if not resume:
            check_directory(directory, config)  # again: another process may have run since
            write_config(directory, config)  # first: what a kill leaves can be resumed
        snapshots = Snapshots(directory, keep=config.keep_snapshots)
        stack.enter_context(process.run_log(directory, console=seeds > 0))
        stack.push(closing.pop_all())  # before the log
        recorder = Recorder(
            config,
            directory,
            [*loop.metric_names, *evaluation.columns],
            stop=stop,
            start=loop.counters,
            resumed_at=loop.flushed_at if resume else None,
            seconds=seconds,
            on_metrics=on_metrics,
            progress=Progress(steps, loop.counters, plain=plain or not seeds, seeds=seeds or 1),
        )
        stack.callback(recorder.close)
        for note in start.notes:
            _log.warning(note)
        write_config(directory, config)
        if start.snapshots is None:
            recorder.best.forget()  # from a run that was stopped before its first snapshot
        if start.outputs is not None:
            recorder.evaluation, evaluation.next, recorder.last_return = start.outputs
        yield
        for line in describe(config, directory, loop.replays, spec, from_data=from_data):
            _log.info(line)
        if start.snapshots is not None:
            _log.info(start.describe(loop.counters.steps))
        at, seconds = loop.counters.steps, config.snapshot_seconds
        interval = SnapshotInterval(at, every=snapshot_every, seconds=seconds)

        def write_row() -> None:
            returns = loop.returns
            recorder.write(loop.counters, *loop.flush(), returns)

        def running() -> bytes:
            found = [recorder.evaluation, evaluation.next, recorder.last_return]
            return assembly.pack_running(loop, found)

        def save(running: bytes | None) -> None:
            at, began = loop.counters.steps, time.perf_counter()
            if at not in snapshots.steps():
                snapshot = loop.snapshot()
                counters = {**snapshot.counters, "seconds": recorder.seconds}
                snapshots.save(at, snapshot._replace(counters=counters, running=running))
            interval.saved(at, took=time.perf_counter() - began)

        def save_last(running: bytes | None) -> None:
            """Writes a row, too. `running` lacks it: a resumed run writes the whole interval's."""
            if loop.counters.steps > loop.flushed_at:
                write_row()
            save(running)

        try:
            snapshots.remove_newer(loop.counters.steps)
            with recorder.begin():
                try:
                    while True:  # a stopped run is resumed in the middle of a round
                        at = loop.counters.steps
                        if evaluation.is_due(at):
                            params, is_extra = loop.params, at < evaluation.next
                            actors = loop.actor_states() if config.entry.warm_start else None
                            means = evaluation.run(at, params, actors, stop)
                            if means or not stop.is_set():
                                recorder.evaluated(means, at, params, actors, is_extra=is_extra)
                        if at >= recorder.next_row and not (recorder.extra or stop.is_set()):
                            write_row()
                        if stop.is_set() or at >= steps:  # a logger may have asked for it
                            break
                        if interval.is_due(at):
                            save(running())
                        due = recorder.next_row, interval.next, evaluation.next or steps
                        loop.until = min(steps, *due)
                        yield
                        loop.advance()
                    save_last(running())
                except (Exception, SystemExit, KeyboardInterrupt) as error:
                    if isinstance(error, process.StopAtOnceError) or not loop.is_consistent:
                        raise
                    with contextlib.suppress(Exception):  # the first error says more
                        save_last(None)
                    is_stop = isinstance(error, KeyboardInterrupt)
                    if isinstance(error, RefusedError | EOFError | ConnectionError):
                        time.sleep(0.5)  # a signal may reach environments' processes first
                        is_stop = stop.is_set()
                    if not is_stop:
                        raise
                    stop.set()
        except (Exception, SystemExit) as error:
            _log.exception("The run failed.")
            why = first_line(error).rstrip(".")
            if isinstance(error, SystemExit):
                why = f"the environment or the agent called sys.exit({error.code!r})"
            *_, kept = [None, *snapshots.steps()]
            again = f"; {typed('train', '--resume', directory)} continues at {kept} steps"
            raise RunFailedError(
                f"The run failed at {loop.counters.steps} steps: {why} (traceback in "
                f"{directory / 'log.txt'}){'' if kept is None else again}."
            ) from error
        interrupted = stop.is_set() and loop.counters.steps < steps
        recorder.end(loop.counters, interrupted=interrupted)
        counted = loop.counters.steps, loop.counters.updates, recorder.last_return
        return Summary(directory, *counted, interrupted, recorder.best.mean_return)
