"""Workers in turn around a parameter server, in one process."""

import dataclasses
import threading
import time

import average_agent
import chex
import jax
import noisy_agent
import numpy as np
import pytest
from run_files import loop_of, plain
from waiting import wait_for

from retrax.agents import acer, reactor
from retrax.environments.plain_data import pack, unpack
from retrax.training.run_config import RunConfig, WorkerOptions
from retrax.training.workers import DROPPED, STALENESS, LearningThread, RemoteUpdates

_REPLAY = dataclasses.replace(acer.Config.small().replay, min_rows=40, batch_size=2, capacity=400)
TINY = {
    "noisy_agent:NOISY": noisy_agent.Config(),
    "acer": acer.Config.small(replay=_REPLAY, vector_sizes=(4,), hidden_size=4, sequence_length=4),
}


def make_run(agent, *, num_workers=1, num_envs=4, steps=240, workers=(), **changes):
    return RunConfig(
        agent=agent,
        environment="catch",
        preset="small" if agent == "acer" else "default",
        steps=steps,
        num_envs=num_envs,
        num_actors=max(1, num_workers),
        log_every=40,
        workers=WorkerOptions(num_workers=num_workers, **dict(workers)),
        agent_config=TINY.get(agent),
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


def with_updates_per_call(config, count):
    replay = dataclasses.replace(config.agent_config.replay, updates_per_call=count)
    agent_config = dataclasses.replace(config.agent_config, replay=replay)
    return dataclasses.replace(config, agent_config=agent_config)


@pytest.mark.parametrize(
    ("agent", "per_call"), [("acer", 1), ("noisy_agent:NOISY", 1), ("noisy_agent:NOISY", 3)]
)
def test_one_worker_does_what_one_process_does(agent, per_call, make_loop):
    """Bit for bit, or up to rounding where that makes several updates in one program of XLA.

    If it fetches after each gradient, as ACER's do; others act with what they fetched before it.
    """
    runs = [make_run(agent, num_workers=number) for number in (0, 1)]
    process, worker = (make_loop(with_updates_per_call(run, per_call)) for run in runs)
    [only] = worker.learner._workers
    assert only.updates._fetches_first == (agent != "acer")
    only.updates._fetches_first = False
    for loop in (process, worker):
        advance(loop, 240)
    assert process.counters == worker.counters
    assert process.counters.updates > 20
    tolerance = {"rtol": 0.0 if per_call == 1 else 1e-4, "atol": 0.0 if per_call == 1 else 1e-6}
    states = [plain(jax.device_get(loop.learner.state)) for loop in (process, worker)]
    chex.assert_trees_all_close(*states, **tolerance)
    if per_call == 1:
        chex.assert_trees_all_equal(*map(plain, (process.actor_states(), worker.actor_states())))
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
        made = sum(index == worker for index, *_ in tape)
        assert made in (60 - 6) // 3 + np.arange(2)
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


def test_presets_of_the_papers_workers():
    one, all_threads = acer.AGENT.presets["paper_workers"](), acer.AGENT.presets["paper_atari"]()
    assert 16 * one.replay.batch_size == all_threads.replay.batch_size
    assert 16 * one.replay.min_rows == all_threads.replay.min_rows
    assert (one.replay.capacity, one.replay.capacity_per_environment) == (50_000, True)
    worker = reactor.AGENT.presets["paper_workers"]()
    assert (worker.learning_rate, worker.adam_b1, worker.replay.batch_size) == (5e-5, 0.0, 4)
    assert 4 <= worker.replay.acting_steps_per_update <= 6
    assert 10 * worker.replay.capacity == reactor.AGENT.presets["paper"]().replay.capacity


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"num_actors": 1}, "num_actors must be num_workers 2"),
        ({"actor_update_period": 5}, "actor_update_period must be None with workers"),
        ({"learner_devices": 2}, "learner_devices must be 1 with workers"),
        ({"num_envs": 3}, "num_envs must be a multiple of num_actors 2"),
    ],
)
def test_runs_that_do_not_fit_are_refused(changes, expected):
    with pytest.raises(ValueError, match=expected):
        dataclasses.replace(average_run(), **changes)


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


def test_it_makes_all_updates_that_are_due(learner, learning):
    for number in (3, 4):
        learner.due = number
        wait_for(lambda: learning.wake() or not learner.due)
    assert learner.updates == 7


def test_acting_goes_on_while_an_update_runs(learner, learning):
    begin_updates(learner, learning, 2)
    learning.wake()  # waits for nothing
    assert learner.updates == 0
    learner.may_end.set()
    wait_for(lambda: learner.updates == 2)


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
