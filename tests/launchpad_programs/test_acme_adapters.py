"""The actor and its environment, run by Acme's own loop."""

from typing import NamedTuple

import chex
import dm_env
import jax
import jax.numpy as jnp
import numpy as np
import pytest

pytest.importorskip("reverb", reason="needs the distributed tier (Python 3.10, Linux)")
from acme.utils import counting, loggers

from retrax.agents.base import Agent, Decision
from retrax.datatypes import EnvironmentSpec
from retrax.environments import make
from retrax.launchpad_programs.acme_library import acme
from retrax.launchpad_programs.acting import Actor, SingleEnvironment, VectorActor
from retrax.launchpad_programs.parameters import ParameterClient, ParameterServer
from retrax.replay import SequenceSpec

pytestmark = pytest.mark.distributed


class State(NamedTuple):
    key: jax.Array
    time: jax.Array


def counting_agent():
    """Its extras tell how often it was asked, and by which parameters."""

    def decide(offset):
        def act(params, state, timestep):
            key, action_key = jax.random.split(state.key)
            action = (jax.random.randint(action_key, (), 0, 2) + offset).astype(jnp.int32)
            extras = {"time": state.time, "params": params["version"]}
            return Decision(action, extras, State(key, state.time + 1))

        return act

    number = jax.ShapeDtypeStruct((), np.int32)
    return Agent(
        init=lambda key: jnp.zeros((), jnp.int32),
        acting_params=lambda state: {"version": state},
        begin=lambda key, actor_id, num_actors: State(key, 100 * actor_id),
        explore=decide(0),
        exploit=decide(1),
        update=lambda state, sample: None,
        sequence=SequenceSpec(length=2, extras={"time": number, "params": number}),
    )


class Recorder:
    new_priority = 1.0

    def __init__(self):
        self.rows = []

    def write(self, row):
        self.rows.append(row)

    def close(self):
        pass


class Memory(loggers.Logger):
    def __init__(self):
        self.data = []

    def write(self, data):
        self.data.append(data)

    def close(self):
        pass


def served(version=0, **options):
    server = ParameterServer(patience=0.0)
    server.publish(version, {"version": np.int32(version)}, {"new_priority": 3.0})
    client = ParameterClient(server.get, update_period=1, threaded=False, **options)
    client.wait()
    return server, client


def run(writer, episodes=3, actor_id=0, environment="catch"):
    server, client = served()
    actor = Actor(
        counting_agent(),
        client,
        key=jax.random.key(0),
        writer=writer,
        actor_id=actor_id,
        num_actors=4,
    )
    single = SingleEnvironment(make(environment, seed=1))
    counter, logger = counting.Counter(), Memory()
    loop = acme.EnvironmentLoop(single, actor, counter=counter, logger=logger)
    loop.run(num_episodes=episodes)
    return actor, counter, logger, server


def test_it_decides_and_writes_on_every_time_step_last_ones_too():
    writer = Recorder()
    _, counter, logger, _ = run(writer, actor_id=2)
    assert counter.get_counts() == {"episodes": 3, "steps": 27}
    assert [data["episode_length"] for data in logger.data] == [9, 9, 9]
    assert len(writer.rows) == 30
    assert [int(row.extras["time"]) for row in writer.rows] == list(range(200, 230))
    first, last = [0, 10, 20], [9, 19, 29]
    assert np.flatnonzero([row.is_first for row in writer.rows]).tolist() == first
    assert np.flatnonzero([row.is_last for row in writer.rows]).tolist() == last
    assert writer.new_priority == 3.0


def test_rows_fit_the_spec_and_are_what_happened():
    writer = Recorder()
    _, _, logger, _ = run(writer)
    replayed = make("catch", seed=1)
    timestep = replayed.reset()
    returns = [0.0]
    for row in writer.rows:
        assert row.reward.dtype == row.discount.dtype == np.float32
        assert row.action.dtype == np.int32
        np.testing.assert_array_equal(row.observation, timestep.observation[0])
        assert (row.reward, row.discount) == (timestep.reward[0], timestep.discount[0])
        assert row.is_last == (timestep.step_type[0] == dm_env.StepType.LAST)
        returns[-1] += float(row.reward)
        if row.is_last:
            returns.append(0.0)
        timestep = replayed.step(row.action[None])
    assert [float(data["episode_return"]) for data in logger.data] == returns[:-1]


def test_an_evaluator_exploits_and_writes_nothing():
    actions = []
    _, client = served()
    actor = Actor(counting_agent(), client, key=jax.random.key(0), writer=None)
    single = SingleEnvironment(make("catch", seed=1))
    timestep = single.reset()
    actor.observe_first(timestep)
    while not timestep.last():
        actions.append(int(actor.select_action(timestep.observation)))
        timestep = single.step(actions[-1])
        actor.observe(actions[-1], next_timestep=timestep)
    assert set(actions) == {1, 2}
    assert int(actor.vector.state.time[0]) == 10


def test_new_parameters_are_taken_over_between_steps():
    writer = Recorder()
    server, client = served()
    actor = Actor(counting_agent(), client, key=jax.random.key(0), writer=writer)
    single = SingleEnvironment(make("catch", seed=1))
    timestep = single.reset()
    actor.observe_first(timestep)
    for version in range(1, 6):
        action = actor.select_action(timestep.observation)
        timestep = single.step(action)
        actor.observe(action, next_timestep=timestep)
        server.publish(version, {"version": np.int32(version)})
        actor.update()
    assert [int(row.extras["params"]) for row in writer.rows] == [0, 1, 2, 3, 4]


def test_time_steps_of_dm_envs_own_helpers_are_cast():
    """They give None at first, and float64 later, which Reverb refuses at the episode's end."""
    writer = Recorder()
    _, client = served()
    actor = Actor(counting_agent(), client, key=jax.random.key(0), writer=writer)
    actor.observe_first(dm_env.restart(np.zeros(50, np.float32)))
    for timestep in (
        dm_env.transition(0.5, np.zeros(50, np.float32), 0.9),
        dm_env.truncation(1.5, np.zeros(50, np.float32)),
    ):
        action = actor.select_action(timestep.observation)
        actor.observe(action, next_timestep=timestep)
    values = [(row.reward, row.discount) for row in writer.rows]
    np.testing.assert_allclose(values, [(0, 1), (0.5, 0.9), (1.5, 1.0)])
    assert {x.dtype for pair in values for x in pair} == {np.dtype(np.float32)}


def test_compiling_changes_nothing_and_is_done_once():
    _, client = served()
    actor = VectorActor(
        counting_agent(), client, keys=jax.random.split(jax.random.key(0), 2), writers=()
    )
    before = jax.random.key_data(actor.state.key)
    environment = make("catch", num_envs=2, seed=1)
    timesteps = environment.reset()
    actor.compile(timesteps)
    np.testing.assert_array_equal(jax.random.key_data(actor.state.key), before)
    compiled = actor._act._cache_size()
    for _ in range(3):
        actor.act(timesteps)
    assert actor._act._cache_size() == compiled


def test_each_environment_of_a_vector_is_an_actor_of_its_own():
    """Rows, identities and random numbers are those of as many actors of one environment."""
    _, client = served()
    keys = jax.random.split(jax.random.key(3), 2)

    def record(keys, first_id):
        writers = [Recorder() for _ in keys]
        options = {"writers": writers, "first_id": first_id, "num_actors": 4}
        actor = VectorActor(counting_agent(), client, keys=keys, **options)
        environment = make("catch", num_envs=2, seed=1)
        timesteps = environment.reset()
        for _ in range(12):
            mine = jax.tree.map(lambda x: x[first_id - 2 :][: len(keys)], timesteps)
            actor.act(mine)
            timesteps = environment.step(np.zeros(2, np.int32))
        return [writer.rows for writer in writers]

    together = record(keys, 2)
    apart = [*record(keys[:1], 2), *record(keys[1:], 3)]
    chex.assert_trees_all_equal(together, apart)
    assert [int(rows[0].extras["time"]) for rows in together] == [200, 300]
    actions = [[int(row.action) for row in rows] for rows in together]
    assert actions[0] != actions[1]


class TwoSteps:
    """Episodes of two actions, whose observations count the calls."""

    num_envs = 1
    spec = EnvironmentSpec(dm_env.specs.Array((1,), np.float32), dm_env.specs.DiscreteArray(2))

    def __init__(self):
        self.resets, self.calls = 0, []
        self.time = 0
        self.buffer = np.zeros((1, 1), np.float32)

    def reset(self):
        self.resets += 1
        self.time = 0
        return self._timestep()

    def step(self, actions):
        self.calls.append(actions.tolist())
        self.time = (self.time + 1) % 3
        return self._timestep()

    def _timestep(self):
        self.buffer[:] = self.time
        kinds = [dm_env.StepType.FIRST, dm_env.StepType.MID, dm_env.StepType.LAST]
        one = np.ones(1, np.float32)
        return dm_env.TimeStep(np.array([kinds[self.time]], np.int32), one, one, self.buffer)

    def close(self):
        self.calls.append("closed")


def test_a_single_environment_restarts_as_a_vector_does():
    vector = TwoSteps()
    single = SingleEnvironment(vector)
    assert single.step(1).first()  # there was no episode yet
    steps = [single.step(1), single.step(0)]
    assert [step.last() for step in steps] == [False, True]
    assert [step.observation.tolist() for step in steps] == [[1.0], [2.0]]  # copies
    assert single.reset().first()
    assert vector.resets == 1  # the vector went on by itself
    single.step(1)
    assert single.reset().first()  # in the middle of an episode
    assert vector.resets == 2
    single.step(1)
    assert single.step(1).last()
    assert single.step(1).first()
    assert vector.calls == [[1], [0], [0], [1], [1], [1], [0]]
    assert single.observation_spec() is vector.spec.observations
    assert single.action_spec() is vector.spec.actions
    assert single.reward_spec().dtype == single.discount_spec().dtype == np.float32
    single.close()
    assert vector.calls[-1] == "closed"


def test_an_actor_steps_one_environment():
    with pytest.raises(ValueError, match="steps one environment, got a vector of 2"):
        SingleEnvironment(make("catch", num_envs=2))
