"""Workers around a parameter server, in turn in one process: order, versions, staleness."""

import dataclasses
import threading
import time

import average_agent
import chex
import jax
import jax.numpy as jnp
import noisy_agent
import numpy as np
import pytest
from run_files import loop_of
from waiting import wait_for

from retrax.basics.prng_keys import without_keys
from retrax.datatypes import ReplayConfig, Sample
from retrax.environments.plain_data import pack, unpack
from retrax.replay.interface import DirectPeer
from retrax.replay.packing import TreePacking
from retrax.training.learner import update_shapes
from retrax.training.run_config import RunConfig, WorkerOptions
from retrax.training.workers import (
    DROPPED,
    STALENESS,
    GradientServer,
    LearningThread,
    Receipt,
    RemoteUpdates,
    StatePacking,
)

ON_POLICY = noisy_agent.Config(
    replay=ReplayConfig(pace="rounds", on_policy=True, min_rows=40, batch_size=2, capacity=400)
)


def make_run(agent, *, num_workers=1, num_envs=4, steps=240, workers=(), **changes):
    return RunConfig(
        agent=agent,
        environment="catch",
        steps=steps,
        num_envs=num_envs,
        num_actors=max(1, num_workers),
        log_every=40,
        evaluate_every=0,
        workers=WorkerOptions(num_workers=num_workers, **dict(workers)),
        **changes,
    )


def average_run(**changes):
    return make_run("average_agent:ENTRY", num_envs=2, num_workers=2, **changes)


@pytest.fixture
def make_loop():
    """Makes loops, which are closed at the end of the test; advances them to some steps."""
    loops = []

    def make(config, steps=0):
        loops.append(loop_of(config))
        return advance(loops[-1], steps)

    yield make
    for loop in loops:
        loop.close()


def advance(loop, steps):
    loop.start()
    while loop.counters.steps < steps:
        loop.advance()
    return loop


@pytest.mark.parametrize(
    ("config", "per_call"),
    [(ON_POLICY, 1), (noisy_agent.Config(), 1), (noisy_agent.Config(), 3)],
    ids=["on_policy", "one", "three"],
)
def test_one_worker_does_what_one_process_does(config, per_call, make_loop):
    """Bit for bit, or up to rounding where that makes several updates in one program of XLA.

    If it fetches after each gradient, as ACER's do, which learn on policy too; others act with what
    they fetched before it.
    """
    replay = dataclasses.replace(config.replay, updates_per_call=per_call)
    config = dataclasses.replace(config, replay=replay)
    process, worker = (
        make_loop(make_run("noisy_agent:NOISY", num_workers=number, agent_config=config))
        for number in (0, 1)
    )
    [only] = worker.learner._workers
    assert only.updates._fetches_first == (not config.replay.on_policy)
    only.updates._fetches_first = False
    for loop in (process, worker):
        advance(loop, 240)
    assert process.counters == worker.counters
    assert process.counters.updates > 20
    tolerance = {"rtol": 0.0 if per_call == 1 else 1e-4, "atol": 0.0 if per_call == 1 else 1e-6}
    states = [without_keys(jax.device_get(loop.learner.state)) for loop in (process, worker)]
    chex.assert_trees_all_close(*states, **tolerance)
    if per_call == 1:
        actors = process.actor_states(), worker.actor_states()
        chex.assert_trees_all_equal(*map(without_keys, actors))
    means, more = process.flush()[0], worker.flush()[0]
    assert (more.pop(STALENESS), more.pop(DROPPED)) == (0.0, 0.0)
    chex.assert_trees_all_close(more, means, **tolerance)


@pytest.fixture
def tape(monkeypatch):
    """The calls of updates of all workers in their order: worker, mean reward, copy, receipt."""
    calls, call, send = [], RemoteUpdates.__call__, RemoteUpdates._send
    receipts = []

    def recorded(self, state, sample, count):
        before = float(state.means["reward"])
        result = call(self, state, sample, count)
        rewards = np.mean(np.asarray(sample.rows.reward), dtype=np.float64)
        calls.append((self._worker, rewards, before, receipts[-1]))
        return result

    def sent(self, vector):
        receipts.append(send(self, vector))
        return receipts[-1]

    monkeypatch.setattr(RemoteUpdates, "__call__", recorded)
    monkeypatch.setattr(RemoteUpdates, "_send", sent)
    return calls


@pytest.mark.parametrize(
    "options",
    [{}, {"gradients_per_fetch": 3}, {"gradients_per_fetch": 3, "max_staleness": 0}],
    ids=str,
)
def test_two_workers_are_a_replay_of_their_gradients(options, tape, make_loop):
    """NumPy repeats the order of the gradients, of two copies of the parameters."""
    loop, rate = make_loop(average_run(workers=options), 120), 0.1
    period, bound = options.get("gradients_per_fetch", 1), options.get("max_staleness", np.inf)
    mean, version, copies, dropped = 1.0, 0, {0: (1.0, 0), 1: (1.0, 0)}, 0
    for number, (worker, reward, before, receipt) in enumerate(tape):
        assert worker == number % 2  # in turn
        np.testing.assert_allclose(before, copies[worker][0], atol=1e-5)
        if number // 2 % period == 0:
            copies[worker] = mean, version
        copy, known = copies[worker]
        assert receipt == (version - known <= bound, version - known)
        if receipt.applied:
            mean, version = mean - rate * (copy - reward), version + 1
        dropped += not receipt.applied
    for worker, (copy, _) in copies.items():  # of which they act
        acting = loop.learner._workers[worker].learner.params
        np.testing.assert_allclose(float(acting), copy, atol=1e-5)
    np.testing.assert_allclose(float(loop.learner.state.means["reward"]), mean, atol=1e-5)
    assert loop.counters.updates == version
    assert (dropped > 10) == ("max_staleness" in options)
    np.testing.assert_allclose(loop.flush()[0][DROPPED], dropped / len(tape))


def test_workers_alternate_where_several_updates_are_due(tape, make_loop):
    replay = dataclasses.replace(average_agent.Config().replay, acting_steps_per_update=0.5)
    config = dataclasses.replace(average_run(), agent_config=average_agent.Config(replay=replay))
    make_loop(config, 40)
    assert [worker for worker, *_ in tape] == [0, 1] * (len(tape) // 2)
    assert len(tape) > 40


def test_each_worker_keeps_its_own_ratio_of_acting_to_learning(tape, make_loop):
    loop = make_loop(average_run(steps=60), 120)
    for worker in range(2):  # 60 steps each; the sixth row is that of the fifth or sixth step
        assert sum(index == worker for index, *_ in tape) in (60 - 6) // 3 + np.arange(2)
    assert loop.counters.learning_since in (10, 12)  # of both workers
    rows = [replay.status().num_rows for replay in loop.replays]
    assert rows[0] == rows[1] > 60


@pytest.mark.parametrize("continues", [True, False])
def test_workers_continue_from_a_snapshot(continues, make_loop):
    config = average_run(workers={"gradients_per_fetch": 3})
    loop, other = make_loop(config, 80), loop_of(config)
    snapshot, metrics = loop.snapshot(), pack(loop.open_metrics())
    running = unpack(pack(loop.running()))
    if continues:
        for actor, state in zip(other._actors, running["actors"], strict=True):
            actor._environment.restore(state["environment"])
    other.restore(snapshot, unpack(metrics), running if continues else None)
    assert other.counters == loop.counters
    for each in (loop, other):
        advance(each, 160)
    assert other.counters.updates == loop.counters.updates
    if continues:
        chex.assert_trees_all_equal(*(jax.device_get(x.learner.state.means) for x in (loop, other)))
        assert other.flush()[0] == loop.flush()[0]
    other.close()


def test_a_snapshot_of_other_workers_is_refused(make_loop):
    other = make_loop(make_run("average_agent:ENTRY", num_envs=1))
    with pytest.raises(ValueError, match="it has 2 workers instead of 1"):
        other.learner.restore(make_loop(average_run()).snapshot())


# A learner in a thread of its own


class Learner:
    """Its updates are due when a test says so, and end when a test says so."""

    def __init__(self):
        self.due, self.updates, self.error = 0, 0, None
        self.running, self.may_end = threading.Event(), threading.Event()
        self.may_end.set()

    def step(self):
        if self.error is not None:
            raise self.error
        if not self.due:
            return False
        self.running.set()
        assert self.may_end.wait(10)
        self.running.clear()
        self.due -= 1
        self.updates += 1
        return True


@pytest.fixture
def learner():
    return Learner()


@pytest.fixture
def learning(learner):
    thread = LearningThread(learner)
    yield thread
    learner.may_end.set()
    thread.close()


def begin_updates(learner, learning, number):
    """The first of so many runs, and does not end before `may_end`."""
    learner.may_end.clear()
    learner.due = number
    wait_for(lambda: learning.wake() or learner.running.is_set())


def test_no_update_runs_in_a_pause(learner, learning):
    begin_updates(learner, learning, 3)

    def end_once_paused():
        wait_for(lambda: learning._is_paused)
        learner.may_end.set()

    ending = threading.Thread(target=end_once_paused)
    ending.start()
    with learning.paused():
        assert not learner.running.is_set()
        assert learner.updates == 1, "only the running one ends"
        learning.wake()
        time.sleep(0.05)
        assert learner.updates == 1
    ending.join()
    wait_for(lambda: learning.wake() or learner.updates == 3)


def test_its_errors_are_raised_where_steps_are_taken(learner, learning):
    learner.error = FloatingPointError("the learner diverged")
    with pytest.raises(FloatingPointError, match="diverged"):
        wait_for(learning.wake)
    with learning.paused():  # nothing to wait for
        pass
    with pytest.raises(FloatingPointError, match="diverged"):
        learning.wake()


def test_close_waits_for_the_running_update(learner):
    learning = LearningThread(learner)
    begin_updates(learner, learning, 5)
    threading.Timer(0.05, learner.may_end.set).start()
    learning.close()
    assert learner.updates == 1
    assert not any(thread.is_alive() for thread in learning._pool._threads)


AGENT, SHAPES = average_agent.agent_and_shapes()
GRADIENTS = TreePacking("A gradient", jax.eval_shape(AGENT.init, jax.random.key(0)).means)
STATES = StatePacking(AGENT, SHAPES)


def make_server(**options):
    return GradientServer(AGENT, GRADIENTS, STATES, key=jax.random.key(0), **options)


def send(server, number, version, reward=1.0, *, worker=0, restarts=0):
    """Applies a gradient of the mean reward alone."""
    zeros = jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), GRADIENTS.like)
    gradient = GRADIENTS.pack({**zeros, "reward": np.float32(reward)})
    return server.apply(worker, (restarts, number), version, gradient)


def mean(server):
    return float(server.state.means["reward"])


def test_an_outdated_gradient_is_dropped():
    server = make_server(max_staleness=1)
    assert all(send(server, number, number).applied for number in range(2))
    before = mean(server)
    assert send(server, 0, 0, worker=1) == Receipt(False, 2)
    assert (server.updates, mean(server)) == (2, before)
    assert send(server, 1, 1, worker=1) == Receipt(True, 1)
    assert server.updates == 3


def test_a_gradient_of_a_version_that_a_restarted_server_has_lost_is_dropped():
    server = make_server()
    assert send(server, 0, 5) == Receipt(False, -5)
    assert server.updates == 0


def test_a_gradient_may_arrive_while_a_restarted_server_compiles(monkeypatch):
    """Its buffers are donated: what is compiled with is copied before, or after."""
    server = make_server()
    worker = threading.Thread(target=send, args=(server, 0, 0))

    def copied(state):
        worker.start()
        worker.join(0.2)
        return jax.tree.map(lambda x: x.copy(), state)

    monkeypatch.setattr("retrax.training.workers.copied", copied)
    server.compile()
    worker.join()
    assert server.updates == 1


def test_a_version_is_packed_once_and_only_when_it_is_fetched(monkeypatch):
    server, packs, pack = make_server(), [], STATES.pack
    monkeypatch.setattr(STATES, "pack", lambda state: packs.append(state) or pack(state))
    assert server.fetch(0) == (0, None)  # the caller has it
    assert packs == []
    version, blob = server.fetch(-1)
    assert (version, len(packs)) == (0, 1)
    assert server.fetch(-1) == (version, blob)
    for number in range(3):
        send(server, number, number)
    assert len(packs) == 1
    version, newer = server.fetch(0)
    assert (version, len(packs)) == (3, 2)
    assert newer != blob
    assert server.fetch(3) == (3, None)
    assert len(packs) == 2


def test_a_restored_server_continues():
    server, other = make_server(), make_server()
    send(server, 0, 0)
    snapshot, at = server.snapshot(), mean(server)
    send(server, 1, 1)  # donates the buffers of the state
    other.fetch(-1)
    other.restore(snapshot)
    assert (other.updates, mean(other)) == (1, at)
    assert other.fetch(0)[0] == 1
    send(other, 0, 1)
    assert mean(other) == mean(server)


def test_samples_of_single_updates():
    call = Sample(*(jax.ShapeDtypeStruct((6, 2), np.float32) for _ in Sample._fields))
    newest = Sample(*(jax.ShapeDtypeStruct((4, 2), np.float32) for _ in Sample._fields))
    replayed, same = update_shapes([call, newest], 3)
    assert {x.shape for x in jax.tree.leaves(replayed)} == {(2, 2)}
    assert same == newest


def test_workers_get_what_gradients_read_and_keep_the_rest():
    server = AGENT.init(jax.random.key(1))._replace(applied=jnp.int32(7))
    server.means["reward"] = jnp.float32(0.5)
    merged = STATES.unpack(AGENT.init(jax.random.key(2)), STATES.pack(server))
    assert merged.means["reward"] == 0.5
    assert merged.applied == 0  # it is not read
    assert merged.key.dtype == server.key.dtype
    assert jnp.array_equal(jax.random.key_data(merged.key), jax.random.key_data(server.key))
    assert jax.random.uniform(merged.key) == jax.random.uniform(server.key)


class Server:
    """Keeps what a worker sends; every gradient raises the version by two."""

    def __init__(self):
        self._server = make_server()
        self.sent, self.gradients, self.fetches, self.version = [], [], [], 0

    def apply(self, worker, call, version, gradients):
        self.sent.append((worker, call, version))
        self.gradients.append(gradients)
        self.version += 2
        return [True, self.version - 2 - version]  # a list, as over Courier

    def fetch(self, known):
        self.fetches.append(known)
        self._server.updates = self.version
        return self._server.fetch(known)


def make_updates(server, agent=AGENT, **options):
    """Updates of a worker, and the state that it has fetched."""
    calls = {"call": DirectPeer(server).call, "lost": lambda version: None}
    updates = RemoteUpdates(agent, GRADIENTS, STATES, **calls, **options)
    return updates, updates.newest(AGENT.init(jax.random.key(0)))


def zeros(factor=1):
    return jax.tree.map(lambda x: np.zeros((factor * x.shape[0], *x.shape[1:]), x.dtype), SHAPES[0])


@pytest.mark.parametrize(
    ("fetches_first", "known", "staleness"),
    [(True, [-1, 0, 3], [0, 2, 0, 2]), (False, [-1, 0, 7], [3, 5, 3, 5])],
)
def test_a_worker_fetches_before_or_after_so_many_gradients(fetches_first, known, staleness):
    """Another worker's gradients arrive while this one acts, before its first and third."""
    server, options = Server(), {"gradients_per_fetch": 2, "worker": 3, "restarts": 1}
    updates, state = make_updates(server, fetches_first=fetches_first, **options)
    found = []
    for number in range(4):
        server.version += 3 * (number in (0, 2))
        state, update = updates(state, zeros(), 1)
        found.append(update.metrics[STALENESS])
        assert update.metrics[DROPPED] == 0.0
    assert server.fetches[:3] == known
    assert found == staleness
    assert [(worker, call) for worker, call, _ in server.sent] == [(3, (1, n)) for n in range(4)]


def test_gradients_of_one_version_differ_in_their_noise():
    """Of one worker and of several; the first of worker 0 is that of one process."""

    def gradients(state, sample):
        means, update = AGENT.gradients(state, sample)
        return {**means, "reward": jax.random.uniform(state.key)}, update

    agent, values = AGENT._replace(gradients=gradients), []
    for worker in range(2):
        server = Server()
        updates, state = make_updates(server, agent, worker=worker, gradients_per_fetch=3)
        for _ in range(3):
            updates(state, zeros(), 1)
        values += [float(GRADIENTS.unpack(blob)["reward"]) for blob in server.gradients]
    assert len(set(values)) == 6
    assert values[0] == float(jax.random.uniform(state.key))


def test_a_gradient_that_is_not_finite_is_not_sent():
    server = Server()
    updates, state = make_updates(server)
    sample = zeros()
    sample.rows.reward[:] = np.nan
    with pytest.raises(FloatingPointError, match="not finite"):
        updates(state, sample, 1)
    assert server.sent == []
