"""How programs end, and how they are shown: nodes that are played, on a clock of their own."""

import logging
import math
import os
import re
import types

import pytest
from node_fakes import Clock
from program_configs import make_config

from retrax.basics.files import write_json
from retrax.launchpad_programs import launcher
from retrax.launchpad_programs.config import STATUS as STATUS_FILE
from retrax.launchpad_programs.launcher import StatusView, line
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

    def revive(self):
        return False

    def stop(self):
        self.asked = min(self.asked, self.clock.now)

    def kill(self):
        self.killed = self.clock.now

    def traceback(self):
        return f"Traceback of {self.name}"


KILLED = "was killed by SIGKILL"
NEVER, FOR_EVER = math.inf, {"after": math.inf}


@pytest.fixture
def clock(monkeypatch):
    """The launcher's."""
    monkeypatch.setattr(launcher, "REAL", clock := Clock())
    monkeypatch.setattr(launcher, "SAVE_SECONDS", 20.0)
    monkeypatch.setattr(launcher, "_LAST_SECONDS", 10.0)
    return clock


@pytest.fixture
def play(clock):
    """Supervises nodes that differ from harmless ones as given; how they end, and the nodes."""

    def play(finished_at=NEVER, stops_at=NEVER, **changes):
        clock.stops_at = stops_at
        labels = ("counter", "replay", "learner", "actor")
        nodes = {x: Node(clock, f"{x}/0", **changes.get(x, {})) for x in labels}
        running, finished = list(nodes.values()), (lambda: clock.now >= finished_at)
        ending = launcher.supervise(running, finished, clock, clock=clock)
        assert all(node.ended() for node in nodes.values())
        return ending, types.SimpleNamespace(**nodes)

    return play


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        *(({x: {"at": 5.0, "how": KILLED}}, f"{x}/0 {KILLED}.") for x in ("actor", "learner")),
        ({"counter": {"at": 5.0, "how": KILLED}}, f"counter/0 {KILLED}."),
        ({"actor": {"at": 5.0}}, "actor/0 ended too early."),
        (  # while it saves
            {"finished_at": 5.0, "learner": {"after": 1.0, "how": "failed with exit code 1"}},
            "learner/0 failed with exit code 1.",
        ),
        # By a signal of the terminal, before the launcher sees its own; and while they start.
        ({"stops_at": 5.15, "actor": {"at": 5.0, "how": KILLED}}, ""),
        ({"stops_at": 1.0, "learner": {"how": "was killed by SIGTERM"}}, ""),
    ],
)
def test_how_a_program_ends(play, changes, expected):
    """The sentence has the traceback of the node that failed, and all others are stopped then."""
    ending, nodes = play(**changes)
    sentence, _, traceback = ending.partition("\n")
    assert sentence == expected
    assert traceback == (f"Traceback of {expected.split()[0]}" if expected else "")
    assert max(node.asked for node in vars(nodes).values()) < 6.5


def test_a_program_ends_with_the_process_that_called_launch(make_view):
    view = make_view()
    for view.caller, ends in ((None, False), (str(os.getppid()), False), (str(os.getpid()), True)):
        assert view.finished() == ends


@pytest.mark.parametrize("cause", ["finished_at", "stops_at"])
def test_nodes_that_save_end_before_those_that_they_need(play, cause):
    ending, nodes = play(**{cause: 5.0}, learner={"after": 15.0})
    assert ending == ""
    assert 5.0 <= nodes.actor.asked == nodes.learner.asked < 5.5
    assert nodes.learner.end == nodes.learner.asked + 15.0  # it was not killed
    assert nodes.learner.end <= nodes.counter.asked == nodes.replay.asked < nodes.learner.end + 0.5


def test_nodes_that_ignore_their_stop_event_are_killed(play):
    """Those that save get longer, and so do those that the others need."""
    ending, nodes = play(stops_at=5.0, actor=FOR_EVER, learner={"after": 10.0})
    assert ending == ""
    assert 3.0 <= nodes.actor.killed - nodes.actor.asked < 3.5
    ending, nodes = play(stops_at=5.0, learner=FOR_EVER, replay=FOR_EVER)
    assert ending == "learner/0 was killed by SIGKILL.\nTraceback of learner/0"
    assert 20.0 <= nodes.learner.killed - nodes.learner.asked < 20.5
    assert 10.0 <= nodes.replay.killed - nodes.replay.asked < 10.5


@pytest.mark.parametrize("label", ["learner", "replay"])
def test_a_second_interrupt_waits_for_no_node(play, clock, label):
    clock.interrupts_at = 8.0
    with pytest.raises(KeyboardInterrupt):
        play(stops_at=5.0, **{label: FOR_EVER})
    assert clock.now < 11.5


def test_nodes_lost_with_their_engine_are_not_waited_for(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv(launcher.CALLER, "1")

    def start(config):
        assert launcher.CALLER not in os.environ, "nodes would inherit it"
        raise EngineLost("Ray has ended.")

    config = make_config(tmp_path)
    summary = launcher.run_program(config, start, name="ray", plain=True, notes=["first"])
    assert (summary.failed, summary.finished) == (True, False)
    expected = ["first", "Ray has ended.", "Stopped at 0 steps and 0 updates."]
    assert capsys.readouterr().err.splitlines() == expected


STATUS = {
    "phase": "learning",
    "last_step": 60_000,
    "steps": 1200,
    "updates": 140,
    "steps_per_second": 480.0,
    "updates_per_second": 96.0,
    "eta_seconds": 122.4,
    "nodes": {
        "actor/0": {"staleness": 3, "return": -0.5},
        "actor/1": {"staleness": 5},
        "evaluator/0": {"return": 0.25},
        "learner/0": {"idle_share": 0.25, "replay_rows": 1190},
    },
}
STARTING = {**STATUS, "phase": "starting", "eta_seconds": None, "nodes": {}}
WORKERS = {
    "parameter_server/0": {"idle_share": 0.5},
    "worker/0": {"replay_rows": 4, "staleness": 1.0, "return": 1.0},
    "worker/1": {"replay_rows": 5, "staleness": 2.0},
}


def test_the_line_by_hand():
    assert line(STATUS) == (
        "learning | 1200/60000 steps | 480 steps/s | 140 updates, 96.0/s, idle 25% | "
        "replay 1190 rows | staleness 4 | return -0.5 (exploring), 0.25 (greedy) | ETA 0:02:02"
    )
    assert "| restarts: 3 |" in line({**STATUS, "restarts": {"replay/0": 2, "actor/0": 1}})
    shown = line({**STATUS, "nodes": WORKERS})
    assert "idle 50% | replay 9 rows | staleness 1.5 | return 1 (exploring) |" in shown
    assert "staleness - | return - | ETA -" in line(STARTING)


@pytest.fixture
def make_view(tmp_path, monkeypatch, caplog):
    """Makes the view of a program without a terminal, whose lines are in `caplog`."""
    monkeypatch.setattr(launcher, "_STATUS_SECONDS", 0.0)
    caplog.set_level(logging.INFO, "retrax")

    def make(nodes=(), notes=True, plain=True):
        config = types.SimpleNamespace(directory=tmp_path)
        return StatusView(config, nodes, plain=plain, notes=notes)

    return make


def test_plain_tells_what_nodes_do_and_then_a_line_every_ten_seconds(make_view, clock, caplog):
    """And one at each change of phase."""
    names = ("learner/0", "actor/0", "actor/1")
    view = make_view([Node(Clock(), name, at=0.0, how="") for name in names])
    states = {"learner/0": {"state": "compiling"}, "actor/0": {"state": "compiling"}}
    finished = {**STATUS, "phase": "finished"}
    compiling = "starting | learner/0, actor/0: compiling | actor/1: starting"
    for clock.now, status, expected in (
        (0.0, {}, ["starting | learner/0, actor/0, actor/1: starting"]),
        (0.0, {}, []),
        (0.0, {**STARTING, "nodes": states}, [compiling]),
        (20.0, {**STARTING, "nodes": states}, []),  # while it compiles
        (20.0, STATUS, [line(STATUS)]),
        (29.0, STATUS, []),
        (30.0, STATUS, [line(STATUS)]),
        (39.0, STATUS, []),
        (39.0, finished, [line(finished)]),
    ):
        caplog.clear()
        view.show(status)
        assert caplog.messages == expected


def test_a_live_line_has_what_nodes_say_as_it_is(make_view, monkeypatch, capsys):
    monkeypatch.setenv("FORCE_COLOR", "1")  # as in a terminal
    with make_view([Node(Clock(), "actor/0", at=0.0, how="failed: [/x]")], plain=False) as view:
        view.show({})
    shown = re.sub(r"\x1b\[.*?[a-zA-Z]", "", capsys.readouterr().err)
    assert "starting | actor/0: failed: [/x]" in shown


@pytest.mark.parametrize("notes", [True, False])
def test_warnings_of_the_counters_process_are_logged_once(make_view, tmp_path, caplog, notes):
    view = make_view(notes=notes)
    for told in ([], [("!", False)], [("!", False), ("its traceback", True)], []):
        write_json(tmp_path / STATUS_FILE, {**STATUS, "notes": told})
        assert not view.finished()
    found = [(r.message, r.file_only) for r in caplog.records if r.levelname == "WARNING"]
    assert found == [("!", False), ("its traceback", True)] * notes


def test_a_program_is_finished_when_its_status_says_so(make_view, tmp_path):
    view = make_view()
    assert not view.finished()
    cases = ("evaluating", False, False), ("finished", False, True), ("learning", True, True)
    for phase, stop, finished in cases:  # a logger ends the last one
        write_json(tmp_path / STATUS_FILE, {**STATUS, "phase": phase, "stop": stop})
        assert view.finished() == finished
