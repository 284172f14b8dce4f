"""What a run writes: metrics as CSV and TensorBoard events, users' loggers, lines and bars."""

import contextlib
import io
import json
import sys
import threading
import types

import numpy as np
import pytest
from rich.console import Console
from run_files import read_tensorboard

from retrax.evaluation import read_metrics
from retrax.evaluation.suites import read_rows
from retrax.training import recorder as progress
from retrax.training.learner import Counters
from retrax.training.recorder import (
    WALL_CLOCK_COLUMNS,
    EqualReturns,
    MetricsLogger,
    MetricsTable,
    Progress,
    shown_returns,
)
from retrax.training.run_config import RunConfig

SHOWN = ("steps", "loss", "episode_return")
NO_CLOCK = dict.fromkeys(WALL_CLOCK_COLUMNS, np.nan)


def make_row(steps, loss=0.5, episode_return=1.0):
    """Arguments of `MetricsTable.write`."""
    return Counters(steps=steps), {"loss": loss, "episode_return": episode_return}, NO_CLOCK


def write(directory, rows, resumed_at=None):
    with contextlib.closing(MetricsTable(directory, ["loss"], resumed_at=resumed_at)) as table:
        return [table.write(*row) for row in rows]


def read_csv(directory):
    """Three columns of the file, whose lines are all complete."""
    rows = read_rows(directory / "metrics.csv")
    lines = [SHOWN, *([row[name] for name in SHOWN] for row in rows)]
    return "".join(",".join(line) + "\n" for line in lines)


def test_a_table_by_hand(tmp_path):
    config = {"agent": "a", "seed": 3, "preset": None}
    nested = {"agent_config": {"sizes": [4, 5], "replay": {"rate": 0.5, "is_on": True}}}
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.json").write_text(json.dumps(config | nested))
    first, _ = write(tmp_path / "run", [make_row(0), make_row(2**40, 0.1, episode_return=-21)])
    counted = {"episodes": 0, "updates": 0, "learning_since": -1}
    assert first == {"loss": 0.5, "episode_return": 1.0, **counted}
    assert set(map(type, first.values())) == {float}
    rows = "steps,loss,episode_return\n0,0.5,1.0\n1099511627776,0.1,-21\n"
    assert read_csv(tmp_path / "run") == rows
    found, shown = read_tensorboard(tmp_path / "run")
    assert shown == {
        "agent": "a",
        "seed": 3,
        "preset": "null",
        "agent_config.sizes": "[4, 5]",
        "agent_config.replay.rate": 0.5,
        "agent_config.replay.is_on": True,
    }
    assert found["loss"] == [(0, 0.5), (2**40, float(np.float32(0.1)))]
    assert found["episode_return"] == [(0, 1.0), (2**40, -21.0)]
    assert found.keys() == {"loss", "episode_return", "episodes", "updates", "learning_since"}
    (path,) = (tmp_path / "run").glob("events.out.tfevents.*")
    assert path.name.split(".")[3].isdigit()


@pytest.mark.parametrize(
    ("value", "cell"),
    [
        (3, "3"),
        (True, "1"),
        (np.int64(2**53 + 1), "9007199254740993"),
        (0.1, "0.1"),
        (1 / 3, "0.33333334"),
        (np.float64(np.pi), "3.1415927"),
        (1e-30, "1e-30"),
        (1e300, "inf"),
        (-np.inf, "-inf"),
        (np.nan, ""),
    ],
)
def test_cells(tmp_path, value, cell):
    write(tmp_path, [make_row(0, loss=value)])
    assert read_csv(tmp_path).splitlines()[1] == f"0,{cell},1.0"


def test_rows_are_there_before_the_end_and_nan_is_nothing(tmp_path):
    with contextlib.closing(MetricsTable(tmp_path, ["loss"], resumed_at=None)) as table:
        for row in (make_row(0, loss=np.nan), make_row(7), make_row(9, loss=np.nan)):
            table.write(*row)
        assert read_csv(tmp_path).splitlines()[1:] == ["0,,1.0", "7,0.5,1.0", "9,,1.0"]
        assert read_tensorboard(tmp_path)[0]["loss"] == [(7, 0.5)]


@pytest.mark.parametrize(
    ("names", "sentence"),
    [
        (["loss", "steps", "loss"], r"have different names, got \['loss', 'steps'\]"),
        (["loss", "two\nlines", "a\rb"], r"have printable names, got \['two\\nlines', 'a\\rb'\]"),
    ],
)
def test_names_that_no_column_can_have_are_refused(tmp_path, names, sentence):
    with pytest.raises(ValueError, match=f"Columns of metrics must {sentence}"):
        MetricsTable(tmp_path, names, resumed_at=None)
    assert list(tmp_path.iterdir()) == []


def test_commas_and_quotes_in_names_are_those_of_csv(tmp_path):
    names = ["loss", "q, mean", '"quoted"', " spaces ", ""]
    for steps, resumed_at in ((1, None), (2, 1), (3, 2)):
        with contextlib.closing(MetricsTable(tmp_path, names, resumed_at=resumed_at)) as table:
            values = {name: index for index, name in enumerate(names)}
            table.write(Counters(steps=steps), values, NO_CLOCK)
    metrics = read_metrics(tmp_path)
    assert metrics["steps"].tolist() == [1, 2, 3]
    assert [metrics[name].tolist() for name in names] == [[index] * 3 for index in range(5)]


def test_resumed_is_the_same_as_never_interrupted(tmp_path):
    """Several times within a second: TensorBoard must still find the right order."""
    rows = [make_row(10 * i, loss=0.3 * i) for i in range(6)]
    write(tmp_path / "whole", rows)
    write(tmp_path / "parts", [*rows[:3], make_row(30, loss=99.0), make_row(40, loss=99.0)])
    for loss in (7.0, 6.0):
        write(tmp_path / "parts", [make_row(30, loss=loss)], resumed_at=20)
    write(tmp_path / "parts", rows[3:], resumed_at=20)
    parts, whole = (tmp_path / name / "metrics.csv" for name in ("parts", "whole"))
    assert parts.read_bytes() == whole.read_bytes()
    assert read_tensorboard(tmp_path / "parts") == read_tensorboard(tmp_path / "whole")


@pytest.mark.parametrize(
    ("names", "resumed_at", "sentence"),
    [
        (["loss"], None, "exists already: resume its run, or use another directory"),
        ([], 0, r"has the columns steps,.*,loss,.*, but this run writes steps,.*: remove it to"),
    ],
)
def test_does_not_overwrite(tmp_path, names, resumed_at, sentence):
    write(tmp_path, [make_row(1)])
    with pytest.raises(ValueError, match=sentence):
        MetricsTable(tmp_path, names, resumed_at=resumed_at)
    assert read_csv(tmp_path).endswith("\n1,0.5,1.0\n")


def test_another_order_and_new_columns_are_resumed(tmp_path):
    """Those of a program that another engine continues."""
    (tmp_path / "metrics.csv").write_text("loss,steps,episode_return\n0.5,0,1.0\n0.5,1,1.0\n")
    write(tmp_path, [make_row(2)], resumed_at=0)
    _, first, second = (tmp_path / "metrics.csv").read_text().splitlines()
    assert first == "0,,,,1.0,,0.5,,,,"
    assert second == "2,0,0,-1,1.0,,0.5,,,,"


@pytest.mark.parametrize("data", [None, b"", b"steps,lo"])
def test_resume_without_metrics_starts_it_again(tmp_path, caplog, data):
    if data is not None:
        (tmp_path / "metrics.csv").write_bytes(data)
    for steps in (0, 5):
        write(tmp_path, [], resumed_at=steps)
        assert read_csv(tmp_path) == "steps,loss,episode_return\n"
        sentence = f"{tmp_path / 'metrics.csv'} was missing or empty"
        assert (sentence in caplog.text) == (steps > 0)  # at 0 steps there were no rows
        (tmp_path / "metrics.csv").write_bytes(data or b"")


@pytest.mark.parametrize(
    "damaged",
    [
        b"2,0,0,-1,1.0\n",
        b"\0\0\0\n",
        b"2,0,0,-1,1.0\0,,0.5,,,,\n",
        b"\n",
        b",0,0,-1,1.0,,0.5,,,,\n",
        b"2,0,0,-1,1.0,,0.5,,,,,\n",
        b"2,0,0,-1,\xff,,0.5,,,,\n",
    ],
)
def test_damaged_rows_are_removed(tmp_path, caplog, damaged):
    write(tmp_path, [make_row(1)])
    row = "{},0,0,-1,1.0,,{},,,,\n".format
    with (tmp_path / "metrics.csv").open("ab") as file:
        file.write(damaged + row(3, "").encode() + row(4, 0.5).encode() + damaged + b"\0" * 10)
    write(tmp_path, [make_row(5)], resumed_at=3)
    assert read_csv(tmp_path).splitlines()[1:] == ["1,0.5,1.0", "3,,1.0", "5,0.5,1.0"]
    assert "metrics.csv: removed 2 damaged rows of" in caplog.text


def test_rows_that_a_spreadsheet_wrote_are_kept(tmp_path, caplog):
    write(tmp_path, [make_row(1), make_row(2)])
    path = tmp_path / "metrics.csv"
    before = path.read_bytes()
    path.write_bytes(b"\xef\xbb\xbf" + before.replace(b"\n", b"\r\n"))
    write(tmp_path, [], resumed_at=2)
    assert path.read_bytes() == before
    assert caplog.text == ""


class Tracker:
    """Keeps the arguments of all its calls."""

    def __init__(self):
        self.calls = []
        sys.modules["somebody"].made.append(self)

    def begin(self, config, directory):
        self.calls.append((config["agent"], config["workers.num_workers"], directory))

    def __call__(self, steps, metrics):
        self.calls.append((steps, metrics))
        return "a run of its own"  # not True

    def close(self):
        self.calls.append("close")


class Broken(Tracker):
    def __call__(self, steps, metrics):
        raise RuntimeError("no network\nat all")


class Late(Tracker):
    """Has not begun: a run that its user had opened is neither filled nor closed by it."""

    def begin(self, config, directory):
        raise RuntimeError("no network\nat all")


@pytest.fixture
def module(monkeypatch):
    """A user's module, whose names are loggers."""
    module = types.ModuleType("somebody")
    module.made = []
    monkeypatch.setitem(sys.modules, "somebody", module)
    return module


def make(tmp_path, name=None, on_metrics=None):
    stop = threading.Event()
    logger = None if name is None else f"somebody:{name}"
    config = RunConfig(agent="acer", environment="catch", logger=logger)
    return MetricsLogger(config, tmp_path, on_metrics, stop=stop), stop


def test_config_rows_and_the_end_reach_it(module, tmp_path):
    module.Tracker, rows = Tracker, []
    logger, stop = make(tmp_path, "Tracker", lambda *row: rows.append(row))
    with logger:
        logger.write(3, {"loss": 0.5})
        logger.write(6, {"loss": 0.25})
    (tracker,) = module.made
    expected = [(3, {"loss": 0.5}), (6, {"loss": 0.25})]
    assert tracker.calls == [("acer", 0, tmp_path), *expected, "close"]
    assert rows == expected
    assert not stop.is_set()


def test_one_that_cannot_be_made_is_logged(module, tmp_path, caplog):
    module.Tracker = type("Tracker", (), {"__init__": lambda self: 1 / 0, "__call__": None})
    make(tmp_path, "Tracker")
    assert "A logger of metrics failed (ZeroDivisionError: division by zero)." in caplog.text
    module.Tracker = type("Tracker", (), {"log": print})
    make(tmp_path, "Tracker")[0].write(1, {})
    assert "A logger of metrics failed (TypeError: 'Tracker' object is not ca" in caplog.text


@pytest.mark.parametrize("kind", [Broken, Late])
def test_errors_end_nothing_and_the_first_is_logged(module, tmp_path, caplog, kind):
    module.Logger, rows = kind, []
    logger, stop = make(tmp_path, "Logger", lambda steps, metrics: rows.append(steps))
    with logger:
        logger.write(3, {})
        logger.write(6, {})
    (made,) = module.made
    calls = [("acer", 0, tmp_path), "close"] if kind is Broken else []
    assert (rows, made.calls, stop.is_set()) == ([3, 6], calls, False)
    sentence, trace = caplog.records
    assert sentence.getMessage().startswith(
        "A logger of metrics failed (RuntimeError: no network). The run continues;"
    )
    assert (sentence.exc_info, trace.exc_info[0]) == (None, RuntimeError)


@pytest.mark.parametrize(
    ("answer", "stops"),
    [(True, True), (np.bool_(True), True), (SystemExit, True), (False, False), (1, False)],
)
def test_true_and_sys_exit_stop_the_run(tmp_path, caplog, answer, stops):
    def function(steps, metrics):
        return sys.exit(0) if answer is SystemExit else answer

    logger, stop = make(tmp_path, on_metrics=function)
    logger.write(1, {})
    assert (stop.is_set(), caplog.text) == (stops, "")


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("no_such_module:NAME", "module 'no_such_module' cannot be imported from"),
        ("somebody:NAME", "RunConfig.logger must name a function of steps and metrics as package"),
        ("somebody:TEXT", "package.module:NAME, got somebody:TEXT."),
        ("somebody", "package.module:NAME, got somebody."),
    ],
)
def test_what_is_no_function_is_refused(module, name, sentence):
    module.TEXT = "text"
    with pytest.raises(ValueError, match=sentence):
        RunConfig(agent="acer", environment="catch", logger=name).find_logger()


RETURNS = "return 0.5 (exploring)"
CLOCK = {
    "steps_per_second": 1234.4,
    "acting_steps_per_second": 5678.0,
    "learning_updates_per_second": 91.2,
}


@pytest.fixture
def terminal(monkeypatch):
    """Makes Progress believe in a terminal of 80 columns, and gives what it wrote."""
    written = io.StringIO()
    console = Console(file=written, force_terminal=True, width=80, color_system=None)
    monkeypatch.setattr(progress, "Console", lambda stderr: console)
    return written


def test_bar_shows_everything_in_80_columns(terminal):
    with Progress(500_000, Counters()) as bar:
        bar.show(Counters(steps=123_456, updates=17), shown_returns(-0.512, 0.7), CLOCK)
    lines = terminal.getvalue().replace("\r", "\n").splitlines()
    (line, *_) = [line for line in lines if "123456" in line]
    assert "123456/500000 steps, 1234/s, ETA -, return -0.512 (exploring), 0.7 (greedy)" in line
    assert bar.has_bar
    line = Progress(100, Counters(), plain=True, seeds=16).show(Counters(steps=100), "", CLOCK)
    assert line.startswith("100/100 steps * 16 seeds | 19750 steps/s (acting 90848 ")


def test_a_notebook_has_one_line_with_a_bar(monkeypatch, capsys):
    console = Console(force_jupyter=True)
    monkeypatch.setattr(progress, "Console", lambda stderr: console)
    with Progress(100, Counters()) as bar:
        bar.show(Counters(steps=25, updates=17), RETURNS, CLOCK)
        bar.show(Counters(steps=100, updates=90), RETURNS, CLOCK)
    first, compiling, quarter, whole = capsys.readouterr().out.split("\r")
    assert (first, compiling) == ("", "compiling")
    assert quarter.startswith("[#####...............] 25/100 steps, 1234/s, ETA -, return 0.5")
    assert "ETA 0:00:00, return 0.5 (exploring)" in whole
    assert whole.endswith("\n")
    assert len(whole.rstrip("\n")) >= len(quarter)  # nothing of the longer line is left
    assert bar.has_bar


@pytest.mark.parametrize(
    ("rate", "told"),
    [(91.4, "91 updates/s"), (0.64, "0.6 updates/s"), (float("nan"), "0 updates/s")],
)
def test_lines_without_a_terminal(rate, told):
    shown = Progress(100, Counters(), plain=True)
    assert not shown.has_bar
    clock = {**CLOCK, "learning_updates_per_second": rate}
    with shown:
        line = shown.show(Counters(steps=100, updates=17), RETURNS, clock)
    assert line == (
        f"100/100 steps | 1234 steps/s (acting 5678 steps/s, learning {told}) | 17 updates | "
        "return 0.5 (exploring) | ETA 0:00:00"
    )


def test_lines_are_seldom_but_the_last_one_always_comes(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(progress.time, "perf_counter", lambda: now[0])
    shown = Progress(100, Counters(steps=20, updates=3), plain=True)
    assert shown.show(Counters(steps=40, updates=3), RETURNS, CLOCK) == ""
    now[0] = 15.0
    assert shown.show(Counters(steps=60, updates=3), RETURNS, CLOCK).endswith("ETA -")
    now[0] = 16.0
    assert shown.show(Counters(steps=62, updates=3), RETURNS, CLOCK) == ""
    assert shown.show(Counters(steps=101, updates=9), RETURNS, CLOCK).endswith("ETA 0:00:00")


def test_remaining_time_is_of_the_speed_since_the_first_updates(monkeypatch):
    """40 steps/s of acting, 50 s of compiling, then 2 steps/s: 60 steps take 30 s."""
    now = [0.0]
    monkeypatch.setattr(progress.time, "perf_counter", lambda: now[0])
    shown, ends = Progress(200, Counters(), plain=True), []
    for now[0], steps, updates in ((2.0, 80, 0), (60.0, 100, 5), (80.0, 140, 25)):
        ends.append(shown.show(Counters(steps=steps, updates=updates), RETURNS, CLOCK)[-7:])
    assert ends == ["", "| ETA -", "0:00:30"]


@pytest.mark.parametrize(
    ("start", "returns", "rows"),
    [
        (0, [10 * [-200.0], [], 10 * [-200.0], [-200.0]], [3]),
        (6, 4 * [10 * [-200.0]], [2]),
        (0, [8 * [-200.0], [], [-200.0], 11 * [-200.0]], [4]),  # nine may be equal by chance
        (0, [20 * [-200.0], [], [-199.0], 20 * [-200.0]], []),
        (0, 4 * [[-1.0, 1.0]], []),
        (50, 4 * [20 * [-200.0]], []),  # of a run that is resumed after its first tenth
    ],
)
def test_equal_returns_of_the_first_tenth_are_told_once(start, returns, rows):
    equal, found = EqualReturns(100, start=start), []
    for row, values in enumerate([*returns, [-200.0]], start=1):
        if sentence := equal.sentence(start + 3.5 * row, values):
            found.append(row)
            assert "returned -200 in" in sentence
    assert found == rows
    assert [bool(EqualReturns(100).sentence(steps, [])) for steps in (4999, 5000)] == [False, True]
