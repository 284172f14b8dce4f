"""The progress of a program: the live table, the line in its place, warnings of its counter."""

import io
import logging
import types

import pytest
from rich.console import Console

from retrax.basics.writing import write_json
from retrax.launchpad_programs import progress
from retrax.launchpad_programs.config import STATUS as STATUS_FILE
from retrax.launchpad_programs.progress import Progress, line, table

NAMES = ("replay/0", "counter/0", "learner/0", "actor/0", "actor/1", "evaluator/0")
STATUS = {
    "phase": "learning",
    "last_step": 60_000,
    "steps": 1200,
    "episodes": 10,
    "updates": 140,
    "learning_since": 500,
    "seconds": 12.0,
    "steps_per_second": 480.0,
    "updates_per_second": 96.0,
    "eta_seconds": 122.4,
    "nodes": {
        "actor/0": {
            "state": "acting",
            "steps_per_second": 240.0,
            "staleness": 3,
            "return": -0.5,
            "silent_seconds": 0.1,
        },
        "actor/1": {"state": "acting", "silent_seconds": 40.0, "staleness": 5},
        "evaluator/0": {"state": "waiting", "return": 0.25, "silent_seconds": 1.0},
        "learner/0": {
            "state": "learning",
            "updates_per_second": 96.0,
            "idle_share": 0.25,
            "replay_rows": 1190,
            "replay_sequences": 1100,
            "silent_seconds": 0.5,
        },
    },
}


class Running:
    """A running node."""

    pid = 4321

    def __init__(self, name, how=""):
        self.name, self.how = name, how

    def ended(self):
        return self.how


RUNNING = [Running(name) for name in NAMES]


def text(table):
    console = Console(width=300, record=True, file=io.StringIO())
    console.print(table)
    return console.export_text()


def test_the_table_has_everything():
    shown = text(table(STATUS, RUNNING))
    words = " ".join(shown.split())  # the title has several lines
    for part in (
        "ETA 0:02:02 | elapsed 0:00:12",
        "240.0 steps/s",
        "3 versions behind",
        "silent for 40 s",
        "96.0 updates/s",
        "25% idle",
        "1190 rows, 1100 sequences",
        "0.25",
    ):
        assert part in words
    rows = [row.split() for row in shown.splitlines() if "/0 " in row or "/1 " in row]
    assert [row[1] for row in rows] == list(NAMES)
    assert {row[3] for row in rows} == {"4321"}
    assert {row[1] for row in rows if "serving" in row} == {"replay/0", "counter/0"}
    killed = [Running("actor/0", "was killed by SIGKILL"), *RUNNING]
    assert "was killed by SIGKILL" in text(table(STATUS, killed))


def test_the_line_by_hand():
    assert line(STATUS) == (
        "learning | 1200/60000 steps | 480 steps/s | 140 updates, 96.0/s, idle 25% | "
        "replay 1190 rows | staleness 4 | return -0.5, evaluator 0.25 | ETA 0:02:02"
    )


def test_a_program_that_has_just_started_can_be_shown():
    status = {**STATUS, "phase": "starting", "eta_seconds": None, "nodes": {}}
    assert "starting" in text(table(status, RUNNING))
    thread = Running("learner/0")
    thread.pid = None
    shown = text(table({}, [thread])).split()
    assert [word for word in shown if word.isascii()][-3:] == ["learner/0", "-", "starting"]
    assert "return -, evaluator - | ETA -" in line(status)


@pytest.fixture
def make_progress(tmp_path, monkeypatch, caplog):
    """Makes the progress of a program, whose lines are in `caplog`."""
    monkeypatch.setattr(progress, "_STATUS_SECONDS", 0.0)
    caplog.set_level(logging.INFO, "retrax")

    def make(nodes=(), notes=True):
        config = types.SimpleNamespace(directory=tmp_path)
        return Progress(config, nodes, plain=True, notes=notes)

    return make


@pytest.fixture
def lines(make_progress, caplog):
    """What is logged of a status, by one program with these nodes."""

    def watch(nodes):
        view = make_progress(nodes)

        def show(status):
            caplog.clear()
            view.show(status)
            return caplog.messages

        return show

    return watch


def test_plain_gives_a_line_at_each_change_of_phase(lines):
    show = lines([])
    assert show(STATUS) == [line(STATUS)]
    assert show(STATUS) == []
    (shown,) = show({**STATUS, "phase": "finished"})
    assert shown.startswith("finished")


def test_plain_gives_a_line_every_ten_seconds(lines, monkeypatch):
    clock = types.SimpleNamespace(now=100.0)
    monkeypatch.setattr(progress, "time", types.SimpleNamespace(monotonic=lambda: clock.now))
    show = lines([])
    counts = []
    for clock.now in (100.0, 109.0, 110.0, 119.0, 120.0):
        counts.append(len(show(STATUS)))
    assert counts == [1, 0, 1, 0, 1]


def test_plain_tells_what_nodes_do_until_the_clock_runs(lines):
    states = {"learner/0": {"state": "compiling"}, "actor/0": {"state": "compiling"}}
    status = {**STATUS, "phase": "starting", "nodes": states}
    show = lines([Running("learner/0"), Running("actor/0"), Running("actor/1")])
    assert show({}) == ["starting | learner/0, actor/0, actor/1: starting"]
    assert show({}) == []
    assert show(status) == ["starting | learner/0, actor/0: compiling | actor/1: starting"]
    states["actor/0"]["silent_seconds"] = 20.0  # while it compiles
    assert show(status) == []
    (shown,) = show(STATUS)
    assert shown.startswith("learning")


@pytest.mark.parametrize("notes", [True, False])
def test_warnings_of_the_counters_process_are_logged_once(make_progress, tmp_path, caplog, notes):
    view = make_progress(notes=notes)
    for told in ([], [("!", False)], [("!", False), ("its traceback", True)], []):
        write_json(tmp_path / STATUS_FILE, {**STATUS, "notes": told})
        assert not view.finished()
    warnings = [record for record in caplog.records if record.levelname == "WARNING"]
    found = [(record.message, record.file_only) for record in warnings]
    assert found == [("!", False), ("its traceback", True)] * notes


def test_a_program_is_finished_when_its_status_says_so(make_progress, tmp_path):
    view = make_progress()
    assert not view.finished()
    for phase, stop, finished in (
        ("evaluating", False, False),
        ("finished", False, True),
        ("learning", True, True),  # a logger ends it
    ):
        write_json(tmp_path / STATUS_FILE, {**STATUS, "phase": phase, "stop": stop})
        assert view.finished() == finished


def test_restarts_are_shown_where_there_are_any():
    assert "restart" not in line(STATUS)
    status = {**STATUS, "restarts": {"replay/0": 2, "actor/0": 1}}
    assert "| restarts: 3 |" in line(status)
    shown = text(table(status, RUNNING)).splitlines()
    rows = [row for row in shown if row.startswith("│")]
    counts = {row.split()[1]: row for row in rows if "restarts: " in row}
    assert sorted(counts) == ["actor/0", "replay/0"]
    assert "restarts: 2" in counts["replay/0"]
    assert "restarts: 1" in counts["actor/0"]
