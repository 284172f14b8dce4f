"""The nodes of a program as threads of this process."""

import threading
import types

import pytest
from program_configs import make_workers
from waiting import wait_for

from retrax.launchpad_programs.engines import threads


class Node:
    """Runs until it is stopped, and answers."""

    def __init__(self, stop, fails=False):
        self.stop, self.fails = stop, fails

    def run(self):
        self.stop.wait()
        if self.fails:
            raise ValueError("the node's own sentence")

    def answer(self, number):
        return number + 1


@pytest.fixture
def start(monkeypatch):
    """Starts the nodes of a program of two workers, whose factory is given."""
    nodes = []

    def start(make):
        monkeypatch.setattr(threads, "make_node", make)
        nodes.extend(threads.start_threads(types.SimpleNamespace(run=make_workers())))
        return {node.name: node for node in nodes}

    yield start
    for node in nodes:
        node.stop()
    wait_for(lambda: all(node.ended() for node in nodes))


def test_ends_and_tracebacks(start):
    nodes = start(lambda spec, config, peers, stop: Node(stop, spec.name == "worker/1"))
    first, *others = sorted(nodes)
    assert (first, others[1:]) == ("counter/0", ["parameter_server/0", "worker/0", "worker/1"])
    counter, worker = nodes["counter/0"], nodes["worker/1"]
    assert counter.ended() == worker.ended() == ""
    worker.stop()
    wait_for(worker.ended)
    assert worker.ended() == "failed with ValueError"
    assert worker.traceback().endswith("ValueError: the node's own sentence\n")
    assert counter.ended() == counter.traceback() == ""
    counter.stop()
    wait_for(counter.ended)
    assert counter.ended() == "done"
    assert not counter.revive()
    assert not worker.revive()


def test_a_node_calls_those_that_were_made_before(start):
    """In its own thread; if one cannot be made, no thread is started."""
    answers = []

    def make(spec, config, peers, stop):
        if spec.name == "worker/0":
            answers.append(peers.peer("counter/0").call("answer", 1))
            answers.append(peers.peer("counter/0").send("answer", 2).result(0.0))
        return Node(stop)

    def failing(spec, *arguments, **options):
        if spec.name == "worker/1":
            raise ValueError("no maze")
        return make(spec, *arguments, **options)

    before = threading.active_count()
    with pytest.raises(ValueError, match="no maze"):
        start(failing)
    assert threading.active_count() == before
    assert answers == [2, 3]
    start(make)
