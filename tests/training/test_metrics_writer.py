"""Metrics as CSV and as TensorBoard events."""

import contextlib
import csv
import json
import subprocess
import sys

import numpy as np
import pytest
from run_files import read_tensorboard

from retrax.evaluation import read_metrics
from retrax.training.learner import Counters
from retrax.training.recorder import WALL_CLOCK_COLUMNS, MetricsTable

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
    text = (directory / "metrics.csv").read_text()
    assert text.endswith("\n")
    header, *rows = csv.reader(text.splitlines())
    rows = [dict(zip(header, row, strict=True)) for row in rows]
    lines = [SHOWN, *([row[name] for name in SHOWN] for row in rows)]
    return "".join(",".join(line) + "\n" for line in lines)


def test_a_table_by_hand(tmp_path):
    write(tmp_path / "run", [make_row(0), make_row(2**40, loss=0.1, episode_return=-21)])
    rows = "steps,loss,episode_return\n0,0.5,1.0\n1099511627776,0.1,-21\n"
    assert read_csv(tmp_path / "run") == rows
    found, _ = read_tensorboard(tmp_path / "run")
    assert found["loss"] == [(0, 0.5), (2**40, float(np.float32(0.1)))]
    assert found["episode_return"] == [(0, 1.0), (2**40, -21.0)]
    assert found.keys() == {"loss", "episode_return", "episodes", "updates", "learning_since"}
    (path,) = (tmp_path / "run").glob("events.out.tfevents.*")
    assert path.name.split(".")[3].isdigit()


def test_a_row_is_given_back_as_it_was_written(tmp_path):
    [row] = write(tmp_path, [make_row(3, loss=0.1, episode_return=np.nan)])
    assert row == {"loss": np.float32(0.1), "episodes": 0, "updates": 0, "learning_since": -1}
    assert set(map(type, row.values())) == {float}


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


def test_numbers_come_back_as_the_same_float32(tmp_path):
    values = np.random.default_rng(0).normal(size=200).astype(np.float32)
    write(tmp_path, [make_row(i, loss=value) for i, value in enumerate(values)])
    cells = [line.split(",")[1] for line in read_csv(tmp_path).splitlines()[1:]]
    np.testing.assert_array_equal(np.array(cells, np.float32), values)


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
    rows = [make_row(10 * i, loss=0.3 * i) for i in range(6)]
    write(tmp_path / "whole", rows)
    write(tmp_path / "parts", [*rows[:3], make_row(30, loss=99.0), make_row(40, loss=99.0)])
    write(tmp_path / "parts", rows[3:], resumed_at=20)
    parts, whole = (tmp_path / name / "metrics.csv" for name in ("parts", "whole"))
    assert parts.read_bytes() == whole.read_bytes()
    assert read_tensorboard(tmp_path / "parts") == read_tensorboard(tmp_path / "whole")


def test_resumes_again_and_again(tmp_path):
    """Several times within a second: TensorBoard must still find the right order."""
    write(tmp_path, [make_row(0), make_row(1, loss=8.0)])
    for loss in (7.0, 6.0, 5.0):
        write(tmp_path, [make_row(1, loss=loss)], resumed_at=0)
    assert read_csv(tmp_path).splitlines()[1:] == ["0,0.5,1.0", "1,5.0,1.0"]
    assert read_tensorboard(tmp_path)[0]["loss"] == [(0, 0.5), (1, 5.0)]


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
    assert "metrics.csv: damaged rows were removed, 2 of" in caplog.text


def test_rows_that_a_spreadsheet_wrote_are_kept(tmp_path, caplog):
    write(tmp_path, [make_row(1), make_row(2)])
    path = tmp_path / "metrics.csv"
    before = path.read_bytes()
    path.write_bytes(b"\xef\xbb\xbf" + before.replace(b"\n", b"\r\n"))
    write(tmp_path, [], resumed_at=2)
    assert path.read_bytes() == before
    assert caplog.text == ""


def test_tensorflow_is_never_imported(tmp_path):
    program = f"""
import pathlib, sys
from retrax.training.recorder import Counters, MetricsTable
table = MetricsTable(pathlib.Path({str(tmp_path)!r}), ["loss"], resumed_at=None)
table.write(Counters(steps=1), {{"loss": 2.0}}, {{}})
assert "tensorflow" not in sys.modules
"""
    subprocess.run([sys.executable, "-W", "error", "-c", program], check=True, timeout=120)


def test_a_table_has_counters_episodes_names_and_the_clock(tmp_path):
    table = MetricsTable(tmp_path, ["loss"], resumed_at=None)
    clock = dict.fromkeys(WALL_CLOCK_COLUMNS, 2.0)
    counters = Counters(steps=5, episodes=1, updates=3, learning_since=2)
    table.write(counters, {"episode_return": 1.5, "unknown": 3.0}, clock)
    table.close()
    table.close()  # twice does no harm
    header, row = (tmp_path / "metrics.csv").read_text().splitlines()
    assert header.split(",") == [
        *["steps", "episodes", "updates", "learning_since"],
        *["episode_return", "episode_length", "loss"],
        *WALL_CLOCK_COLUMNS,
    ]
    assert row == "5,1,3,2,1.5,,,2.0,2.0,2.0,2.0"


def test_tensorboard_has_the_config(tmp_path):
    config = {"agent": "a", "seed": 3, "preset": None}
    nested = {"agent_config": {"sizes": [4, 5], "replay": {"rate": 0.5, "is_on": True}}}
    (tmp_path / "config.json").write_text(json.dumps(config | nested))
    MetricsTable(tmp_path, [], resumed_at=None).close()
    assert read_tensorboard(tmp_path)[1] == {
        "agent": "a",
        "seed": 3,
        "preset": "null",
        "agent_config.sizes": "[4, 5]",
        "agent_config.replay.rate": 0.5,
        "agent_config.replay.is_on": True,
    }
