"""Answers over Courier, whose client a stand-in plays."""

import contextlib
import socket
import threading
import types
from concurrent.futures import Future

import pytest

pytest.importorskip("launchpad", reason="needs the distributed tier (Python 3.10, Linux)")

from retrax.launchpad_programs.engines import courier
from retrax.replay.interface import PeerLost

pytestmark = pytest.mark.distributed


class StatusError(Exception):
    """As Courier's error, which cannot be made in Python."""

    def __init__(self, name):
        super().__init__(name)
        self.code = types.SimpleNamespace(name=name)


@pytest.fixture
def answer(monkeypatch):
    """The answer to a call of the counter, to whose future something happens."""
    monkeypatch.setattr(courier, "StatusNotOk", StatusError)
    future = Future()

    def answer(address, happens):
        happens(future)
        futures = types.SimpleNamespace(add=lambda *arguments: future)
        client = types.SimpleNamespace(futures=futures, address=address)
        peers = courier.CourierPeers(None, {"counter/0": client}, threading.Event())
        return peers.peer("counter/0").send("add", 1, 2).result(0.01)

    return answer


@pytest.fixture
def address():
    """Of a server that listens."""
    with socket.create_server(("localhost", 0)) as server:
        yield f"localhost:{server.getsockname()[1]}"


@pytest.mark.parametrize(
    ("happens", "error", "match"),
    [
        (lambda future: None, TimeoutError, "The counter gave no answer for 0.01 s"),
        (lambda f: f.set_exception(StatusError("UNAVAILABLE")), PeerLost, "is not there"),
        (lambda f: f.set_exception(StatusError("DEADLINE_EXCEEDED")), PeerLost, "is not there"),
        (lambda f: f.set_exception(StatusError("INTERNAL")), RuntimeError, "refused .*: INTERNAL"),
    ],
)
def test_answers_and_what_is_none(answer, address, happens, error, match):
    with pytest.raises(error, match=match):
        answer(address, happens)
    if error is TimeoutError:
        assert answer(address, lambda future: future.set_result(3)) == 3


def test_a_node_whose_port_is_closed_is_not_there(answer):
    with contextlib.closing(socket.create_server(("localhost", 0))) as server:
        gone = f"localhost:{server.getsockname()[1]}"
    with pytest.raises(PeerLost, match="The counter is not there"):
        answer(gone, lambda future: None)
