"""Calls of other nodes: deaths, silence, stops and saves on a played clock, then each engine's."""

import contextlib
import importlib
import socket
import threading
import types
from concurrent.futures import Future

import pytest
from program_configs import make_config, make_workers
from waiting import wait_for

from retrax.launchpad_programs import node as node_module
from retrax.launchpad_programs.engines import threads
from retrax.launchpad_programs.node import CounterClient, RemotePeer, Starting
from retrax.replay.interface import PeerLost, Stopped, WaitTimeout


def raises(error):
    raise error


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

    def __init__(self, *tapes, name="parameter_server/0", after=10**6):
        super().__init__(name, Stop(after), self)
        self.tapes, self.calls, self.now = [list(tape) for tape in tapes], [], 0.0

    def monotonic(self):
        return self.now

    def _send(self, method, *arguments):
        self.calls.append((method, *arguments))
        return self.tapes.pop(0) if len(self.tapes) > 1 else self.tapes[0]

    def _read(self, tape, timeout):
        answer = tape.pop(0) if len(tape) > 1 else tape[0]
        self.now += timeout if answer is PENDING else 0.1
        return raises(answer) if isinstance(answer, Exception) else answer


@pytest.fixture
def play(monkeypatch):
    def play(*tapes, silent=120.0, **options):
        peer = Played(*tapes, **options)
        monkeypatch.setattr(node_module, "_SILENT_SECONDS", silent)
        return peer

    return play


def test_a_slow_answer_is_waited_for_and_the_call_is_made_once(play):
    peer = play([PENDING, PENDING, 7], [8])
    assert (peer.call("get", 3), peer.call("get", 4)) == (7, 8)
    assert peer.calls == [("get", 3), ("get", 4)]


@pytest.mark.parametrize("answer", [PENDING, LOST])
def test_a_call_is_made_once_even_if_the_program_stops_and_silence_is_an_error(play, answer):
    assert play([7], after=0).call("get") == 7
    with pytest.raises(Stopped, match="The parameter server gave no answer before the program"):
        play([answer], after=3).call("get")
    with pytest.raises(WaitTimeout, match=r"^actor/1 gave no answer for 4 s\.$"):
        play([answer], silent=4.0, name="actor/1").call("get")


def test_a_node_that_starts_is_not_silent(play):
    peer = play(*([PENDING, PENDING, STARTING] for _ in range(5)), [7], silent=4.0)
    assert peer.call("get") == 7
    assert peer.now > 10.0
    with pytest.raises(Stopped):  # it has nothing to save
        play([STARTING], after=0, name="replay/0").call("keep", 100)


def test_a_node_that_may_be_saving_is_waited_for_even_if_the_program_stops(play):
    """For an hour; a death begins the hour again, and ends the wait where the program stops."""
    assert play([*SAVE, LOST], [*SAVE, 7], name="replay/0").call("keep", 100) == 7
    assert play([*SAVE, 7], name="replay/0", after=0).call("keep", 100) == 7
    with pytest.raises(Stopped):
        play([*SAVE, LOST], name="replay/0", after=0).call("keep", 100)
    with pytest.raises(WaitTimeout, match=r"The counter gave no answer for 3600 s\."):
        play([PENDING], after=0, name="counter/0").call("report")


def test_a_client_numbers_its_reports_and_repeats_one_with_its_number(play, tmp_path):
    peer = play([{"phase": "learning"}], [LOST], [{"phase": "learning"}])
    peers = types.SimpleNamespace(peer=lambda name: peer, clock=peer)
    client = CounterClient(make_config(tmp_path, restarts=3), "learner/0", peers)
    for updates in range(2):
        assert client.report(updates=updates) == {"phase": "learning"}
    found = [(values["updates"], call) for _, _, call, values, _ in peer.calls]
    assert found == [(0, (3, 0)), (1, (3, 1)), (1, (3, 1))]


class Node:
    """Runs until it is stopped, and answers."""

    def __init__(self, stop, fails=False):
        self.stop, self.fails = stop, fails

    def run(self):
        assert self.stop.wait(60)
        if self.fails:
            raise ValueError("the node's own sentence")

    def add(self, one, other):
        return one + other


@pytest.fixture
def start(monkeypatch):
    """Starts the nodes of a program of two workers in threads; their factory is given."""
    nodes = []

    def start(make):
        monkeypatch.setattr(threads, "make_node", make)
        nodes.extend(threads.start_threads(types.SimpleNamespace(run=make_workers())))
        return {node.name: node for node in nodes}

    yield start
    for node in nodes:
        node.stop()
    wait_for(lambda: all(node.ended() for node in nodes))


def test_nodes_in_threads_call_those_made_before_and_end(start):
    """They call in their own thread; if one cannot be made, no thread is started."""
    answers, fails = [], {"worker/1"}

    def make(name, config, peers):
        if name == "worker/0":
            answers.append(peers.peer("counter/0").call("add", 1, 1))
            answers.append(peers.peer("counter/0").send("add", 1, 2).result(0.0))
        return Node(peers.stop, name in fails)

    def failing(name, *arguments):
        return raises(ValueError("no maze")) if name == "worker/1" else make(name, *arguments)

    before = threading.active_count()
    with pytest.raises(ValueError, match="no maze"):
        start(failing)
    assert threading.active_count() == before
    assert answers == [2, 3]
    nodes = start(make)
    assert sorted(nodes)[::2] == ["counter/0", "parameter_server/0", "worker/1"]
    counter, worker = nodes["counter/0"], nodes["worker/1"]
    assert counter.ended() == worker.ended() == counter.traceback() == ""
    for node, how in ((worker, "failed with ValueError"), (counter, "done")):
        node.stop()
        wait_for(node.ended)
        assert node.ended() == how
        assert not node.revive()
    assert worker.traceback().endswith("ValueError: the node's own sentence\n")


@pytest.fixture
def ray_engine():
    pytest.importorskip("ray", reason="needs Ray (the extra `cluster`)")
    return importlib.import_module("retrax.launchpad_programs.engines.ray")


DEAD = "no answer any more"


class Ray:
    """Stands for Ray: actors by their names, each a function from a call to a tape of answers."""

    def __init__(self, monkeypatch, engine):
        self.exceptions, self.actors, self.lookups = engine.ray.exceptions, {}, 0
        monkeypatch.setattr(engine, "ray", self)

    def get_actor(self, name):
        self.lookups += 1
        return self.actors[name]() if name in self.actors else raises(ValueError(name))

    def get(self, tape, timeout):
        answer = tape.pop(0)
        if answer is PENDING:
            raise self.exceptions.GetTimeoutError
        return raises(self.exceptions.ActorDiedError()) if answer is DEAD else answer


class Actor:
    """An actor whose calls have these tapes of answers, one after the other."""

    def __init__(self, *tapes):
        self.tapes = [list(tape) for tape in tapes]
        self.call = types.SimpleNamespace(remote=lambda *call: self.tapes.pop(0))


@pytest.mark.distributed
def test_answers_of_ray_and_what_is_none(monkeypatch, ray_engine):
    """The name of a process that died may still be found, and then another process takes it."""
    fake = Ray(monkeypatch, ray_engine)
    actors = [Actor([PENDING, (7, None)], [DEAD]), Actor([DEAD])]
    of_server = None, "Traceback: ValueError: of the server"
    actors.append(Actor([(None, "")], [of_server], [(8, None)]))
    fake.actors["replay/0"] = lambda: actors.pop(0)
    peer = ray_engine.RayPeer("replay/0", threading.Event())
    slow, lost = peer.send("get"), peer.send("get")
    with pytest.raises(TimeoutError, match="The replay gave no answer"):
        slow.result(0.0)
    assert slow.result(0.0) == 7
    for answer in (lost, None):
        with pytest.raises(PeerLost, match="The replay died before it answered"):
            (answer or peer.send("get")).result(0.0)
    with pytest.raises(Starting, match="The replay is starting"):
        peer.send("get").result(0.0)
    with pytest.raises(RuntimeError, match="replay refused a call: Traceback: ValueErr"):
        peer.send("get").result(0.0)
    assert peer.call("get") == 8
    assert fake.lookups == 3
    with pytest.raises(PeerLost, match="The learner cannot be reached"):
        ray_engine.RayPeer("learner/0", threading.Event()).send("get").result(0.0)


@pytest.mark.distributed
def test_a_host_of_ray_answers_when_its_node_is_made(ray_engine, monkeypatch, tmp_path):
    made = threading.Event()

    def make_node(name, config, peers):
        assert made.wait(60)
        return Node(peers.stop)

    context = types.SimpleNamespace(get_node_id=lambda: "home")
    monkeypatch.setattr(ray_engine.ray, "get_runtime_context", lambda: context)
    monkeypatch.setattr(ray_engine, "_MAKING_SECONDS", 0.0)
    monkeypatch.setattr(ray_engine, "make_node", make_node)
    monkeypatch.setattr(ray_engine, "_add_nice", lambda nice: None)
    monkeypatch.setattr(ray_engine.cloudpickle, "loads", lambda pickled: ("actor/0", None))
    host, texts = ray_engine.Host("elsewhere"), []
    thread = threading.Thread(target=lambda: texts.append(host.run(b"", tmp_path / "log")))
    thread.start()
    assert host.call("add", 1, 2) == (None, "")
    made.set()
    monkeypatch.setattr(ray_engine, "_MAKING_SECONDS", 60.0)
    assert host.call("add", 1, 2) == (3, None)
    assert "TypeError: unsupported operand" in host.call("add", 1, "2")[1]
    host.stop()
    thread.join(60)
    assert texts == [""]


class StatusError(Exception):
    """As Courier's error, which cannot be made in Python."""

    def __init__(self, name):
        super().__init__(name)
        self.code = types.SimpleNamespace(name=name)


@pytest.mark.distributed
@pytest.mark.parametrize(
    ("answer", "error", "match"),
    [
        (None, TimeoutError, "The counter gave no answer for 0.01 s"),
        ("the port is closed", PeerLost, "The counter cannot be reached"),
        (StatusError("UNAVAILABLE"), PeerLost, "cannot be reached"),
        (StatusError("DEADLINE_EXCEEDED"), PeerLost, "cannot be reached"),
        (StatusError("INTERNAL"), RuntimeError, "refused .*: INTERNAL"),
        (3, None, ""),
    ],
)
def test_answers_of_courier_and_what_is_none(monkeypatch, answer, error, match):
    pytest.importorskip("launchpad", reason="needs the distributed tier (Python 3.10, Linux)")
    launchpad = importlib.import_module("retrax.launchpad_programs.engines.launchpad")
    monkeypatch.setattr(launchpad, "StatusNotOk", StatusError)
    future = Future()
    if isinstance(answer, StatusError):
        future.set_exception(answer)
    elif answer == 3:
        future.set_result(3)
    with contextlib.closing(socket.create_server(("localhost", 0))) as server:
        client = types.SimpleNamespace(
            futures=types.SimpleNamespace(add=lambda *arguments: future),
            address=f"localhost:{server.getsockname()[1]}",
        )
        peer = launchpad.CourierPeer(client, "counter/0", threading.Event())
        sent = peer.send("add", 1, 2)
        if answer == "the port is closed":
            server.close()
        if error is None:
            assert sent.result(0.01) == answer
        else:
            with pytest.raises(error, match=match):
                sent.result(0.01)
