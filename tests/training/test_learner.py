"""The learner: parameters that it publishes, waits, metrics, snapshots. Its order: test_loop.py."""

import threading
import time
import types

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from node_fakes import BatchReplay
from waiting import wait_for

from retrax.agents.base import Agent, Update
from retrax.datatypes import Sample, SequenceSpec
from retrax.replay.interface import Stopped, WaitTimeout
from retrax.training.learner import (
    Learner,
    MetricsAccumulator,
    ParameterClient,
    ParameterServer,
    Rate,
    packing_of,
)

SAMPLE = Sample({}, np.ones(2, np.float32), {})


AGENT = Agent(
    init=lambda key: {"count": jnp.float32(0), "weights": jax.random.normal(key, (3,))},
    acting_params=lambda state: state["weights"],
    begin=None,
    explore=None,
    exploit=None,
    gradients=lambda state, sample: (
        jnp.ones(3),
        Update(sample.weights * (1 + state["count"]), {"loss": state["count"]}),
    ),
    apply=lambda state, gradients: {
        "count": state["count"] + 1,
        "weights": state["weights"] - gradients,
    },
    sequence=SequenceSpec(length=2),
)


@pytest.fixture
def make_learner():
    """Makes a learner of a replay that serves so many batches, and the replay."""
    learners = []

    def make(due=0, agent=AGENT, wait=0.0, **options):
        replay = BatchReplay([SAMPLE] * due, like=SAMPLE, wait=wait)
        learners.append(Learner(agent, replay, key=jax.random.key(1), **options))
        return learners[-1], replay

    yield make
    for learner in learners:
        learner.close()


def step(learner, count):
    return [learner.step() for _ in range(count)]


def test_it_publishes_when_it_is_asked(make_learner):
    """Idle, too: or the last evaluation of a run would be of older parameters."""
    server = ParameterServer(packing_of(AGENT), max_wait=0.0)
    learner, _ = make_learner(due=6, parameters=server)
    learner.compile()
    assert server.version == -1
    learner.publish()
    assert server.version == 0
    step(learner, 3)
    assert server.version == 0  # nobody asked
    server.get(0)
    step(learner, 1)
    assert server.version == learner.updates == 4
    step(learner, 2)
    assert (server.version, learner.updates) == (4, 6)
    server.get(4)
    assert not learner.step()
    assert server.version == 6
    learner.publish = None  # not once more: there is nothing newer
    server.get(6)
    assert not learner.step()


def test_compiling_changes_nothing_and_happens_once(make_learner):
    """Names of metrics take no trace of their own."""
    traces = []

    def gradients(state, sample):
        traces.append(None)
        return AGENT.gradients(state, sample)

    learner, _ = make_learner(due=10, agent=AGENT._replace(gradients=gradients))
    before = jax.device_get(learner.state)
    assert learner.metric_names == ["loss", "key"]
    learner.compile()
    chex.assert_trees_all_equal(jax.device_get(learner.state), before)
    assert (learner.updates, learner.metrics.flush()) == (0, {})
    step(learner, 3)
    assert len(traces) == 1


def test_idle_time_is_measured(make_learner):
    learner, replay = make_learner(wait=0.2)
    learner.compile()
    assert not learner.step(timeout=1.0)
    idle = learner.idle_seconds
    assert idle >= 0.2
    replay.samples = [SAMPLE] * 2
    assert learner.step(timeout=1.0)
    time.sleep(0.1)
    assert learner.idle_seconds < idle + 0.1


def test_priorities_and_metrics_of_each_update_are_kept(make_learner):
    learner, replay = make_learner(due=3)
    assert step(learner, 4) == [True, True, True, False]
    assert replay.priorities == [(2, [1, 1]), (1, [2, 2]), (0, [3, 3])]
    # "key" is the replay's, of the batches that were learned from.
    assert learner.metrics.flush() == {"loss": 1.0, "key": 1.0}


def test_a_snapshot_is_restored(make_learner):
    learner, _ = make_learner(due=5)
    step(learner, 3)
    snapshot = learner.snapshot()
    assert snapshot.counters == {"updates": 3}
    step(learner, 1)  # must not change what was saved
    again, replay = make_learner(due=5)
    counters = {"steps": 9, "updates": 3, "learning_since": 2}
    again.restore(snapshot._replace(counters=counters))
    assert (again.updates, replay.restored) == (3, counters)
    step(again, 1)
    chex.assert_trees_all_equal(jax.device_get(again.state), jax.device_get(learner.state))
    chex.assert_trees_all_equal(snapshot.learner["count"], jnp.float32(3))


PARAMS = {"w": np.arange(3, dtype=np.float32)}


def packing_like(params):
    """That of an agent with these acting parameters."""
    agent = types.SimpleNamespace(init=lambda key: params, acting_params=lambda state: state)
    return packing_of(agent)


PACKING = packing_like(PARAMS)


def test_a_version_is_packed_once_and_sent_to_those_who_lack_it():
    server = ParameterServer(PACKING, max_wait=0.0)
    assert server.get(-1) == (-1, None)
    server.publish(3, jax.device_put(PARAMS), 2.0)
    version, blob = server.get(-1)
    assert version == server.version == 3
    for older in (0, 7):  # or newer than that of a learner that went back to a snapshot
        assert server.get(older) == (3, blob)
    assert server.get(3) == (3, None)
    found = PACKING.unpack(blob)
    np.testing.assert_array_equal(found["params"]["w"], PARAMS["w"])
    assert found["new_priority"] == 2.0


def test_a_call_waits_a_moment_for_what_is_published_after_it():
    """A version that was published for another call is old by now, though the caller lacks it."""
    server = ParameterServer(PACKING, max_wait=10.0)
    server.publish(0, PARAMS)
    server.publish(1, PARAMS)
    answers = []
    thread = threading.Thread(target=lambda: answers.append(server.get(0)), daemon=True)
    thread.start()
    wait_for(lambda: server.wanted)
    server.publish(2, PARAMS)
    thread.join(5)
    assert answers[0][0] == 2


@pytest.mark.parametrize("threaded", [True, False])
def test_an_actor_fetches_every_few_steps_and_knows_how_old_its_parameters_were(threaded):
    server = ParameterServer(PACKING, max_wait=0.0)
    client = ParameterClient(server.get, PACKING, update_period=3, threaded=threaded)
    assert client.params is None
    server.publish(5, PARAMS, 4.0)
    client.wait()
    assert (client.version, client.staleness, client.new_priority) == (5, 0, 4.0)
    server.publish(9, {"w": PARAMS["w"] + 1})
    for _ in range(2):
        client.step()
    assert client.version == 5
    client.step()
    wait_for(lambda: client.step() or client.version == 9)
    assert client.staleness == 4
    np.testing.assert_array_equal(client.params["w"], PARAMS["w"] + 1)
    client.close()


def test_an_actor_goes_on_with_old_parameters_while_the_learner_is_away():
    server, away = ParameterServer(PACKING, max_wait=0.0), threading.Event()
    before = {*threading.enumerate()}

    def get(version):
        if away.is_set():
            raise RuntimeError("the line is dead")
        return server.get(version)

    server.publish(1, PARAMS)
    client = ParameterClient(get, PACKING, update_period=1)
    client.wait()
    away.set()
    wait_for(lambda: client.step() or client.failures >= 3)
    assert client.version == 1
    assert client.params is not None
    server.publish(2, PARAMS)
    away.clear()
    wait_for(lambda: client.step() or client.version == 2)
    assert client.failures == 0
    client.close()
    wait_for(lambda: not {*threading.enumerate()} - before)


def test_a_call_that_hangs_does_not_hold_the_actor():
    release = threading.Event()
    client = ParameterClient(
        lambda version: release.wait(10) and (0, None), PACKING, update_period=1
    )
    started = time.monotonic()
    for _ in range(100):
        client.step()
    client.close()
    assert time.monotonic() - started < 2
    release.set()


@pytest.mark.parametrize("threaded", [True, False])
def test_waiting_for_the_first_parameters_ends(threaded):
    def fail(version):
        raise RuntimeError("nobody is there")

    server = ParameterServer(PACKING, max_wait=0.0)

    def wait(get, **options):
        options |= {"update_period": 1, "threaded": threaded}
        ParameterClient(get, PACKING, **options).wait(max_wait=0.3)

    calls = r"first parameters: \d+ calls failed, the last one with: nobody is there\."
    with pytest.raises(WaitTimeout, match=calls):
        wait(fail)
    with pytest.raises(WaitTimeout, match=r"with: the learner has not compiled yet\."):
        wait(server.get)
    with pytest.raises(Stopped, match="first parameters"):
        wait(server.get, stop=lambda: True)


@pytest.mark.parametrize(
    "other", [{"w": np.zeros(4, np.float32)}, {"w": np.zeros(3, np.int32)}, {"v": PARAMS["w"]}]
)
def test_parameters_of_another_layout_are_refused(other):
    blob = packing_like(other).pack({"new_priority": np.float64(1.0), "params": other})
    with pytest.raises(ValueError, match="both sides need the same agent and config"):
        PACKING.unpack(blob)
    whole = PACKING.pack({"new_priority": np.float64(1.0), "params": PARAMS})
    with pytest.raises(ValueError, match="both sides need the same agent and config"):
        PACKING.unpack(whole[:-1])


def test_means_by_hand():
    metrics = MetricsAccumulator()
    assert metrics.flush() == {}
    metrics.add_episodes({"return": [1.0, 2.0], "length": []})
    metrics.add_episodes({"return": [6.0]}, prefix="actor_0_")
    metrics.add({"loss": np.float32(0.5)}, 2)
    metrics.add({"loss": np.float32(2.0)}, 4)
    assert metrics.flush() == {
        "episode_return": 1.5,
        "actor_0_episode_return": 6.0,
        "loss": (2 * 0.5 + 4 * 2.0) / 6,
    }
    assert metrics.flush() == {}


def test_rates_are_means_over_the_last_seconds():
    rate = Rate()
    assert rate.per_second() == 0.0
    rate.add(0.0, 100)
    assert rate.per_second() == 0.0
    rate.add(1.0, 110)
    assert rate.per_second() == 10.0
    rate.add(6.0, 210)
    assert rate.per_second() == 20.0, "the first count is older than five seconds"
