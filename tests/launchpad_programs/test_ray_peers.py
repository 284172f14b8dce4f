"""Calls between nodes through Ray, which a stand-in answers: deaths, silence, stops."""

import threading
import types

import pytest

pytest.importorskip("ray", reason="needs Ray (the extra `cluster`)")

import ray

from retrax.launchpad_programs import peers
from retrax.launchpad_programs.engines import ray_peers
from retrax.launchpad_programs.engines.ray_peers import Host, NoResult, RayPeer
from retrax.replay.interface import PeerLost, Stopped, WaitTimeout

PENDING, DEAD = "no answer yet", "no answer any more"


class Ray:
    """Stands for Ray: actors by their names, each a function from a call to a tape of answers."""

    exceptions = ray.exceptions

    def __init__(self, monkeypatch):
        self.actors, self.waited, self.lookups = {}, 0.0, 0
        monkeypatch.setattr(ray_peers, "ray", self)
        monkeypatch.setattr(peers.time, "monotonic", lambda: self.waited)

    def get_actor(self, name):
        self.lookups += 1
        return self.actors[name]() if name in self.actors else _raise(ValueError(name))

    def get(self, tape, timeout):
        answer = tape.pop(0)
        if answer is PENDING:
            self.waited += timeout
            raise ray.exceptions.GetTimeoutError
        return _raise(ray.exceptions.ActorDiedError()) if answer is DEAD else answer


def _raise(error):
    raise error


class Actor:
    """An actor whose calls have these tapes of answers, one after the other."""

    def __init__(self, *tapes):
        self.tapes, self.calls = [list(tape) for tape in tapes], []
        self.call = types.SimpleNamespace(remote=self._call)

    def _call(self, method, *arguments):
        self.calls.append((method, *arguments))
        return self.tapes.pop(0)


class Stop:
    """A stop event that is set after some waits."""

    def __init__(self, after=10**6):
        self.after = after

    def is_set(self):
        self.after -= 1
        return self.after < 0

    def wait(self, timeout):
        return self.is_set()


def make(monkeypatch, *actors, stop=None, name="parameter_server/0", silent=120.0):
    """A peer of a node that is these actors, one after the other, and the stand-in for Ray."""
    fake, left = Ray(monkeypatch), list(actors)
    fake.actors[name] = lambda: left.pop(0) if left else _raise(ValueError("none"))
    monkeypatch.setattr(peers, "_SILENT_SECONDS", silent)
    return RayPeer(name, stop or Stop()), fake


def test_a_slow_answer_is_waited_for_and_the_call_is_made_once(monkeypatch):
    actor = Actor([PENDING, PENDING, 7], [8])
    peer, fake = make(monkeypatch, actor)
    assert (peer.call("get", 3), peer.call("get", 4)) == (7, 8)
    assert actor.calls == [("get", 3), ("get", 4)]
    assert fake.lookups == 1


def test_a_call_is_made_again_to_the_process_that_takes_the_name(monkeypatch):
    first, second = Actor([PENDING, DEAD]), Actor([7])
    peer, _ = make(monkeypatch, first, second)
    assert peer.call("get", 3) == 7
    assert first.calls == second.calls == [("get", 3)]


def test_the_name_of_a_dead_process_may_still_be_found(monkeypatch):
    peer, fake = make(monkeypatch, Actor([DEAD]), Actor([DEAD]), Actor([7]))
    assert peer.call("get") == 7
    assert fake.lookups == 3


def test_a_node_that_is_not_there_is_looked_for_until_the_program_stops(monkeypatch):
    peer, fake = make(monkeypatch, stop=Stop(after=4))
    with pytest.raises(Stopped, match="The parameter server gave no answer before the program"):
        peer.call("get")
    assert fake.lookups == 5


def test_a_call_is_made_once_even_if_the_program_stops(monkeypatch):
    peer, _ = make(monkeypatch, Actor([7], [PENDING, 8]), stop=Stop(after=0))
    assert peer.call("get") == 7
    with pytest.raises(Stopped):
        peer.call("get")


def test_a_silent_node_is_an_error_after_a_while(monkeypatch):
    peer, _ = make(monkeypatch, Actor([PENDING] * 10), silent=4.0)
    with pytest.raises(WaitTimeout, match=r"The parameter server gave no answer for 4 s\."):
        peer.call("get")


def test_a_node_that_may_be_saving_is_waited_for_even_if_the_program_stops(monkeypatch):
    """For an hour; a death begins the hour again, and ends the wait where the program stops."""
    saves = [PENDING] * 3000
    actors = Actor([*saves, DEAD]), Actor([*saves, 7], [8])
    peer, fake = make(monkeypatch, *actors, name="replay/0")
    assert peer.call("keep", 100) == 7
    assert fake.waited == 6000.0
    peer, _ = make(monkeypatch, Actor([*saves, 7]), name="replay/0", stop=Stop(after=0))
    assert peer.call("keep", 100) == 7
    peer, _ = make(monkeypatch, Actor([*saves, DEAD]), name="replay/0", stop=Stop(after=0))
    with pytest.raises(Stopped, match="The replay gave no answer before the program ended"):
        peer.call("keep", 100)
    peer, _ = make(monkeypatch, Actor([PENDING] * 4000), name="counter/0", stop=Stop(after=0))
    with pytest.raises(WaitTimeout, match=r"The counter gave no answer for 3600 s\."):
        peer.call("report")


def test_a_node_that_starts_is_not_silent(monkeypatch):
    starting = [[PENDING, PENDING, NoResult("")] for _ in range(5)]
    peer, fake = make(monkeypatch, Actor(*starting, [7]), silent=4.0)
    assert peer.call("get") == 7
    assert fake.waited == 10.0
    stops = Stop(after=0)
    peer, _ = make(monkeypatch, Actor([NoResult("")], [7]), stop=stops, name="replay/0")
    with pytest.raises(Stopped):  # it has nothing to save
        peer.call("keep", 100)


def test_an_error_of_the_method_has_the_other_nodes_traceback(monkeypatch):
    peer, _ = make(monkeypatch, Actor([NoResult("Traceback: ValueError: of the server")]))
    with pytest.raises(RuntimeError, match="parameter server refused a call: Traceback: ValueErr"):
        peer.call("get")


def test_answers_that_are_not_waited_for(monkeypatch):
    peer, _ = make(monkeypatch, Actor([PENDING, 7], [DEAD], [NoResult("")]), Actor([8]))
    slow, lost = peer.send("get"), peer.send("get")
    with pytest.raises(TimeoutError, match="gave no answer"):
        slow.result(0.0)
    assert slow.result(0.0) == 7
    with pytest.raises(PeerLost, match="The parameter server died before it answered"):
        lost.result(0.0)
    assert peer.send("get").result(0.0) == 8
    peer.forget()
    with pytest.raises(PeerLost, match="is not there"):
        peer.send("get").result(0.0)


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
