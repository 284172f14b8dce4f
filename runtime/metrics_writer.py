"""Metrics of a run: `metrics.csv` and TensorBoard's event file.

TensorBoard's own writer is used below the level at which it would load TensorFlow.
"""

import contextlib
import csv
import dataclasses
import io
import json
import logging
import os
import socket
import time
import types
import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .._writing import replacing, writing
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
_log = logging.getLogger("retrax")
_EVENTS_PREFIX = "events.out.tfevents."


class MetricsWriter:
    """Writes rows of numbers to `metrics.csv` and, under the same names, to TensorBoard.

    The columns are fixed when the file is made, and one of them is `steps`. Each row is on the disk
    when `write` returns. Integers are written as integers, all other numbers in the shortest form
    that float32 reads back as the same number, so that equal runs give equal files. NaN means that
    there is no value: an empty cell, and nothing for TensorBoard.
    """

    def __init__(self, directory: Path, columns: Sequence[str]) -> None:
        """Starts new metrics; `MetricsWriter.resume` continues old ones.

        Args:
          directory: the run directory, made if it does not exist.
          columns: the names of the columns in order; `steps` is one, and none comes twice.

        Raises:
          ValueError: if `columns` is not as said, or `metrics.csv` exists already.
        """
        self._columns = _checked(columns)
        self._path = path = Path(directory) / _CSV_NAME
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists():
            raise ValueError(f"{path} exists already: resume its run, or use another directory.")
        self._csv = path.open("x", encoding="utf-8", newline="")
        self._events = _EventFile(path.parent)
        self._write_line(self._columns)

    @classmethod
    def resume(cls, directory: Path, columns: Sequence[str], steps: int) -> "MetricsWriter":
        """Continues the metrics of a run that is resumed from a snapshot.

        Rows that the run wrote after the snapshot are dropped, and so is an incomplete last line.
        An event makes TensorBoard drop them too. Damaged rows are removed, and a missing file
        begins anew; the log says so.

        Args:
          directory: the run directory.
          columns: those that the file has, and perhaps more; new ones are empty in earlier rows.
          steps: the snapshot's steps; rows with more are dropped.

        Raises:
          ValueError: if `metrics.csv` has another column; nothing is changed then.
        """
        self = cls.__new__(cls)
        self._columns = _checked(columns)
        self._path = path = Path(directory) / _CSV_NAME
        _repair(path, self._columns, steps)
        self._csv = path.open("a", encoding="utf-8", newline="")
        self._events = _EventFile(path.parent)
        self._events.forget(steps + 1)
        return self

    def write(self, row: Mapping[str, Any]) -> None:
        """Writes one row.

        Args:
          row: from every column's name, in any order, to a scalar (of Python, NumPy or JAX);
            `steps` is an integer, and no less than in the row before.

        Raises:
          ValueError: if names are missing or unknown, or a value is not a scalar; nothing is
            written then.
          OSError: a file cannot be written; names it.
        """
        missing = [name for name in self._columns if name not in row]
        unknown = [name for name in row if name not in self._columns]
        if missing or unknown:
            raise ValueError(f"A row does not fit: missing {missing}, unknown {unknown}.")
        values = {name: _scalar(name, row[name]) for name in self._columns}
        self._write_line("" if np.isnan(value) else str(value) for value in values.values())
        steps = int(values.pop("steps"))
        with writing(self._path.with_name(f"{_EVENTS_PREFIX}*")):
            self._events.add(steps, {k: float(v) for k, v in values.items() if not np.isnan(v)})

    def write_hyper_parameters(self, values: Mapping[str, bool | float | str]) -> None:
        """Writes what TensorBoard shows under "HParams", beside the metrics."""
        with writing(self._path.with_name(f"{_EVENTS_PREFIX}*")):
            self._events.describe(values)

    def close(self) -> None:
        """Closes both files. Calling it twice does no harm."""
        for file in (self._csv, self._events):
            with contextlib.suppress(OSError):  # on a full disk, of a row that was not written
                file.close()

    def __enter__(self) -> "MetricsWriter":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: types.TracebackType | None,
    ) -> None:
        self.close()

    def _write_line(self, cells: Iterable[str]) -> None:
        with writing(self._path):
            self._csv.write(_line(cells))
            self._csv.flush()


class MetricsTable:
    """The rows of a run's `metrics.csv`: counters, episodes, an agent's metrics, rates."""

    def __init__(self, directory: Path, names: Sequence[str], *, resumed_at: int | None):
        """Starts new metrics, or continues those of a resumed run.

        Args:
          directory: the run directory. Its config.json, if there is one, is TensorBoard's
            hyper-parameters.
          names: of the columns between the counters and the rates, besides the episodes' two.
          resumed_at: steps of the snapshot from which the run is resumed; None for a new run.

        Raises:
          ValueError: a new run has a `metrics.csv`, or that of a resumed one has other columns.
        """
        self._counters = [field.name for field in dataclasses.fields(Counters)]
        self._means = ["episode_return", "episode_length", *names]
        columns = [*self._counters, *self._means, *WALL_CLOCK_COLUMNS]
        self._writer = (
            MetricsWriter(directory, columns)
            if resumed_at is None
            else MetricsWriter.resume(directory, columns, resumed_at)
        )
        config = Path(directory) / "config.json"
        if config.is_file():
            self._writer.write_hyper_parameters(_flat(json.loads(config.read_text("utf-8"))))

    def write(
        self, counters: Counters, means: Mapping[str, float], clock: Mapping[str, float]
    ) -> None:
        """Writes one row.

        Args:
          counters: of the run.
          means: as `MetricsAccumulator.flush` gives them; names without a column are left out, and
            columns without a value stay empty.
          clock: `WALL_CLOCK_COLUMNS`.
        """
        values = {name: means.get(name, float("nan")) for name in self._means}
        self._writer.write({**dataclasses.asdict(counters), **values, **clock})

    def close(self) -> None:
        """Closes the files."""
        self._writer.close()


class _EventFile:
    """A new file of TensorBoard events; TensorBoard reads a directory's in the order of names."""

    def __init__(self, directory: Path) -> None:
        paths = directory.glob(f"{_EVENTS_PREFIX}*")
        used = [path.name.removeprefix(_EVENTS_PREFIX).split(".")[0] for path in paths]
        second = max([int(time.time()), *(int(word) + 1 for word in used if word.isdigit())])
        name = f"{_EVENTS_PREFIX}{second:010d}.{socket.gethostname()}.{os.getpid()}"
        self._records = RecordWriter((directory / name).open("xb"))
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


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, bool | float | str]:
    """JSON values under names with dots; lists and nulls as text."""
    flat: dict[str, bool | float | str] = {}
    for name, value in values.items():
        if isinstance(value, dict):
            flat |= _flat(value, f"{prefix}{name}.")
        else:
            is_text = value is None or isinstance(value, list)
            flat[prefix + name] = json.dumps(value) if is_text else value
    return flat


def _checked(columns: Sequence[str]) -> tuple[str, ...]:
    if "steps" not in columns or len(set(columns)) != len(columns):
        raise ValueError(f"columns must be different names, 'steps' among them, got {columns}.")
    return tuple(columns)


def _scalar(name: str, value: Any) -> Any:
    """A Python int, or a float32."""
    array = np.asarray(value)
    if array.shape != ():
        raise ValueError(f"{name} must be a scalar, got an array of shape {array.shape}.")
    if array.dtype.kind in "biu":
        return int(array)
    if name == "steps":
        raise ValueError(f"steps must be an integer, got {value!r}.")
    try:
        with np.errstate(over="ignore"):  # what float32 cannot hold becomes infinite
            return np.float32(float(array))
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be a number, got {value!r}.") from None


def _line(cells: Iterable[str]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(cells)
    return text.getvalue()


def _repair(path: Path, columns: Sequence[str], steps: int) -> None:
    """Keeps whole rows up to `steps`. The file is replaced in one go: a kill loses nothing.

    Other engines of programs may have written fewer columns, or in another order.
    """
    data = path.read_bytes() if path.is_file() else b""
    # A spreadsheet may have written it, with a byte order mark and \r\n; the rows are the same.
    text = data.decode("utf-8-sig", errors="replace").replace("\r\n", "\n")
    complete, _, _ = text.rpartition("\n")
    header, *lines = complete.split("\n")
    names = header.split(",") if complete else list(columns)
    if "steps" not in names or not set(names) <= set(columns):
        raise ValueError(
            f"{path} has the columns {header[:200]}, but this run writes {','.join(columns)}: "
            "remove it to continue without its rows."
        )
    rows = [line.split(",") for line in lines]
    whole = [dict(zip(names, row, strict=True)) for row in rows if _is_whole(row, names)]
    kept = [[row.get(name, "") for name in columns] for row in whole if int(row["steps"]) <= steps]
    with replacing(path) as partial:
        partial.write_text("".join(map(_line, [columns, *kept])), encoding="utf-8", newline="")
    if not complete:
        _log.warning(f"{path} was missing or empty: it begins anew, without the earlier rows.")
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
