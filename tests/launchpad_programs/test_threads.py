"""The nodes of a program as threads of this process."""

import threading

import pytest
from program_configs import make_workers
from waiting import wait_for

from retrax.launchpad_programs.engines import threads
from retrax.replay.waiting import Stopped


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
    """Starts the nodes of a program, whose factory is given."""
    nodes = []

    def start(config, make):
        monkeypatch.setattr(threads, "make_node", make)
        nodes.extend(threads.ThreadEngine().start(config))
        return {node.name: node for node in nodes}

    yield start
    for node in nodes:
        node.stop()
    wait_for(lambda: all(node.ended() for node in nodes))


def config_of(run):
    return type("Config", (), {"run": run})


def test_ends_and_tracebacks(start):
    nodes = start(
        config_of(make_workers()),
        lambda spec, config, peers, stop: Node(stop, spec.name == "worker/1"),
    )
    assert sorted(nodes) == [
        "counter/0",
        "evaluator/0",
        "parameter_server/0",
        "worker/0",
        "worker/1",
    ]
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


def test_a_call_waits_until_the_node_is_made_or_the_caller_is_stopped(start):
    made, answers = threading.Event(), []

    def make(spec, config, peers, stop):
        if spec.name == "counter/0":
            assert made.wait(10)
        elif spec.name == "worker/0":
            answers.append(peers.peer("counter/0").call("answer", 1))
            answers.append(peers.peer("counter/0").send("answer", 2).result(0.0))
        elif spec.name == "worker/1":
            answers.append("asks")
            peers.once("counter/0").call("answer", 3)
        return Node(stop)

    nodes = start(config_of(make_workers()), make)
    wait_for(lambda: answers == ["asks"])
    nodes["worker/1"].stop()
    wait_for(nodes["worker/1"].ended)
    assert nodes["worker/1"].ended() == "done"  # it has nothing to save
    made.set()
    wait_for(lambda: answers == ["asks", 2, 3])


def test_a_node_that_was_made_answers_a_caller_that_is_stopped(start):
    stopped = threading.Event()
    stopped.set()
    made = {"counter/0": threads.concurrent.futures.Future()}
    peers = threads.ThreadPeers(None, made, stopped)
    with pytest.raises(Stopped, match="before the node was made"):
        peers.peer("counter/0").call("answer", 1)
    made["counter/0"].set_result(Node(stopped))
    assert peers.peer("counter/0").call("answer", 1) == 2
