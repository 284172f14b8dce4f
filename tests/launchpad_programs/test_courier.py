"""Calls between nodes over Courier."""

import threading
import types

import pytest

pytest.importorskip("launchpad", reason="needs the distributed tier (Python 3.10, Linux)")

from retrax.launchpad_programs.engines.courier import CourierPeers
from retrax.launchpad_programs.node import CounterClient
from retrax.launchpad_programs.peers import until_answered
from retrax.replay.interface import Stopped, WaitTimeout

pytestmark = pytest.mark.distributed


class StatusError(Exception):
    """As Courier's error, which cannot be made in Python."""

    def __init__(self, name="DEADLINE_EXCEEDED"):
        super().__init__(name)
        self.code = type("Code", (), {"name": name})


@pytest.fixture(autouse=True)
def status_error(monkeypatch):
    monkeypatch.setattr("retrax.launchpad_programs.engines.courier.StatusNotOk", StatusError)


def answering(*answers):
    left = list(answers)

    def method():
        answer = left.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    return method


def call(method, stop=None):
    client = types.SimpleNamespace(get=method)
    peers = CourierPeers(None, {"counter/0": client}, stop or threading.Event())
    return peers.peer("counter/0").call("get")


def test_calls_are_repeated_until_they_are_answered():
    assert call(answering(StatusError(), StatusError("UNAVAILABLE"), 3)) == 3


def test_an_error_of_the_other_node_is_raised_here():
    with pytest.raises(RuntimeError, match="The counter refused a call: INTERNAL"):
        call(answering(StatusError("INTERNAL"), 3))


def test_calls_end_with_the_program_and_after_a_time_without_answer():
    with pytest.raises(WaitTimeout, match="The counter gave no answer for 0 s"):
        until_answered(answering(TimeoutError()), "The counter", threading.Event(), max_wait=0.0)
    stop = threading.Event()
    stop.set()
    with pytest.raises(Stopped, match="The counter gave no answer before"):
        call(answering(StatusError()), stop)


def test_a_client_numbers_its_reports_and_repeats_one_with_its_number():
    """Its answer is lost once, as when a connection breaks."""
    calls = []

    class Lossy:
        def report(self, name, call, values, taken):
            calls.append((name, values, call))
            if len(calls) == 2:
                raise StatusError("UNAVAILABLE")
            return {"phase": "learning"}

    peers = CourierPeers(None, {"counter/0": Lossy()}, threading.Event())
    client = CounterClient(peers.peer("counter/0"), "learner/0", restarts=3)
    for updates in range(2):
        assert client.report(updates=updates) == {"phase": "learning"}
    expected = [(0, (3, 0)), (1, (3, 1)), (1, (3, 1))]
    assert [(values["updates"], call) for _, values, call in calls] == expected
