"""Metrics of a run: `metrics.csv` and TensorBoard's event file.

TensorBoard's own writer is used below the level at which it would load TensorFlow.
"""

import contextlib
import csv
import dataclasses
import json
import logging
import math
import os
import socket
import time
import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..basics.writing import replacing, writing
from .metrics import Counters

with warnings.catch_warnings():
    # TensorBoard 2.8, the newest beside Acme's TensorFlow, reads np.bool8 while it is imported.
    warnings.filterwarnings("ignore", message=".*np.bool8", category=DeprecationWarning)
    from tensorboard.compat.proto import event_pb2, summary_pb2
    from tensorboard.plugins.hparams.summary_v2 import hparams_pb
    from tensorboard.summary.writer.record_writer import RecordWriter

# Columns that differ between two runs of the same command; all others are equal bit for bit.
WALL_CLOCK_COLUMNS = (
    "seconds",
    "acting_steps_per_second",
    "learning_updates_per_second",
    "steps_per_second",
)
_CSV_NAME = "metrics.csv"
_EPISODES = ("episode_return", "episode_length")
_log = logging.getLogger("retrax")
_EVENTS_PREFIX = "events.out.tfevents."


class MetricsTable:
    """The rows of a run: counters, episodes, an agent's metrics, rates.

    Rows go to `metrics.csv` and, under the same names, to TensorBoard. Each is on the disk when
    `write` returns. Integers are written as integers, all other numbers in the shortest form that
    float32 reads back as the same number, so that equal runs give equal files. NaN means that there
    is no value: an empty cell, and nothing for TensorBoard.
    """

    def __init__(self, directory: Path, names: Sequence[str], *, resumed_at: int | None):
        """Starts new metrics, or continues those of a run that is resumed at so many steps.

        Later rows are dropped, and so is an incomplete last line. An event makes TensorBoard drop
        them too. Damaged rows are removed, and a missing file is started again; the log says so.
        A config.json in the run directory is TensorBoard's hyper-parameters.

        `names` are of the columns between the counters and the rates, besides the episodes' two. A
        resumed run may have more than its file; they are empty in earlier rows. A ValueError says
        that a name comes twice or cannot be printed, a new run has a `metrics.csv`, or that of a
        resumed one has another column; nothing is changed then.
        """
        counters = [field.name for field in dataclasses.fields(Counters)]
        self._columns = [*counters, *_EPISODES, *names, *WALL_CLOCK_COLUMNS]
        if odd := [name for name in names if not name.isprintable()]:
            raise ValueError(f"Columns of metrics must have printable names, got {odd}.")
        if twice := {name for name in self._columns if self._columns.count(name) > 1}:
            raise ValueError(f"Columns of metrics must have different names, got {sorted(twice)}.")
        self._path = path = Path(directory) / _CSV_NAME
        if resumed_at is not None:
            _repair(path, self._columns, resumed_at)
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
        """Writes one row: counters, means of metrics, and `WALL_CLOCK_COLUMNS`.

        Names without a column are left out, and columns without a value stay empty. Returns the
        numbers by column, without `steps`. An OSError names its file.
        """
        values = {**means, **clock, **dataclasses.asdict(counters)}
        row = [_number(values.get(name, math.nan)) for name in self._columns]
        self._write_line("" if np.isnan(value) else str(value) for value in row)
        given = zip(self._columns, row, strict=True)
        written = {name: float(value) for name, value in given if not np.isnan(value)}
        del written["steps"]
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
            _csv_writer(self._csv).writerow(cells)
            self._csv.flush()


class _EventFile:
    """A new file of TensorBoard events; TensorBoard reads a directory's in the order of names."""

    def __init__(self, directory: Path) -> None:
        paths = directory.glob(f"{_EVENTS_PREFIX}*")
        used = [path.name.removeprefix(_EVENTS_PREFIX).split(".")[0] for path in paths]
        second = max([int(time.time()), *(int(word) + 1 for word in used if word.isdigit())])
        self.path = (
            directory / f"{_EVENTS_PREFIX}{second:010d}.{socket.gethostname()}.{os.getpid()}"
        )
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
    """A Python int, or a float32."""
    if isinstance(value, int | np.integer):
        return int(value)
    with np.errstate(over="ignore"):  # what float32 cannot hold becomes infinite
        return np.float32(value)


def _csv_writer(file: Any) -> Any:
    return csv.writer(file, lineterminator="\n")


def _repair(path: Path, columns: Sequence[str], steps: int) -> None:
    """Keeps whole rows up to `steps`. The file is replaced in one go: a kill loses nothing.

    Other engines of programs may have written fewer columns, or in another order. A run that
    starts from the beginning, at 0 steps, misses no rows.
    """
    data = path.read_bytes() if path.is_file() else b""
    # A spreadsheet may have written it, with a byte order mark and \r\n; the rows are the same.
    text = data.decode("utf-8-sig", errors="replace").replace("\r\n", "\n")
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
        _csv_writer(file).writerows([columns, *kept])
    if steps and not complete:
        _log.warning(f"{path} was missing or empty: it starts again, without the earlier rows.")
    elif len(whole) < len(rows):
        _log.warning(f"{path}: damaged rows were removed, {len(rows) - len(whole)} of {len(rows)}.")


def _is_whole(row: Sequence[str], columns: Sequence[str]) -> bool:
    """Whether a row has a number, or nothing, for each column."""
    try:
        numbers = [float(cell) for cell in row if cell]
        int(row[columns.index("steps")])
    except (ValueError, IndexError):
        return False
    return len(row) == len(columns) and bool(numbers)
