"""Calls between nodes over Courier."""

import contextlib
import socket
import threading
import time
from concurrent.futures import Future

import pytest

pytest.importorskip("launchpad", reason="needs the distributed tier (Python 3.10, Linux)")

from retrax.launchpad_programs import peers
from retrax.launchpad_programs.engines.courier import CourierPeers
from retrax.launchpad_programs.node import CounterClient
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


class Client:
    """Courier's client of a server at a port, whose answers are these, one after the other."""

    def __init__(self, address, method):
        self.address, self.futures = address, self
        self.get = self.report = lambda *arguments: self._answer(method, arguments)

    def _answer(self, method, arguments):
        future = Future()
        try:
            answer = method(*arguments)
        except Exception as error:
            future.set_exception(error)
            return future
        if answer is not PENDING:
            future.set_result(answer)
        return future


PENDING = object()


@pytest.fixture
def address(monkeypatch):
    """Of a server that listens."""
    monkeypatch.setattr(peers, "_ANSWER_SECONDS", 0.01)
    with socket.create_server(("localhost", 0)) as server:
        yield f"localhost:{server.getsockname()[1]}"


def answering(*answers):
    left = list(answers)

    def method():
        answer = left.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    return method


def call(address, *answers, name="parameter_server/0", stop=None):
    client = Client(address, answering(*answers))
    return CourierPeers(None, {name: client}, stop or threading.Event()).peer(name).call("get")


def test_calls_are_repeated_until_they_are_answered(address):
    assert call(address, StatusError(), StatusError("UNAVAILABLE"), 3) == 3


def test_an_error_of_the_other_node_is_raised_here(address):
    with pytest.raises(RuntimeError, match="The counter refused a call: INTERNAL"):
        call(address, StatusError("INTERNAL"), 3, name="counter/0")


def test_a_node_that_does_not_answer_is_called_once(address, monkeypatch):
    monkeypatch.setattr(peers, "_SILENT_SECONDS", 0.1)
    with pytest.raises(WaitTimeout, match="The parameter server gave no answer for 0 s"):
        call(address, PENDING)
    monkeypatch.setattr(peers, "SAVE_SECONDS", 0.3)
    began = time.monotonic()
    with pytest.raises(WaitTimeout, match="The counter gave no answer for 0 s"):
        call(address, PENDING, name="counter/0")
    assert time.monotonic() - began >= 0.3


def test_calls_end_with_the_program_unless_the_node_may_be_saving(address, monkeypatch):
    stop = threading.Event()
    stop.set()
    with pytest.raises(Stopped, match="The parameter server gave no answer before"):
        call(address, PENDING, stop=stop)
    monkeypatch.setattr(peers, "SAVE_SECONDS", 0.3)
    with pytest.raises(WaitTimeout):
        call(address, PENDING, name="counter/0", stop=stop)
    with contextlib.closing(socket.create_server(("localhost", 0))) as server:
        gone = f"localhost:{server.getsockname()[1]}"
    with pytest.raises(Stopped, match="The counter gave no answer before"):
        call(gone, PENDING, name="counter/0", stop=stop)


def test_a_client_numbers_its_reports_and_repeats_one_with_its_number(address):
    """Its answer is lost once, as when a connection breaks."""
    calls = []

    def report(name, call, values, taken):
        calls.append((name, values, call))
        if len(calls) == 2:
            raise StatusError("UNAVAILABLE")
        return {"phase": "learning"}

    made = CourierPeers(None, {"counter/0": Client(address, report)}, threading.Event())
    client = CounterClient(made.peer("counter/0"), "learner/0", restarts=3)
    for updates in range(2):
        assert client.report(updates=updates) == {"phase": "learning"}
    expected = [(0, (3, 0)), (1, (3, 1)), (1, (3, 1))]
    assert [(values["updates"], call) for _, values, call in calls] == expected
