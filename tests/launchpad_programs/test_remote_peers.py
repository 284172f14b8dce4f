"""Calls of other nodes, whatever carries them: deaths, silence, stops, saves; time is played."""

import pytest

from retrax.launchpad_programs import peers
from retrax.launchpad_programs.node import CounterClient
from retrax.launchpad_programs.peers import RemotePeer, Starting
from retrax.replay.interface import PeerLost, Stopped, WaitTimeout

PENDING, LOST, STARTING = TimeoutError(), PeerLost("died"), Starting("is made")
SAVE = [PENDING] * 3000  # that takes 50 minutes


class Stop:
    """A stop event that is set after some looks."""

    def __init__(self, after=10**6):
        self.after = after

    def is_set(self):
        self.after -= 1
        return self.after < 0

    def wait(self, timeout):
        return self.is_set()


class Played(RemotePeer):
    """Each call has a tape of answers, the last of which stays."""

    def __init__(self, *tapes, name="parameter_server/0", stop=None, ends_last=False):
        super().__init__(name, stop or Stop(), ends_last=ends_last)
        self.tapes, self.calls, self.now = [list(tape) for tape in tapes], [], 0.0

    def monotonic(self):
        return self.now

    def send(self, method, *arguments):
        self.calls.append((method, *arguments))
        return _Answer(self, self.tapes.pop(0) if len(self.tapes) > 1 else self.tapes[0])


class _Answer:
    def __init__(self, peer, tape):
        self.peer, self.tape = peer, tape

    def result(self, timeout):
        answer = self.tape.pop(0) if len(self.tape) > 1 else self.tape[0]
        self.peer.now += timeout if answer is PENDING else 0.1
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.fixture
def play(monkeypatch):
    def play(*tapes, silent=120.0, after=10**6, **options):
        peer = Played(*tapes, stop=Stop(after), **options)
        monkeypatch.setattr(peers, "time", peer)
        monkeypatch.setattr(peers, "_SILENT_SECONDS", silent)
        return peer

    return play


def test_a_slow_answer_is_waited_for_and_the_call_is_made_once(play):
    peer = play([PENDING, PENDING, 7], [8])
    assert (peer.call("get", 3), peer.call("get", 4)) == (7, 8)
    assert peer.calls == [("get", 3), ("get", 4)]


def test_a_call_is_made_again_when_the_node_has_died(play):
    peer = play([PENDING, LOST], [LOST], [7])
    assert peer.call("get", 3) == 7
    assert peer.calls == [("get", 3)] * 3


@pytest.mark.parametrize("answer", [PENDING, LOST])
def test_a_call_is_made_once_even_if_the_program_stops(play, answer):
    assert play([7], after=0).call("get") == 7
    with pytest.raises(Stopped, match="The parameter server gave no answer before the program"):
        play([answer], after=3).call("get")


@pytest.mark.parametrize("answer", [PENDING, LOST])
def test_a_silent_node_is_an_error_after_a_while(play, answer):
    with pytest.raises(WaitTimeout, match=r"^actor/1 gave no answer for 4 s\.$"):
        play([answer], silent=4.0, name="actor/1").call("get")


def test_a_node_that_starts_is_not_silent(play):
    peer = play(*([PENDING, PENDING, STARTING] for _ in range(5)), [7], silent=4.0)
    assert peer.call("get") == 7
    assert peer.now > 10.0
    with pytest.raises(Stopped):  # it has nothing to save
        play([STARTING], after=0, ends_last=True).call("keep", 100)


def test_a_node_that_may_be_saving_is_waited_for_even_if_the_program_stops(play):
    """For an hour; a death begins the hour again, and ends the wait where the program stops."""
    assert play([*SAVE, LOST], [*SAVE, 7], ends_last=True).call("keep", 100) == 7
    assert play([*SAVE, 7], ends_last=True, after=0).call("keep", 100) == 7
    with pytest.raises(Stopped):
        play([*SAVE, LOST], ends_last=True, after=0).call("keep", 100)
    with pytest.raises(WaitTimeout, match=r"The counter gave no answer for 3600 s\."):
        play([PENDING], ends_last=True, after=0, name="counter/0").call("report")


def test_a_client_numbers_its_reports_and_repeats_one_with_its_number(play):
    peer = play([{"phase": "learning"}], [LOST], [{"phase": "learning"}])
    client = CounterClient(peer, "learner/0", restarts=3)
    for updates in range(2):
        assert client.report(updates=updates) == {"phase": "learning"}
    found = [(values["updates"], call) for _, _, call, values, _ in peer.calls]
    assert found == [(0, (3, 0)), (1, (3, 1)), (1, (3, 1))]
