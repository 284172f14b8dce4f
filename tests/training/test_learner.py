"""The learner: what it publishes, how long it waits, and what it saves. Its order: test_loop.py."""

import time

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from node_fakes import BatchReplay

from retrax.agents.base import Agent, Update
from retrax.datatypes import Sample, SequenceSpec
from retrax.training.learner import Learner, ParameterServer, packing_of

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
