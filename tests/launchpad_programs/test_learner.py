"""The learner's node by hand: no Launchpad, no processes, stand-ins for the other nodes."""

import math
import threading
from unittest.mock import Mock

import numpy as np
import pytest
from node_fakes import Counter, DirectPeers, Logger, Parameters
from program_configs import make_config, make_run
from run_files import snapshots

from retrax.launchpad_programs import learner as learner_module
from retrax.launchpad_programs.kinds import program_columns
from retrax.launchpad_programs.learner import LearnerNode
from retrax.replay.interface import ReplayStatus, Stopped
from retrax.training.learner import MetricsAccumulator, Snapshot

WEIGHTS = {"w": np.zeros(2, np.float32)}


class Learner:
    """Updates in every step."""

    def __init__(self):
        self.updates, self.saves, self.published = 0, 0, []
        self.idle_seconds, self.closed = 0.0, False
        self.metrics, self.state, self.restored = MetricsAccumulator(), WEIGHTS, None

    def compile(self):
        pass

    def publish(self):
        self.published.append(self.updates)

    def step(self, timeout):
        self.updates += 1
        self.metrics.add({"loss": float(self.updates)})

    def snapshot(self):
        self.saves += 1
        return Snapshot(WEIGHTS, {"rows": WEIGHTS["w"]}, {"updates": self.updates})

    def restore(self, snapshot):
        self.restored, self.updates = snapshot.counters, snapshot.counters["updates"]

    def close(self):
        self.closed = True


class Replay:
    """Whose state cannot be kept: it has died."""

    def status(self):
        return ReplayStatus(10, 9, None, 3, 1.0)

    def keep(self, steps):
        raise Stopped

    prune = keep


@pytest.fixture
def make_node(tmp_path, monkeypatch):
    """Makes and starts a node: (counter, learner, node)."""
    monkeypatch.setattr(learner_module, "_REPORT_SECONDS", 0.0)

    def make(counter=None, *, stop=None, starts=True, logger=None, kept=None, **changes):
        learner, counter = Learner(), counter or Counter()
        node = LearnerNode(
            make_config(tmp_path, **{"snapshot_every": 100, **changes}),
            learner,
            Parameters(),
            DirectPeers(counter, stop=stop),
            metric_names=["loss"],
            replay=Replay(),
            kept=kept,
            logger=logger,
        )
        if starts:
            node.start()
        return counter, learner, node

    return make


def test_it_saves_by_time_too(make_node, tmp_path, monkeypatch):
    monkeypatch.setattr("retrax.training.snapshots._SHARE", math.inf)
    counter, _, node = make_node(snapshot_every=500, snapshot_seconds=0.0)
    for counter.steps in (0, 50, 50, 60):
        node.step()
    assert snapshots(tmp_path) == [50, 60]
    node.close()


def test_it_reports_and_saves_at_its_steps(make_node, tmp_path):
    """The metrics go to a user's logger of Acme, too."""
    logger = Logger()
    counter, learner, node = make_node(logger=logger)
    assert counter.started == ({}, ["loss", *program_columns(make_run())])
    assert learner.published == [0]
    for counter.steps in (50, 99, 100, 150, 230):
        node.step()
    node.close()
    assert snapshots(tmp_path) == [100, 230]
    assert learner.saves == 2  # not once more at the end: there is one of this step
    assert learner.closed
    reports = [values for _, values in counter.reports if "updates" in values]
    assert reports[1]["updates"] == 2
    assert reports[1]["metrics"] == {"loss": 2.0}
    assert (reports[1]["replay_rows"], reports[1]["learning_since"]) == (10, 3)
    assert logger.data[0] == {"loss": 1.0, "steps": 50, "updates": 1}
    assert [data["steps"] for data in logger.data] == [50, 99, 100, 150, 230]
    assert logger.closed


def test_the_end_saves_updates_after_the_snapshot_of_the_last_step(make_node, tmp_path):
    """Even if the replay, which should keep its state, has died."""
    counter, learner, node = make_node(kept=Replay())
    counter.steps = 100
    for _ in range(3):
        node.step()
    node.close()
    assert snapshots(tmp_path) == [100]
    assert learner.saves == 2
    _, resumed, node = make_node(counter, resumed_at=100)
    assert resumed.restored["updates"] == 3
    node.close()
    assert resumed.saves == 0


def test_it_keeps_as_many_snapshots_as_the_run_asks_for(make_node, tmp_path):
    counter, _, node = make_node(keep_snapshots=3)
    for counter.steps in (100, 200, 300, 400):
        node.step()
    assert snapshots(tmp_path) == [200, 300, 400]


def test_a_resumed_learner_continues_from_the_counters_of_the_snapshot(make_node):
    counter, _, node = make_node()
    counter.steps = 120
    node.step()
    node.close()
    counter, learner, node = make_node(resumed_at=120)
    assert (learner.restored["steps"], learner.restored["updates"]) == (120, 1)
    assert counter.started[0]["steps"] == 120
    for counter.steps, saves in ((130, 0), (199, 0), (200, 1)):
        node.step()
        assert learner.saves == saves


def test_it_stops_while_it_compiles_and_saves_nothing(make_node):
    stop, compiling = threading.Event(), threading.Event()
    _, learner, node = make_node(starts=False, stop=stop)
    learner.compile = compiling.wait
    threading.Timer(0.2, stop.set).start()
    node.run()
    compiling.set()
    assert learner.saves == 0


@pytest.mark.parametrize("method", ["compile", "step"])
def test_a_learner_that_fails_saves_nothing(make_node, tmp_path, method):
    counter, learner, node = make_node(starts=False)
    counter.steps = 50
    setattr(learner, method, Mock(side_effect=FloatingPointError("the learner diverged")))
    with pytest.raises(FloatingPointError, match="diverged"):
        node.run()
    assert learner.saves == 0
    assert snapshots(tmp_path) == []
