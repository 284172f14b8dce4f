"""The learner: what it publishes, how long it waits, and what it saves. Its order: test_loop.py."""

import time

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from retrax.agents.base import Agent, Update
from retrax.datatypes import Sample, SequenceSpec
from retrax.replay.interface import Draw, ReplayStatus
from retrax.training.learner import Learner
from retrax.training.parameters import ParameterServer, packing_of

SHAPES = Sample({}, jax.ShapeDtypeStruct((2,), np.float32), {})


class Replay:
    """Draws a batch as often as it is `due`."""

    def __init__(self, due=0, wait=0.0):
        self.due, self.wait, self.shapes = due, wait, [SHAPES]
        self.priorities, self.closed, self.restored = [], False, None
        self.metric_names = ("key",)

    def sample(self, timeout=0.0):
        if self.due:
            self.due -= 1
            return Draw(self.due, Sample({}, np.ones(2, np.float32), {}), 1)
        time.sleep(min(timeout, self.wait))
        return None

    def set_priorities(self, keys, priorities):
        self.priorities.append((keys, priorities.tolist()))

    def metrics(self, keys):
        return {"key": float(keys)}

    def status(self):
        return ReplayStatus(0, 0, None, None, 7.0)

    def state(self):
        return {"due": np.array(self.due)}

    def restore(self, state, counters):
        self.restored = counters

    def close(self):
        self.closed = True


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
    learners = []

    def make(replay, **options):
        learners.append(Learner(AGENT, replay, key=jax.random.key(1), **options))
        return learners[-1]

    yield make
    for learner in learners:
        learner.close()


def test_it_publishes_when_it_is_asked(make_learner):
    server = ParameterServer(packing_of(AGENT), max_wait=0.0)
    learner = make_learner(Replay(due=10), parameters=server)
    learner.compile()
    assert server.version == -1
    learner.publish()
    assert server.version == 0
    for _ in range(3):
        learner.step()
    assert server.version == 0  # nobody asked
    server.get(0)
    learner.step()
    assert server.version == learner.updates == 4


def test_idle_it_publishes_what_is_wanted_and_not_yet_published(make_learner):
    """Or the last evaluation of a run would be of older parameters."""
    server = ParameterServer(packing_of(AGENT), max_wait=0.0)
    learner = make_learner(Replay(due=2), parameters=server)
    learner.publish()
    for _ in range(3):
        learner.step()
    assert (server.version, learner.updates) == (0, 2)  # nobody asked
    server.get(0)
    assert not learner.step()
    assert server.version == 2
    learner.publish = None  # not once more: there is nothing newer
    server.get(2)
    assert not learner.step()


def test_compiling_changes_nothing_and_happens_once(make_learner):
    learner = make_learner(Replay(due=10))
    before = jax.device_get(learner.state)
    learner.compile()
    chex.assert_trees_all_equal(jax.device_get(learner.state), before)
    assert (learner.updates, learner.metrics.flush()) == (0, {})
    compiled = learner._updates._jitted._cache_size()
    for _ in range(3):
        learner.step()
    assert learner._updates._jitted._cache_size() == compiled


def test_idle_time_is_measured(make_learner):
    replay = Replay(wait=0.2)
    learner = make_learner(replay)
    learner.compile()
    assert not learner.step(timeout=1.0)
    idle = learner.idle_seconds
    assert idle >= 0.2
    replay.due = 2
    assert learner.step(timeout=1.0)
    time.sleep(0.1)
    assert learner.idle_seconds < idle + 0.1


def test_priorities_and_metrics_of_each_update_are_kept(make_learner):
    replay = Replay(due=3)
    learner = make_learner(replay)
    assert [learner.step() for _ in range(4)] == [True, True, True, False]
    assert replay.priorities == [(2, [1, 1]), (1, [2, 2]), (0, [3, 3])]
    # "key" is the replay's, of the batches that were learned from.
    assert learner.metrics.flush() == {"loss": 1.0, "key": 1.0}


def test_a_snapshot_is_restored(make_learner):
    learner = make_learner(Replay(due=5))
    for _ in range(3):
        learner.step()
    snapshot = learner.snapshot()
    assert snapshot.counters == {"updates": 3}
    learner.step()  # must not change what was saved
    replay = Replay(due=5)
    again = make_learner(replay)
    counters = {"steps": 9, "updates": 3, "learning_since": 2}
    again.restore(snapshot._replace(counters=counters))
    assert (again.updates, replay.restored) == (3, counters)
    again.step()
    chex.assert_trees_all_equal(jax.device_get(again.state), jax.device_get(learner.state))
    chex.assert_trees_all_equal(snapshot.learner["count"], jnp.float32(3))


def test_names_of_metrics_take_no_trace_of_their_own():
    traces = []

    def gradients(state, sample):
        traces.append(None)
        return AGENT.gradients(state, sample)

    learner = Learner(AGENT._replace(gradients=gradients), Replay(), key=jax.random.key(1))
    assert learner.metric_names == ["loss", "key"]
    learner.compile()
    assert len(traces) == 1
    learner.close()
