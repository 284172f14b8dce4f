"""The nodes of a parameter server and of its workers, by hand: no Launchpad, no processes."""

import dataclasses
import threading
import time
import types

import numpy as np
import pytest
from node_fakes import Counter, DirectPeers
from program_configs import make_config, make_run, make_workers

from retrax.launchpad_programs.engines.options import EngineOptions
from retrax.launchpad_programs.kinds import program_columns
from retrax.launchpad_programs.launch import resumed as resumed_program
from retrax.launchpad_programs.parameter_server import make_parameter_server
from retrax.launchpad_programs.progress import line, table
from retrax.launchpad_programs.worker import make_worker
from retrax.replay.interface import Stopped
from retrax.training.gradient_server import STALENESS
from retrax.training.parameters import ParameterClient, packing_of
from retrax.training.run_config import WorkerOptions
from retrax.training.snapshots import Snapshots


@pytest.fixture
def node():
    """Makes the nodes of one program in this process: (server, workers, counter, stop)."""

    def make(config, grants=1000):
        counter, stop = Counter([grants]), threading.Event()
        server = make_parameter_server(config, 0, DirectPeers(counter), stop=stop)
        workers = [
            make_worker(config, index, DirectPeers(Counter([grants]), server), stop=stop)
            for index in range(2)
        ]
        server.start()
        for worker in workers:
            worker.start()
        return server, workers, counter, stop

    return make


def test_workers_act_learn_and_are_evaluated_and_counted(node, tmp_path):
    options = WorkerOptions(num_workers=2, gradients_per_fetch=2)
    config = make_config(tmp_path, run=make_workers(log_every=1, workers=options))
    server, workers, counter, stop = node(config)
    for worker in workers:
        worker._next_report = np.inf  # all metrics in one report, at the end
    for _ in range(40):
        for worker in workers:
            assert worker.step()
    server.step()
    learned = [worker._worker.learner.updates for worker in workers]
    assert server._learner.updates == sum(learned) == server._learner.state.applied
    assert min(learned) > 5
    agent = config.make_agent(config.spec)
    client = ParameterClient(server.get, packing_of(agent), update_period=1, threaded=False)
    client.wait()
    server.step()
    client.step()
    assert client.version == server._learner.updates
    np.testing.assert_array_equal(client.params, server._learner.state.means["reward"])
    worker = workers[1]
    seen = worker._counter.peer._node
    seen.grants.append(5)
    worker._counter._granted = 0
    worker.step()
    assert sum(len(episodes.get("return", ())) for *_, episodes in seen.claims) >= 3
    worker._report()
    name, report = seen.reports[-1]
    assert name == "worker/1"
    metrics = [reported.get("metrics", {}) for _, reported in seen.reports]
    found = [values[STALENESS] for values in metrics if STALENESS in values]
    assert found == [1.0]  # the second after a fetch has one of each worker before it
    assert 0.0 <= report["idle_share"] <= 1.0
    assert report["replay_rows"] > 40
    assert counter.reports[-1][0] == "parameter_server/0"
    assert counter.reports[-1][1]["updates"] == server._learner.updates
    stop.set()
    for each in [*workers, server]:
        each.close()


def test_server_and_workers_continue_from_their_snapshots(node, tmp_path):
    config = make_config(tmp_path, run=make_workers())
    server, workers, counter, _ = node(config)
    for _ in range(30):
        for worker in workers:
            worker.step()
    counter.steps = 60
    states = [worker._worker.replay.status().num_rows for worker in workers]
    version, mean = server._learner.updates, float(server._learner.state.means["reward"])
    assert version > 8
    for each in [*workers, server]:
        each.close()
    assert Snapshots(tmp_path).steps() == [60]
    (file,) = (tmp_path / "workers" / "1" / "snapshots").iterdir()
    whole = file.read_bytes()
    file.write_bytes(whole[:-1])
    with pytest.raises(ValueError, match="workers/1/snapshots"):
        resumed_program(config, EngineOptions(engine="ray"))
    file.write_bytes(whole)
    resumed, notes = resumed_program(config, EngineOptions(engine="ray"))
    assert (resumed.resumed_at, notes) == (60, [])
    server, workers, _, _ = node(resumed)
    assert (server._learner.updates, server._learner.state.means["reward"]) == (version, mean)
    for worker, rows in zip(workers, states, strict=True):
        assert worker._worker.replay.status().num_rows == rows
        assert worker._worker.updates.version == version
        assert worker._worker.learner.updates > 3
        assert float(worker._worker.learner.state.means["reward"]) == mean
        before = worker._loop.counters.steps
        while worker._loop.counters.steps < before + 10:
            worker.step()
    assert server._learner.updates > version
    for each in [*workers, server]:
        each.close()
    fresh = make_worker(config, 0, DirectPeers(Counter(), server), stop=threading.Event())
    assert fresh._worker.replay.status().num_rows == 0  # of a program without a snapshot
    fresh.close()


class Publisher:
    """The server of the moment, as workers call it."""

    server = None

    def __getattr__(self, name):
        return lambda *arguments: getattr(self.server, name)(*arguments)


def test_a_killed_server_and_a_killed_worker_are_restarted(node, tmp_path):
    """As Ray does it: from their newest snapshots; the other worker goes on.

    Updates that the server has lost are made again.
    """
    config, peer, stop = make_config(tmp_path, run=make_workers()), Publisher(), threading.Event()
    counter = Counter([1000])
    counter.steps = 60

    def start(config, index=None):
        if index is None:
            peer.server = each = make_parameter_server(config, 0, DirectPeers(counter), stop=stop)
        else:
            each = make_worker(config, index, DirectPeers(Counter([1000]), peer), stop=stop)
        each.start()
        return each

    def step():
        """The server applies each gradient of both workers; their number."""
        version = server._learner.updates
        before = [each._worker.learner.updates for each in (other, worker)]
        for _ in range(30):
            for each in (other, worker):
                each.step()
        made = [each._worker.learner.updates for each in (other, worker)]
        assert min(made[0] - before[0], made[1] - before[1]) > 5
        assert server._learner.updates == version + sum(made) - sum(before)
        return sum(made) - sum(before)

    server, other, worker = start(config), start(config, 0), start(config, 1)
    step()
    server.step()
    server.save()
    worker.save()
    version, rows = server._learner.updates, worker._worker.replay.status().num_rows
    step()  # which will be lost
    again = dataclasses.replace(config, restarts=1, resumed_at=60)
    worker = start(again, 1)
    assert worker._worker.replay.status().num_rows == rows
    usual, lost = step(), server._learner.updates - version
    server = start(again)
    assert server._learner.updates == version
    assert usual + lost - 3 <= step() <= usual + lost + 2
    assert step() == pytest.approx(usual, abs=2)
    for each in (other, worker, server):
        each.close()


def test_decoupled_workers_act_while_they_learn_at_the_same_ratio(node, tmp_path):
    options = WorkerOptions(num_workers=2, decoupled=True)
    config = make_config(tmp_path, run=make_workers(workers=options))
    server, workers, _, stop = node(config)
    period = config.run.replay.acting_steps_per_update
    threads = set.union(*(worker._learning._pool._threads for worker in workers))
    assert len(threads) == 2
    computing = set()
    for worker in workers:
        compute = worker._worker.updates._compute

        def watched(*arguments, compute=compute):
            computing.add(threading.current_thread())
            time.sleep(0.02)  # so that acting would run ahead
            return compute(*arguments)

        worker._worker.updates._compute = watched
    for _ in range(60):
        for worker in workers:
            assert worker.step()
            replay, updates = worker._worker.replay, worker._worker.learner.updates
            since = replay.status().learning_since
            if since >= 0:  # one call runs, one is drawn, one is due
                due = int((replay.status().steps - since) / period)
                assert due - 3 <= updates <= due
    worker._report()
    stop.set()
    for worker in workers:
        worker.close()
        steps, saved = worker._loop.counters.steps, worker._worker.learner.updates
        assert steps in worker._snapshots.steps()
        assert worker._loop.counters.updates == saved > 60 // period // 2
    assert computing == threads
    assert server._learner.updates == sum(worker._worker.learner.updates for worker in workers)
    server.close()
    assert not any(thread.is_alive() for thread in threads)


def step_often(worker):
    for _ in range(1000):
        worker.step()


def test_what_ends_the_learning_thread_ends_the_worker(node, tmp_path):
    options = WorkerOptions(num_workers=2, decoupled=True)
    server, (worker, other), _, _ = node(make_config(tmp_path, run=make_workers(workers=options)))

    def fail(*arguments):
        raise FloatingPointError("the learner diverged")

    worker._worker.updates._compute = fail
    with pytest.raises(FloatingPointError, match="diverged"):
        step_often(worker)
    worker._learning.close()
    other.close()
    server.close()


def test_a_worker_that_is_stopped_while_the_server_is_away_saves(node, tmp_path):
    server, (worker, other), _, stop = node(make_config(tmp_path, run=make_workers()))
    while worker._worker.learner.updates < 3:
        worker.step()

    updates = worker._worker.updates
    updates._apply = _away(stop)
    worker.start = lambda: None
    stop.clear()
    worker.run()  # ends by itself
    assert Snapshots(tmp_path / "workers" / "0").steps()
    assert updates.waited_seconds > 0
    other.close()
    server.close()


def _away(stop):
    """A call that gets no answer before the program ends."""

    def call(*arguments):
        stop.set()
        raise Stopped("The parameter server gave no answer before the program ended.")

    return call


def test_columns_and_live_table_of_workers():
    columns = program_columns(make_workers())
    assert {"worker_0_episode_return", "server_idle_share", "worker_waiting_share"} <= {*columns}
    assert "learner_idle_share" not in columns
    assert "actor_1_episode_return" in program_columns(make_run())
    status = {
        "phase": "learning",
        "steps": 10,
        "last_step": 20,
        "updates": 3,
        "seconds": 1.0,
        "eta_seconds": 1.0,
        "steps_per_second": 10.0,
        "updates_per_second": 3.0,
        "nodes": {
            "parameter_server/0": {"idle_share": 0.5},
            "worker/0": {"replay_rows": 4, "replay_sequences": 3, "staleness": 1.0, "return": 1.0},
            "worker/1": {"replay_rows": 5, "replay_sequences": 4, "staleness": 2.0},
        },
    }
    assert "idle 50% | replay 9 rows | staleness 1.5 | return 1" in line(status)
    nodes = [types.SimpleNamespace(name=name, pid=1, ended=str) for name in status["nodes"]]
    names = list(table(status, nodes).columns[0].cells)
    assert names == ["parameter_server/0", "worker/0", "worker/1"]
