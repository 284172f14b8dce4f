"""The nodes of a parameter server and of its workers, by hand: no Launchpad, no processes."""

import threading
import time

import numpy as np
import pytest
from node_fakes import Counter, DirectPeers
from program_configs import make_config, make_workers

from retrax.launchpad_programs.engines.options import EngineOptions
from retrax.launchpad_programs.launch import resumed as resumed_program
from retrax.launchpad_programs.learner import make_parameter_server, make_worker
from retrax.training.learner import ParameterClient, packing_of
from retrax.training.run_config import WorkerOptions
from retrax.training.snapshots import Snapshots
from retrax.training.workers import STALENESS


class Publisher:
    """The server of the moment, as workers call it."""

    server = None

    def __getattr__(self, name):
        return lambda *arguments: getattr(self.server, name)(*arguments)


class Nodes:
    """The nodes of one program in this process, each with a counter of its own."""

    def __init__(self, config):
        self.config, self.peer, self.stop = config, Publisher(), threading.Event()
        self.counters = [Counter([1000]) for _ in range(3)]
        self.server = self.start_server(config)
        self.workers = [self.start_worker(config, index) for index in range(2)]

    def start_server(self, config):
        peers = DirectPeers(self.counters[2], stop=self.stop)
        self.peer.server = server = make_parameter_server(config, 0, peers)
        server.start()
        return server

    def start_worker(self, config, index):
        self.counters[index].grants = [1000]
        peers = DirectPeers(self.counters[index], self.peer, self.stop)
        worker = make_worker(config, index, peers)
        worker.start()
        return worker

    def step(self, count):
        """Whether each worker took so many steps."""
        return all(worker.step() for _ in range(count) for worker in self.workers)

    @property
    def learned(self):
        """Updates of each worker's learner."""
        return [worker.learner.updates for worker in self.workers]

    @property
    def rows(self):
        return [worker.worker.replay.status().num_rows for worker in self.workers]

    def close(self):
        for each in [*self.workers, self.server]:
            each.close()


@pytest.fixture
def start(tmp_path):
    """Starts a program with options of its workers."""

    def start(**options):
        workers = WorkerOptions(num_workers=2, **options)
        return Nodes(make_config(tmp_path, run=make_workers(log_every=1, workers=workers)))

    return start


def test_workers_act_learn_and_are_evaluated_and_counted(start):
    nodes = start(gradients_per_fetch=2)
    server, (_, worker), counter = nodes.server, nodes.workers, nodes.counters[1]
    assert nodes.step(40)
    server.step()
    assert server.learner.updates == sum(nodes.learned) == server.learner.state.applied
    assert min(nodes.learned) > 5
    agent = nodes.config.make_agent(nodes.config.spec)
    client = ParameterClient(server.get, packing_of(agent), update_period=1, threaded=False)
    client.wait()
    server.step()
    client.step()
    assert client.version == server.learner.updates
    np.testing.assert_array_equal(client.params, server.learner.state.means["reward"])
    nodes.stop.set()
    nodes.close()
    reports = [values for _, values in counter.reports if "idle_share" in values]
    found = [(r["metrics"][STALENESS], r["weight"]) for r in reports if r["metrics"]]
    staleness, weights = zip(*found, strict=True)
    # The second gradient after a fetch has one of each worker before it.
    assert np.average(staleness, weights=weights) == pytest.approx(1.0)
    assert {name for name, _ in counter.reports} == {"worker/1"}
    assert 0.0 <= reports[-1]["idle_share"] <= 1.0
    assert reports[-1]["replay_rows"] == worker.worker.replay.status().num_rows >= 40
    name, values = next(x for x in reversed(nodes.counters[2].reports) if "updates" in x[1])
    assert (name, values["updates"]) == ("parameter_server/0", server.learner.updates)


def test_server_and_workers_continue_from_their_snapshots(start, tmp_path):
    nodes = start()
    nodes.step(30)
    nodes.counters[2].steps = 60
    version, rows = nodes.server.learner.updates, nodes.rows
    mean = float(nodes.server.learner.state.means["reward"])
    assert version > 8
    nodes.close()
    assert Snapshots(tmp_path).steps() == [60]
    (file,) = (tmp_path / "workers" / "1" / "snapshots").iterdir()
    whole = file.read_bytes()
    file.write_bytes(whole[:-1])
    with pytest.raises(ValueError, match="workers/1/snapshots"):
        resumed_program(nodes.config, EngineOptions(engine="ray"))
    file.write_bytes(whole)
    resumed, notes = resumed_program(nodes.config, EngineOptions(engine="ray"))
    assert (resumed.resumed_at, notes) == (60, [])
    again = Nodes(resumed)
    assert again.rows == rows
    for learner in (again.server.learner, *(worker.learner for worker in again.workers)):
        assert float(learner.state.means["reward"]) == mean
    assert again.server.learner.updates == version
    assert [worker.worker.updates.version for worker in again.workers] == [version] * 2
    assert min(again.learned) > 3
    again.step(10)
    assert again.server.learner.updates > version
    again.close()
    fresh = nodes.start_worker(nodes.config, 0)
    assert fresh.worker.replay.status().num_rows == 0  # of a program without a snapshot
    fresh.close()


def test_decoupled_workers_act_while_they_learn_at_the_same_ratio(start):
    threads_before, computing = {*threading.enumerate()}, set()
    nodes = start(decoupled=True)
    period = nodes.config.run.replay.acting_steps_per_update
    for worker in nodes.workers:
        compute = worker.worker.updates._compute

        def watched(*arguments, compute=compute):
            computing.add(threading.current_thread())
            time.sleep(0.02)  # so that acting would run ahead
            return compute(*arguments)

        worker.worker.updates._compute = watched
    for _ in range(60):
        for worker in nodes.workers:
            assert worker.step()
            status, updates = worker.worker.replay.status(), worker.learner.updates
            if status.learning_since >= 0:  # one call runs, one is drawn, one is due
                due = int((status.steps - status.learning_since) / period)
                assert due - 3 <= updates <= due
    assert len(computing) == 2
    assert not computing & threads_before
    nodes.stop.set()
    for index, worker in enumerate(nodes.workers):
        worker.close()
        snapshots = Snapshots(nodes.config.directory / "workers" / str(index))
        (steps,) = snapshots.steps()
        counters = snapshots.read(steps).counters
        assert counters["updates"] == worker.learner.updates > 60 // period // 2
        assert worker.worker.replay.status().steps == steps
    assert nodes.server.learner.updates == sum(nodes.learned)
    nodes.server.close()
    assert not any(thread.is_alive() for thread in computing)
