"""How programs end: nodes that are played, on a clock of their own."""

import math
import types

import pytest

from retrax.launchpad_programs import launcher


class Clock:
    """In place of `time`, and of a stop event that is set at a given time."""

    def __init__(self):
        self.now, self.stops_at, self.interrupts_at = 0.0, math.inf, math.inf

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds
        if self.now >= self.interrupts_at:
            self.interrupts_at = math.inf
            raise KeyboardInterrupt

    def wait(self, seconds):
        self.sleep(seconds)
        return self.now >= self.stops_at


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


@pytest.fixture
def clock(monkeypatch):
    """The launcher's."""
    clock = Clock()
    monkeypatch.setattr(launcher, "time", clock)
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
            finished=lambda: clock.now >= finished_at,
            stop=clock,
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


def test_nodes_that_end_with_a_signal_of_the_terminal_have_not_failed(play):
    """They may end before the launcher sees its own."""
    ending, _ = play(stops_at=5.15, actor={"at": 5.0, "how": KILLED})
    assert ending == ""


def test_nodes_that_are_stopped_while_they_start_have_not_failed(play):
    ending, _ = play(stops_at=1.0, learner={"how": "was killed by SIGTERM"})
    assert ending == ""


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
