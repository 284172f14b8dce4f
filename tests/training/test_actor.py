"""The actor: rows, identities, compilation, and a loop outside that steps it."""

import collections

import chex
import dm_env
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from node_fakes import Parameters, Writer, acting_agent
from stepping import FIRST, LAST, MID

from retrax.agents.base import Decision
from retrax.basics.prng_keys import without_keys
from retrax.environments import make
from retrax.training.loop import Actor, RunningReturns

State = collections.namedtuple("State", "key time")


def explore(params, state, timestep):
    """Random actions; the extras count the calls."""
    key, action_key = jax.random.split(state.key)
    action = jax.random.randint(action_key, (), 0, 2).astype(jnp.int32)
    return Decision(action, {"time": state.time}, State(key, state.time + 1))


AGENT = acting_agent(explore, time=jax.ShapeDtypeStruct((), np.int32))._replace(
    acting_params=lambda state: jnp.zeros(3),
    begin=lambda key, actor_id, num_actors: State(key, 100 * actor_id),
)


def make_actor(keys, environment=None, agent=AGENT, **options):
    environment = environment or make("catch", num_envs=len(keys), seed=1)
    writer, parameters = Writer(), Parameters()
    parameters.params, parameters.new_priority = jnp.zeros(3), 3.0
    actor = Actor(agent, environment, writer, parameters, keys=keys, **options)
    return actor, writer, parameters


@pytest.fixture
def keys():
    return jax.random.split(jax.random.key(3), 2)


def test_each_environment_has_a_row_in_every_time_step_last_ones_too(keys):
    closed, environment = [], make("catch", num_envs=2, seed=1)
    environment.close = lambda: closed.append(1)
    actor, writer, parameters = make_actor(keys, environment, first_id=2, num_actors=4)
    actor.start()
    assert [actor.step() for _ in range(20)] == ([2] * 9 + [0]) * 2  # transitions
    assert parameters.version == 1, "it has waited"
    assert parameters.steps == 20
    assert set(writer.priorities) == {3.0}
    times = np.stack([row.extras["time"] for row in writer.rows])
    np.testing.assert_array_equal(times, np.arange(20)[:, None] + [200, 300])
    for name, at in (("is_first", 0), ("is_last", 9)):
        marks = np.stack([getattr(row, name) for row in writer.rows])
        np.testing.assert_array_equal(np.flatnonzero(marks.all(1)), [at, at + 10])
        assert marks.sum() == 4
    actions = np.stack([row.action for row in writer.rows])
    assert actions[:, 0].tolist() != actions[:, 1].tolist()
    assert actor.take_episodes()["length"] == [9] * 4
    assert actor.take_episodes() == {}
    actor.close()
    assert (writer.closed, closed) == (True, [1])


def test_each_environment_of_a_vector_is_an_actor_of_its_own(keys):
    """Rows, identities and random numbers are those of as many actors of one environment."""

    def rows(keys, first_id):
        actor, writer, _ = make_actor(keys, first_id=first_id, num_actors=4)
        environment = make("catch", num_envs=2, seed=1)
        timestep = environment.reset()
        for _ in range(12):
            place = slice(first_id, first_id + len(keys))
            actor.observe(jax.tree.map(lambda x, place=place: x[place], timestep))
            actor.decide()
            timestep = environment.step(np.zeros(2, np.int32))
        return writer.rows

    together = rows(keys, 0)
    apart = zip(rows(keys[:1], 0), rows(keys[1:], 1), strict=True)
    joined = [jax.tree.map(lambda a, b: np.concatenate([a, b]), *pair) for pair in apart]
    chex.assert_trees_all_equal(together, joined)


def test_compiling_changes_nothing_and_happens_once(keys):
    traces = []

    def traced(*arguments):
        traces.append(None)
        return explore(*arguments)

    actor, writer, _ = make_actor(keys, agent=AGENT._replace(explore=traced))
    before = jax.device_get(without_keys(actor.state))
    actor.compile()
    chex.assert_trees_all_equal(jax.device_get(without_keys(actor.state)), before)
    compiled = len(traces)
    for _ in range(3):
        actor.step()
    assert len(traces) == compiled
    assert len(writer.rows) == 3


def steps(types, rewards):
    types = np.array(types, np.int32)
    return dm_env.TimeStep(types, np.array(rewards, np.float32), np.ones(len(types)), None)


def test_returns_and_lengths_by_hand():
    running = RunningReturns(2)
    assert [x.tolist() for x in running.add(steps([FIRST, FIRST], [9, 9]))] == [[], [], []]
    assert [x.tolist() for x in running.add(steps([MID, LAST], [1, 2]))] == [[1], [2.0], [1]]
    assert [x.tolist() for x in running.add(steps([LAST, FIRST], [3, 9]))] == [[0], [4.0], [2]]
