"""Calls between nodes through Ray, which a stand-in answers."""

import threading
import types

import pytest

pytest.importorskip("ray", reason="needs Ray (the extra `cluster`)")

import ray

from retrax.launchpad_programs.engines import ray_peers
from retrax.launchpad_programs.engines.ray_peers import Host, NoResult, RayPeer
from retrax.launchpad_programs.peers import Starting
from retrax.replay.interface import PeerLost

PENDING, DEAD = "no answer yet", "no answer any more"


class Ray:
    """Stands for Ray: actors by their names, each a function from a call to a tape of answers."""

    exceptions = ray.exceptions

    def __init__(self, monkeypatch):
        self.actors, self.lookups = {}, 0
        monkeypatch.setattr(ray_peers, "ray", self)

    def get_actor(self, name):
        self.lookups += 1
        return self.actors[name]() if name in self.actors else _raise(ValueError(name))

    def get(self, tape, timeout):
        answer = tape.pop(0)
        if answer is PENDING:
            raise ray.exceptions.GetTimeoutError
        return _raise(ray.exceptions.ActorDiedError()) if answer is DEAD else answer


def _raise(error):
    raise error


class Actor:
    """An actor whose calls have these tapes of answers, one after the other."""

    def __init__(self, *tapes):
        self.tapes = [list(tape) for tape in tapes]
        self.call = types.SimpleNamespace(remote=lambda *call: self.tapes.pop(0))


def test_answers_and_what_is_none(monkeypatch):
    """The name of a process that died may still be found, and then another process takes it."""
    fake, actors = Ray(monkeypatch), [Actor([PENDING, 7], [DEAD]), Actor([DEAD])]
    actors.append(Actor([NoResult("")], [NoResult("Traceback: ValueError: of the server")], [8]))
    fake.actors["replay/0"] = lambda: actors.pop(0)
    peer = RayPeer("replay/0", threading.Event())
    slow, lost = peer.send("get"), peer.send("get")
    with pytest.raises(TimeoutError, match="The replay gave no answer"):
        slow.result(0.0)
    assert slow.result(0.0) == 7
    for answer in (lost, None):
        with pytest.raises(PeerLost, match="The replay died before it answered"):
            (answer or peer.send("get")).result(0.0)
    with pytest.raises(Starting, match="The replay starts"):
        peer.send("get").result(0.0)
    with pytest.raises(RuntimeError, match="replay refused a call: Traceback: ValueErr"):
        peer.send("get").result(0.0)
    assert peer.call("get") == 8
    assert fake.lookups == 3
    with pytest.raises(PeerLost, match="The learner is not there"):
        RayPeer("learner/0", threading.Event()).send("get").result(0.0)


@pytest.fixture
def host(monkeypatch):
    context = types.SimpleNamespace(get_node_id=lambda: "home")
    monkeypatch.setattr(ray_peers.ray, "get_runtime_context", lambda: context)
    monkeypatch.setattr(ray_peers, "_MAKING_SECONDS", 0.0)
    return Host("home")


class Node:
    """A node that runs until it is stopped."""

    def __init__(self, stop):
        self.stop = stop

    def run(self):
        assert self.stop.wait(60)

    def add(self, one, other):
        return one + other


def test_a_host_answers_when_its_node_is_made(host, monkeypatch, tmp_path):
    made = threading.Event()

    def make_node(spec, config, peers, *, stop):
        assert made.wait(60)
        return Node(stop)

    monkeypatch.setattr(ray_peers, "make_node", make_node)
    monkeypatch.setattr(ray_peers, "_redirect_output", lambda log: None)
    monkeypatch.setattr(ray_peers, "_add_nice", lambda nice: None)
    monkeypatch.setattr(
        ray_peers.cloudpickle,
        "loads",
        lambda pickled: (types.SimpleNamespace(kind=types.SimpleNamespace(nice=0)), None),
    )
    texts = []
    thread = threading.Thread(target=lambda: texts.append(host.run(b"", tmp_path / "log")))
    thread.start()
    assert host.call("add", 1, 2) == NoResult("")
    made.set()
    monkeypatch.setattr(ray_peers, "_MAKING_SECONDS", 60.0)
    assert host.call("add", 1, 2) == 3
    answer = host.call("add", 1, "2")
    assert "TypeError: unsupported operand" in answer.traceback
    host.stop()
    thread.join(60)
    assert texts == [""]
