"""What a run writes for its user: rows of metrics, log lines, loggers, the best parameters."""

import contextlib
import csv
import dataclasses
import json
import logging
import math
import os
import socket
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, TextColumn
from rich.progress import Progress as Bar

from ..agents.base import ActorState, Params
from ..basics.files import replacing, writing
from ..basics.sentences import reason
from ..datatypes import EnvironmentSpec
from ..replay.interface import REAL, Clock, RowStore
from .learner import Counters
from .process import FILE_ONLY
from .run_config import RunConfig, next_multiple, values_of
from .snapshots import BestParameters

with warnings.catch_warnings():
    # TensorBoard 2.8, the newest beside Acme's TensorFlow, reads np.bool8 while it is imported.
    warnings.filterwarnings("ignore", message=".*np.bool8", category=DeprecationWarning)
    from tensorboard.compat.proto import event_pb2, summary_pb2
    from tensorboard.plugins.hparams.summary_v2 import hparams_pb
    from tensorboard.summary.writer.record_writer import RecordWriter


_EQUAL_EPISODES = 20  # fewer may have the same return by chance
_ENDLESS_STEPS = 5000  # without an end of an episode
_LINE_SECONDS = 10.0  # minimum time between log lines
_BAR_LETTERS = 20  # of a notebook's bar
_FAILED = object()  # in place of what a logger's function returns
# Columns that differ between two runs of the same command; all others are equal bit for bit.
WALL_CLOCK_COLUMNS = (
    "seconds",
    "acting_steps_per_second",
    "learning_updates_per_second",
    "steps_per_second",
)
_log = logging.getLogger("retrax")
_EVENTS_PREFIX = "events.out.tfevents."


class MetricsTable:
    """The rows of a run: counters, episodes, an agent's metrics, rates.

    Rows go to `metrics.csv` and TensorBoard, and are on the disk when `write` returns. Numbers have
    the shortest form that float32 reads back, so that equal runs give equal files. NaN is no value.
    """

    def __init__(self, directory: Path, names: Sequence[str], *, resumed_at: int | None):
        """Starts new metrics, or continues a resumed run's, without later rows.

        Of a resumed run, damaged rows are removed, and a missing file is started again; the log
        says so. `names` are of the columns between the counters and the rates. A ValueError, before
        anything is changed, says that the names or the columns of the file do not fit.
        """
        counters = [field.name for field in dataclasses.fields(Counters)]
        self._columns = [*counters, "episode_return", "episode_length", *names, *WALL_CLOCK_COLUMNS]
        if odd := [name for name in names if not name.isprintable()]:
            raise ValueError(f"Columns of metrics must have printable names, got {odd}.")
        if twice := {name for name in self._columns if self._columns.count(name) > 1}:
            raise ValueError(f"Columns of metrics must have different names, got {sorted(twice)}.")
        self._path = path = Path(directory) / "metrics.csv"
        self.newest: int | None = None  # steps of the newest row
        if resumed_at is not None:
            self.newest = _repair(path, self._columns, resumed_at)
        elif path.exists():
            raise ValueError(f"{path} exists already: resume its run, or use another directory.")
        path.parent.mkdir(parents=True, exist_ok=True)
        self._csv = path.open("a", encoding="utf-8", newline="")
        self._events = _EventFile(path.parent)
        if resumed_at is None:
            self._write_line(self._columns)
        else:
            self._events.forget(resumed_at + 1)
        config = path.with_name("config.json")
        if config.is_file():
            with writing(self._events.path):
                self._events.describe(flat(json.loads(config.read_text("utf-8"))))

    def write(
        self, counters: Counters, means: Mapping[str, float], clock: Mapping[str, float]
    ) -> dict[str, float]:
        """Writes the values that have a column; returns those, without `steps`.

        An OSError names its file.
        """
        values = {**means, **clock, **dataclasses.asdict(counters)}
        row = [_number(values.get(name, math.nan)) for name in self._columns]
        self._write_line("" if np.isnan(value) else str(value) for value in row)
        given = zip(self._columns, row, strict=True)
        written = {name: float(value) for name, value in given if not np.isnan(value)}
        del written["steps"]
        self.newest = counters.steps
        with writing(self._events.path):
            self._events.add(counters.steps, written)
        return written

    def close(self) -> None:
        """Closes both files. Calling it twice does no harm."""
        for file in (self._csv, self._events):
            with contextlib.suppress(OSError):  # on a full disk, of a row that was not written
                file.close()

    def _write_line(self, cells: Iterable[str]) -> None:
        with writing(self._path):
            csv.writer(self._csv, lineterminator="\n").writerow(cells)
            self._csv.flush()


class _EventFile:
    """A new file of TensorBoard events; TensorBoard reads a directory's in the order of names."""

    def __init__(self, directory: Path) -> None:
        paths = directory.glob(f"{_EVENTS_PREFIX}*")
        used = [path.name.removeprefix(_EVENTS_PREFIX).split(".")[0] for path in paths]
        second = max([int(time.time()), *(int(word) + 1 for word in used if word.isdigit())])
        name = f"{_EVENTS_PREFIX}{second:010d}.{socket.gethostname()}.{os.getpid()}"
        self.path = directory / name
        self._records = RecordWriter(self.path.open("xb"))
        self._write(file_version="brain.Event:2")

    def add(self, steps: int, values: Mapping[str, float]) -> None:
        value = [summary_pb2.Summary.Value(tag=k, simple_value=v) for k, v in values.items()]
        self._write(step=steps, summary=summary_pb2.Summary(value=value))

    def describe(self, values: Mapping[str, bool | float | str]) -> None:
        self._write(summary=hparams_pb(dict(values)))

    def forget(self, steps: int) -> None:
        """Invalidates events of `steps` and later in earlier files."""
        start = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
        self._write(step=steps, session_log=start)

    def close(self) -> None:
        self._records.close()

    def _write(self, **fields: Any) -> None:
        event = event_pb2.Event(wall_time=time.time(), **fields)
        self._records.write(event.SerializeToString())
        self._records.flush()


def flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, bool | float | str]:
    """JSON values under names with dots; lists and nulls as text."""
    found: dict[str, bool | float | str] = {}
    for name, value in values.items():
        if isinstance(value, dict):
            found |= flat(value, f"{prefix}{name}.")
        else:
            is_text = value is None or isinstance(value, list)
            found[prefix + name] = json.dumps(value) if is_text else value
    return found


def _number(value: Any) -> Any:
    if isinstance(value, int | np.integer):
        return int(value)
    with np.errstate(over="ignore"):  # what float32 cannot hold becomes infinite
        return np.float32(value)


def _repair(path: Path, columns: Sequence[str], steps: int) -> int | None:
    """Keeps whole rows up to `steps`, and returns the steps of the newest.

    The file is replaced in one go, so that a kill loses nothing. Other engines of programs may have
    written fewer columns, or in another order.
    """
    data = path.read_bytes() if path.is_file() else b""
    # A spreadsheet may have written it, with a byte order mark and \r\n; the rows are the same.
    text = data.decode("utf-8", errors="replace").replace("\r\n", "\n")
    complete, _, _ = text.rpartition("\n")
    header, *lines = complete.split("\n")
    header = "".join(filter(str.isprintable, header))
    names = next(csv.reader([header])) if complete else list(columns)
    if "steps" not in names or not set(names) <= set(columns):
        raise ValueError(
            f"{path} has the columns {header[:200]}, but this run writes {','.join(columns)}: "
            "remove it to continue without its rows."
        )
    rows = [line.split(",") for line in lines]
    whole = [dict(zip(names, row, strict=True)) for row in rows if _is_whole(row, names)]
    kept = [[row.get(name, "") for name in columns] for row in whole if int(row["steps"]) <= steps]
    with replacing(path) as partial, partial.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([columns, *kept])
    if steps and not complete:
        _log.warning(f"{path} was missing or empty: a new one is started, without earlier rows.")
    elif len(whole) < len(rows):
        _log.warning(f"{path}: removed {len(rows) - len(whole)} damaged rows of {len(rows)}.")
    return int(kept[-1][columns.index("steps")]) if kept else None


def _is_whole(row: Sequence[str], columns: Sequence[str]) -> bool:
    try:
        numbers = [float(cell) for cell in row if cell]
        int(row[columns.index("steps")])
    except (ValueError, IndexError):
        return False
    return len(row) == len(columns) and bool(numbers)


def describe(
    config: RunConfig,
    directory: Path,
    replays: Sequence[RowStore],
    spec: EnvironmentSpec,
    *,
    from_data: bool,
) -> list[str]:
    """The first lines of a run's log."""
    rows, nbytes = sum(x.capacity for x in replays), sum(x.nbytes for x in replays)
    what = "replayed updates start" if config.replay.on_policy else "learning starts"
    learns = f"{what} at {config.replay.min_rows} rows"
    if from_data:
        learns = "each step is an update"
    return [
        f"{config.agent} on {config.environment}, preset {config.preset}, {config.steps} steps, "
        f"seed {config.seed}, {config.num_envs} environments, in {directory}",
        f"Replay: {rows} rows take {nbytes / 1e6:,.1f} MB when it is full; {learns}. "
        "The first steps and the first updates wait for compilation.",
        config.entry.describe_preset(config.environment, spec),
    ]


class Progress:
    """Shows steps, rates, return and remaining time."""

    def __init__(self, steps: int, start: Counters, *, plain: bool = False, seeds: int = 1):
        """Prepares the display of `seeds` runs, which continue at `start`; `plain` has no bar."""
        self.seeds, self._each = seeds, f" * {seeds} seeds" * (seeds > 1)
        self._steps, self._updates_before = steps, start.updates
        self._measured_from: tuple[float, int] | None = None
        self._last_line = time.perf_counter()
        console = Console(stderr=True)
        self._bar: Bar | None = None
        self._is_notebook, self._written = console.is_jupyter and not plain, 0
        if console.is_terminal and not plain:
            # The bar fills the width that the text leaves, which fits into 80 columns.
            text = TextColumn("{task.description}", markup=False)
            self._bar = Bar(text, BarColumn(bar_width=None), console=console, expand=True)
            self._task = self._bar.add_task("compiling", total=steps, completed=start.steps)

    @property
    def has_bar(self) -> bool:
        """Whether a bar is shown; log lines then need not go to the terminal."""
        return self._bar is not None or self._is_notebook

    def __enter__(self) -> "Progress":
        if self._bar:
            self._bar.start()
        self._write("compiling")
        return self

    def __exit__(self, *error: Any) -> None:
        if self._bar:
            self._bar.stop()
        self._write("", end="\n")

    def show(self, counters: Counters, returns: str, clock: Mapping[str, float]) -> str:
        """Updates the bar; returns a log line, or "" if the previous one is recent."""
        now = time.perf_counter()
        steps = f"{counters.steps}/{self._steps} steps{self._each}"
        acting, learning, speed = (self.seeds * clock[name] for name in WALL_CLOCK_COLUMNS[1:])
        eta = self._eta(counters, now)
        text = f"{steps}, {speed:.0f}/s, ETA {eta}, {returns}"
        if self._bar is not None:
            self._bar.update(self._task, description=text, completed=counters.steps)
        filled = "#" * (_BAR_LETTERS * counters.steps // self._steps)
        self._write(f"[{filled:.<{_BAR_LETTERS}}] {text}")
        if now - self._last_line < _LINE_SECONDS and counters.steps < self._steps:
            return ""
        self._last_line = now
        return (
            f"{steps} | {speed:.0f} steps/s (acting {acting:.0f} steps/s, learning "
            f"{rate(learning)} updates/s) | {counters.updates} updates | {returns} | ETA {eta}"
        )

    def _write(self, text: str, end: str = "") -> None:
        """Replaces the line of a notebook, which has no terminal's bars."""
        if self._is_notebook:
            sys.stdout.write(f"\r{text:<{self._written}}" * bool(text) + end)
            sys.stdout.flush()
            self._written = len(text)

    def _eta(self, counters: Counters, now: float) -> str:
        """By the speed since updates were first seen: acting alone is faster, compiling slower."""
        left = max(self._steps - counters.steps, 0)
        if self._measured_from is None and counters.updates > self._updates_before:
            self._measured_from = now, counters.steps
        since, steps = self._measured_from or (now, counters.steps)
        if left and counters.steps == steps:
            return "-"
        return str(timedelta(seconds=round((now - since) * left / max(counters.steps - steps, 1))))


def shown_returns(exploring: float, greedy: float) -> str:
    """Returns of training and of the newest evaluation; NaN: there is none."""
    found = {"exploring": exploring, "greedy": greedy}
    words = [f"{value:.3g} ({how})" for how, value in found.items() if not math.isnan(value)]
    return f"return {', '.join(words) or '-'}"


def rate(value: float) -> str:
    """Formats a rate, with one decimal below 10; NaN (no updates) is 0."""
    return "0" if math.isnan(value) else f"{value:.0f}" if value >= 10 else f"{value:.1f}"


class MetricsLogger(contextlib.AbstractContextManager["MetricsLogger"]):
    """Calls `RunConfig.logger` and another function with each row. Their errors end no run.

    A function takes the steps, and a dictionary from column to number. If it returns True or raises
    SystemExit, the run is stopped, with a snapshot. An object may have two methods besides:
    `begin(config, directory)`, called before the first row with the fields of config.json, nested
    ones under names with dots; and `close()`, called at the end of the run. One that does not begin
    gets neither rows nor `close`. Of several errors the first is logged.
    """

    def __init__(
        self,
        config: RunConfig,
        directory: Path,
        on_metrics: Callable[[int, dict[str, float]], Any] | None = None,
        *,
        stop: threading.Event,
    ):
        """`stop` is set where the run must be stopped."""
        self._values, self._directory, self._stop = flat(values_of(config)), directory, stop
        self._has_failed = False
        found = [each for each in (config.find_logger(), on_metrics) if each is not None]
        made = [self._call(each) if isinstance(each, type) else each for each in found]
        self._functions = [each for each in made if each is not _FAILED]

    def __enter__(self) -> "MetricsLogger":
        for each in list(self._functions):
            begin = getattr(each, "begin", lambda *_: None)
            if self._call(begin, self._values, self._directory) is _FAILED:
                self._functions.remove(each)
        return self

    def __exit__(self, *error: object) -> None:
        for each in self._functions:
            if hasattr(each, "close"):
                self._call(each.close)

    def write(self, steps: int, row: Mapping[str, float]) -> None:
        """Gives a row to all functions."""
        for each in self._functions:
            answer = self._call(each, steps, dict(row))
            if isinstance(answer, bool | np.bool_) and answer:  # trackers may return anything else
                self._stop.set()

    def _call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return function(*arguments)
        except SystemExit:  # as Ray Tune ends a trial
            self._stop.set()
        except Exception as error:
            if not self._has_failed:
                self._has_failed = True
                _log.warning(
                    f"A logger of metrics failed ({reason(error)}). The run continues; further "
                    "errors of loggers are not logged."
                )
                _log.warning("Its traceback:", exc_info=True)  # to the file alone
        return _FAILED


class Recorder(contextlib.ExitStack):
    """Receives what happens in a run, whatever executes it, and writes what its user sees of it.

    Rows go to metrics.csv, TensorBoard and the user's loggers, one of which may stop the run. What
    they show to be wrong is a warning in the log `retrax`, once.
    """

    def __init__(
        self,
        config: RunConfig,
        directory: Path,
        names: Sequence[str],
        *,
        stop: threading.Event,
        start: Counters,
        resumed_at: int | None = None,
        seconds: float = 0.0,
        on_metrics: Callable[[int, dict[str, float]], Any] | None = None,
        progress: Progress | None = None,
        clock: Clock = REAL,
    ):
        """Opens metrics.csv, see `MetricsTable`; `close` closes it.

        `start` are the counters of the run now, `seconds` those that earlier parts took.
        `on_metrics` gets each row, as `config.logger` does, and either may set `stop`.
        """
        super().__init__()
        self._config, self._progress = config, progress
        self._clock, self._started = clock, clock.monotonic() - seconds
        self._advise = config.entry.advice
        self._equal = EqualReturns(config.schedule[0], start=start.steps)
        self.evaluation: dict[str, float] = {}  # the newest, until a row has it
        self.extra: dict[str, float] = {}  # of the last row, which a run that continues drops
        self.last_return, self.greedy, self.best = math.nan, math.nan, BestParameters(directory)
        flushed_at = start.steps if resumed_at is None else resumed_at
        self.next_row = next_multiple(flushed_at, config.schedule[1])
        columns = [*(f"episode_{name}" for name in config.entry.episode_metrics), *names]
        self._table = MetricsTable(directory, columns, resumed_at=resumed_at)
        self.callback(self._table.close)
        self._logger = MetricsLogger(config, directory, on_metrics, stop=stop)
        self._parts = [part for part in (self._logger, progress) if part]  # not entered

    def begin(self) -> "Recorder":
        """Begins the loggers and shows the progress, in this thread, unless it was done."""
        while self._parts:
            self.enter_context(self._parts.pop(0))
        return self

    @property
    def newest_row(self) -> int | None:
        """Steps of the newest row of metrics.csv."""
        return self._table.newest

    @property
    def seconds(self) -> float:
        """Wall-clock time of the run, earlier parts included."""
        return self._clock.monotonic() - self._started

    def evaluated(
        self,
        means: Mapping[str, float],
        steps: int,
        params: Params,
        actors: ActorState = None,
        *,
        is_extra: bool = False,
    ) -> None:
        """An evaluation ended: the next row has it, and its parameters are kept if they are best.

        One that `is_extra`, since the run ends before the next is due, is in the last row only.
        Without `means` it has no result, and the one before is no longer shown.
        """
        (self.extra if is_extra else self.evaluation).update(means)
        self.greedy = means.get("evaluation_return", math.nan)
        if not means:
            return
        is_best = self.best.offer(params, mean_return=self.greedy, steps=steps, actors=actors)
        _log.info(
            f"Evaluation at {steps} steps: return {self.greedy:.3g} over "
            f"{self._config.evaluation_episodes} episodes{', the best so far' * is_best}."
        )

    def write(
        self,
        counters: Counters,
        means: Mapping[str, float],
        clock: Mapping[str, float],
        returns: Sequence[float] = (),
    ) -> None:
        """Writes a row: `means`, `returns` and the rates of `clock` are since the row before."""
        self.begin()
        clock = {**clock, "seconds": self.seconds}
        row = self._table.write(counters, {**means, **self.evaluation, **self.extra}, clock)
        self._logger.write(counters.steps, row)
        self.evaluation = {}
        self.last_return = means.get("episode_return", self.last_return)
        self.next_row = next_multiple(counters.steps, self._config.schedule[1])
        shown = shown_returns(self.last_return, self.greedy)
        if self._progress and (line := self._progress.show(counters, shown, clock)):
            _log.info(line, extra={FILE_ONLY: self._progress.has_bar})
        if self._advise and (advice := self._advise(self._config.agent_config, means)):
            self._advise = None
            _log.warning(advice)
        if sentence := self._equal.sentence(counters.steps, returns):
            _log.warning(sentence)

    def end(self, counters: Counters, *, interrupted: bool) -> None:
        """The run has ended, with its last row."""
        seeds = self._progress.seeds if self._progress else 1
        steps, updates = (seeds * x / self.seconds for x in (counters.steps, counters.updates))
        _log.info(
            f"{'Stopped' if interrupted else 'Finished'} at {counters.steps} steps and "
            f"{counters.updates} updates, on average {rate(steps)} steps/s and {rate(updates)} "
            f"updates/s{f' of {seeds} seeds' * (seeds > 1)} including compilation and evaluations; "
            f"last {shown_returns(self.last_return, self.greedy)}."
        )


class EqualReturns:
    """Says once, in a run from `start` to `steps`, that no reward distinguishes good actions."""

    def __init__(self, steps: int, *, start: int = 0) -> None:
        self._tenth = steps / 10
        self._is_over = start > self._tenth
        self._returns: list[float] = []

    def sentence(self, steps: int, returns: Sequence[float]) -> str | None:
        """The sentence, after a tenth of the run with equal `returns`, of all calls, or none."""
        if self._is_over:
            return None
        self._returns.extend(returns)
        differ, count = len(set(self._returns)) > 1, len(self._returns)
        is_enough = count >= _EQUAL_EPISODES or (not count and steps >= _ENDLESS_STEPS)
        self._is_over = differ or (steps >= self._tenth and is_enough)
        if differ or not self._is_over:
            return None
        found = f"All episodes returned {self._returns[0]:g}" if count else "No episode ended"
        return (
            f"{found} in the first tenth of the run: so far no reward distinguishes good actions "
            "from bad ones. Agent57 seeks novelty, D4PG has correlated noise; ACER and Reactor find"
            " rare rewards by chance, more with --agent.entropy-cost 0.3 (docs/environments.md)."
        )
