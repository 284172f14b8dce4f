"""How programs end, and how they are shown: nodes that are played, on a clock of their own."""

import io
import logging
import math
import types

import pytest
from node_fakes import Clock
from program_configs import make_config
from rich.console import Console

from retrax.basics.files import write_json
from retrax.launchpad_programs import launcher
from retrax.launchpad_programs.config import STATUS as STATUS_FILE
from retrax.launchpad_programs.launcher import StatusView, line, table
from retrax.launchpad_programs.node import EngineLost


class Node:
    """Ends by itself at a given time, or some seconds after it is asked to."""

    def __init__(self, clock, name, after=0.0, at=math.inf, how="done"):
        self.clock, self.name, self.after, self.at, self.how = clock, name, after, at, how
        self.asked = self.killed = math.inf

    @property
    def end(self):
        return min(self.at, self.asked + self.after, self.killed)

    def ended(self):
        if self.end > self.clock.now:
            return ""
        return "was killed by SIGKILL" if self.end == self.killed else self.how

    def pid(self):
        return 4321

    def revive(self):
        return False

    def stop(self):
        self.asked = min(self.asked, self.clock.now)

    def kill(self):
        self.killed = self.clock.now

    def traceback(self):
        return f"Traceback of {self.name}"


@pytest.fixture
def clock(monkeypatch):
    """The launcher's."""
    monkeypatch.setattr(launcher, "time", clock := Clock())
    return clock


@pytest.fixture
def play(clock):
    """Supervises nodes that differ from harmless ones as given; how they end, and the nodes."""

    def play(finished_at=math.inf, stops_at=math.inf, **changes):
        clock.stops_at = stops_at
        nodes = {
            label: Node(clock, f"{label}/0", **changes.get(label, {}))
            for label in ("counter", "replay", "learner", "actor")
        }
        ending = launcher.supervise(
            list(nodes.values()),
            lambda: clock.now >= finished_at,
            clock,
            save_seconds=20.0,
            last_seconds=10.0,
        )
        assert all(node.ended() for node in nodes.values())
        return ending, types.SimpleNamespace(**nodes)

    return play


KILLED = "was killed by SIGKILL"


@pytest.mark.parametrize("cause", ["finished_at", "stops_at"])
def test_nodes_that_save_end_before_those_that_they_need(play, cause):
    ending, nodes = play(**{cause: 5.0}, learner={"after": 15.0})
    assert ending == ""
    assert 5.0 <= nodes.actor.asked == nodes.learner.asked < 5.5
    assert nodes.learner.end == nodes.learner.asked + 15.0  # it was not killed
    assert nodes.learner.end <= nodes.counter.asked == nodes.replay.asked < nodes.learner.end + 0.5


@pytest.mark.parametrize("label", ["actor", "learner", "counter"])
def test_a_killed_node_ends_the_program(play, label):
    ending, nodes = play(**{label: {"at": 5.0, "how": KILLED}})
    assert ending == f"{label}/0 was killed by SIGKILL.\nTraceback of {label}/0"
    assert max(node.asked for node in vars(nodes).values()) < 6.0


def test_a_node_that_returns_has_ended_too_early(play):
    assert play(actor={"at": 5.0})[0].startswith("actor/0 ended too early.")


@pytest.mark.parametrize(
    "changes",
    [
        {"stops_at": 5.15, "actor": {"at": 5.0, "how": KILLED}},  # before the launcher sees its own
        {"stops_at": 1.0, "learner": {"how": "was killed by SIGTERM"}},  # while they start
    ],
)
def test_nodes_that_end_with_a_signal_of_the_terminal_have_not_failed(play, changes):
    assert play(**changes)[0] == ""


def test_nodes_that_ignore_their_stop_event_are_killed(play):
    """Those that save get longer, and so do those that the others need."""
    ending, nodes = play(stops_at=5.0, actor={"after": math.inf}, learner={"after": 10.0})
    assert ending == ""
    assert 3.0 <= nodes.actor.killed - nodes.actor.asked < 3.5
    ending, nodes = play(stops_at=5.0, learner={"after": math.inf}, replay={"after": math.inf})
    assert ending == "learner/0 was killed by SIGKILL.\nTraceback of learner/0"
    assert 20.0 <= nodes.learner.killed - nodes.learner.asked < 20.5
    assert 10.0 <= nodes.replay.killed - nodes.replay.asked < 10.5


@pytest.mark.parametrize("label", ["learner", "replay"])
def test_a_second_interrupt_waits_for_no_node(play, clock, label):
    clock.interrupts_at = 8.0
    with pytest.raises(KeyboardInterrupt):
        play(stops_at=5.0, **{label: {"after": math.inf}})
    assert clock.now < 11.5


def test_a_learner_that_fails_while_it_saves_is_reported(play):
    ending, _ = play(finished_at=5.0, learner={"after": 1.0, "how": "failed with exit code 1"})
    assert ending == "learner/0 failed with exit code 1.\nTraceback of learner/0"


def test_nodes_that_are_lost_with_their_engine_are_neither_stopped_nor_waited_for(tmp_path, capsys):
    def start(config):
        raise EngineLost("Ray has ended.")

    config = make_config(tmp_path)
    summary = launcher.run_program(config, start, mode="local_mp", plain=True, notes=["first"])
    assert (summary.failed, summary.finished) == (True, False)
    expected = ["first", "Ray has ended.", "Stopped at 0 steps and 0 updates."]
    assert capsys.readouterr().err.splitlines() == expected


NAMES = ("replay/0", "counter/0", "learner/0", "actor/0", "actor/1", "evaluator/0")
ACTOR = {"state": "acting", "steps_per_second": 240.0, "staleness": 3, "return": -0.5}
LEARNER = {"state": "learning", "updates_per_second": 96.0, "idle_share": 0.25}
ROWS = {"replay_rows": 1190, "replay_sequences": 1100}
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
        "actor/0": {**ACTOR, "silent_seconds": 0.1},
        "actor/1": {"state": "acting", "silent_seconds": 40.0, "staleness": 5},
        "evaluator/0": {"state": "waiting", "return": 0.25, "silent_seconds": 1.0},
        "learner/0": {**LEARNER, **ROWS, "silent_seconds": 0.5},
    },
}
WORKERS = {
    "parameter_server/0": {"idle_share": 0.5},
    "worker/0": {"replay_rows": 4, "replay_sequences": 3, "staleness": 1.0, "return": 1.0},
    "worker/1": {"replay_rows": 5, "replay_sequences": 4, "staleness": 2.0},
}


def running(names=NAMES, how=""):
    return [Node(Clock(), name, at=0.0, how=how) for name in names]


def text(table):
    console = Console(width=300, record=True, file=io.StringIO())
    console.print(table)
    return console.export_text()


def test_the_table_has_everything():
    shown = text(table({**STATUS, "restarts": {"replay/0": 2, "actor/0": 1}}, running()))
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
    restarts = {row[1]: row[row.index("restarts:") + 1] for row in rows if "restarts:" in row}
    assert restarts == {"replay/0": "2", "actor/0": "1"}
    assert KILLED in text(table(STATUS, running(how=KILLED)))
    shown = text(table({**STATUS, "nodes": WORKERS}, running(WORKERS)))
    assert "5 rows, 4 sequences" in shown


def test_the_line_by_hand():
    assert line(STATUS) == (
        "learning | 1200/60000 steps | 480 steps/s | 140 updates, 96.0/s, idle 25% | "
        "replay 1190 rows | staleness 4 | return -0.5, evaluator 0.25 | ETA 0:02:02"
    )
    assert "| restarts: 3 |" in line({**STATUS, "restarts": {"replay/0": 2, "actor/0": 1}})
    shown = line({**STATUS, "nodes": WORKERS})
    assert "idle 50% | replay 9 rows | staleness 1.5 | return 1, evaluator -" in shown


def test_a_program_that_has_just_started_can_be_shown():
    status = {**STATUS, "phase": "starting", "eta_seconds": None, "nodes": {}}
    assert "starting" in text(table(status, running()))
    (thread,) = running(["learner/0"])
    thread.pid = lambda: None
    shown = text(table({}, [thread])).split()
    assert [word for word in shown if word.isascii()][-3:] == ["learner/0", "-", "starting"]
    assert "return -, evaluator - | ETA -" in line(status)


@pytest.fixture
def make_view(tmp_path, monkeypatch, caplog):
    """Makes the view of a program without a terminal, whose lines are in `caplog`."""
    monkeypatch.setattr(launcher, "_STATUS_SECONDS", 0.0)
    caplog.set_level(logging.INFO, "retrax")

    def make(nodes=(), notes=True):
        config = types.SimpleNamespace(directory=tmp_path)
        return StatusView(config, nodes, plain=True, notes=notes)

    return make


@pytest.fixture
def lines(make_view, caplog):
    """What is logged of a status, by one program with these nodes."""

    def watch(nodes):
        view = make_view(nodes)

        def show(status):
            caplog.clear()
            view.show(status)
            return caplog.messages

        return show

    return watch


def test_plain_gives_a_line_every_ten_seconds_and_at_each_change_of_phase(lines, clock):
    show, counts = lines([]), []
    assert show(STATUS) == [line(STATUS)]
    for clock.now in (0.0, 9.0, 10.0, 19.0, 20.0):
        counts.append(len(show(STATUS)))
    assert counts == [0, 0, 1, 0, 1]
    (shown,) = show({**STATUS, "phase": "finished"})
    assert shown.startswith("finished")


def test_plain_tells_what_nodes_do_until_the_clock_runs(lines):
    states = {"learner/0": {"state": "compiling"}, "actor/0": {"state": "compiling"}}
    status = {**STATUS, "phase": "starting", "nodes": states}
    show = lines(running(["learner/0", "actor/0", "actor/1"]))
    assert show({}) == ["starting | learner/0, actor/0, actor/1: starting"]
    assert show({}) == []
    assert show(status) == ["starting | learner/0, actor/0: compiling | actor/1: starting"]
    states["actor/0"]["silent_seconds"] = 20.0  # while it compiles
    assert show(status) == []
    (shown,) = show(STATUS)
    assert shown.startswith("learning")


@pytest.mark.parametrize("notes", [True, False])
def test_warnings_of_the_counters_process_are_logged_once(make_view, tmp_path, caplog, notes):
    view = make_view(notes=notes)
    for told in ([], [("!", False)], [("!", False), ("its traceback", True)], []):
        write_json(tmp_path / STATUS_FILE, {**STATUS, "notes": told})
        assert not view.finished()
    warnings = [record for record in caplog.records if record.levelname == "WARNING"]
    found = [(record.message, record.file_only) for record in warnings]
    assert found == [("!", False), ("its traceback", True)] * notes


def test_a_program_is_finished_when_its_status_says_so(make_view, tmp_path):
    view = make_view()
    assert not view.finished()
    for phase, stop, finished in (
        ("evaluating", False, False),
        ("finished", False, True),
        ("learning", True, True),  # a logger ends it
    ):
        write_json(tmp_path / STATUS_FILE, {**STATUS, "phase": phase, "stop": stop})
        assert view.finished() == finished
