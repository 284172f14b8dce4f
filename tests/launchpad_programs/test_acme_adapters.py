"""Agents and environments run by Acme's own loop."""

import dataclasses
import threading
import time
from typing import NamedTuple

import dm_env
import jax
import jax.numpy as jnp
import numpy as np
import pytest

pytest.importorskip("reverb", reason="needs the distributed tier (Python 3.10, Linux)")

from retrax.agents import reactor
from retrax.agents.base import Agent, Decision
from retrax.datatypes import EnvironmentSpec, ReplayConfig, SequenceSpec
from retrax.environments import make
from retrax.evaluation import run_episodes
from retrax.launchpad_programs.acme_adapters import (
    AgentActor,
    AgentLearner,
    SingleEnvironment,
    acme,
    run_loop,
)
from retrax.launchpad_programs.config import AcmeOptions
from retrax.replay.local import LocalReplay
from retrax.replay.reverb import ReverbWriter, make_replay, make_tables
from retrax.replay.reverb.library import reverb
from retrax.replay.waiting import Stopped
from retrax.runtime.actor import Actor
from retrax.runtime.learner import Learner
from retrax.runtime.parameters import ParameterClient, ParameterServer, packing_of

import launchpad  # isort: skip
from acme.utils import counting, loggers  # isort: skip

pytestmark = pytest.mark.distributed


class State(NamedTuple):
    key: jax.Array
    time: jax.Array


def explore(params, state, timestep):
    """Random actions; the extras count the calls, and hold the version of the parameters."""
    key, action_key = jax.random.split(state.key)
    action = jax.random.randint(action_key, (), 0, 2).astype(jnp.int32)
    extras = {"time": state.time, "params": params["version"]}
    return Decision(action, extras, State(key, state.time + 1))


NUMBER = jax.ShapeDtypeStruct((), np.int32)
AGENT = Agent(
    init=lambda key: jnp.zeros((), jnp.int32),
    acting_params=lambda state: {"version": state},
    begin=lambda key, actor_id, num_actors: State(key, 100 * actor_id),
    explore=explore,
    exploit=explore,
    gradients=None,
    apply=None,
    sequence=SequenceSpec(length=2, extras={"time": NUMBER, "params": NUMBER}),
)


class Recorder:
    def __init__(self):
        self.rows, self.priorities = [], []

    def write(self, rows, new_priority):
        self.rows.append(jax.tree.map(lambda x: x[0], rows))
        self.priorities.append(new_priority)

    def close(self):
        pass


class Memory(loggers.Logger):
    def __init__(self):
        self.data, self.closed = [], False

    def write(self, data):
        self.data.append(data)

    def close(self):
        self.closed = True


class Parts:
    """An actor on one environment, and what it reads and writes."""

    def __init__(self, actor_id=0):
        self.server = ParameterServer(packing_of(AGENT), max_wait=0.0)
        self.server.publish(0, {"version": np.int32(0)}, 3.0)
        client = ParameterClient(
            self.server.get, packing_of(AGENT), update_period=1, threaded=False
        )
        client.wait()
        self.writer, self.environment = Recorder(), make("catch", seed=1)
        self.actor = Actor(
            AGENT,
            self.environment,
            self.writer,
            client,
            keys=jax.random.split(jax.random.key(0), 1),
            first_id=actor_id,
            num_actors=4,
        )
        self.single = SingleEnvironment(self.environment)

    def run(self, episodes=3):
        counter, logger = counting.Counter(), Memory()
        loop = acme.EnvironmentLoop(
            self.single, AgentActor(self.actor), counter=counter, logger=logger
        )
        loop.run(num_episodes=episodes)
        return counter, logger


def test_it_decides_and_writes_on_every_time_step_last_ones_too():
    parts = Parts(actor_id=2)
    counter, logger = parts.run()
    assert counter.get_counts() == {"episodes": 3, "steps": 27}
    assert [data["episode_length"] for data in logger.data] == [9, 9, 9]
    rows = parts.writer.rows
    assert [int(row.extras["time"]) for row in rows] == list(range(200, 230))
    assert np.flatnonzero([row.is_first for row in rows]).tolist() == [0, 10, 20]
    assert np.flatnonzero([row.is_last for row in rows]).tolist() == [9, 19, 29]
    assert set(parts.writer.priorities) == {3.0}
    returns = [float(data["episode_return"]) for data in logger.data]
    assert parts.actor.take_episodes() == {"return": returns, "length": [9, 9, 9]}


def test_rows_fit_the_spec_and_are_what_happened():
    parts = Parts()
    _, logger = parts.run()
    replayed = make("catch", seed=1)
    replayed.reset()  # the actor's own
    timestep = replayed.reset()
    returns = [0.0]
    for row in parts.writer.rows:
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


def test_new_parameters_are_taken_between_steps():
    parts = Parts()
    actor = AgentActor(parts.actor)
    actor.update(wait=True)
    timestep = parts.single.reset()
    actor.observe_first(timestep)
    for version in range(1, 6):
        action = actor.select_action(timestep.observation)
        timestep = parts.single.step(action)
        actor.observe(action, next_timestep=timestep)
        parts.server.publish(version, {"version": np.int32(version)})
        actor.update()
    assert [int(row.extras["params"]) for row in parts.writer.rows] == [0, 1, 2, 3, 4]


def test_time_steps_of_dm_envs_own_helpers_are_cast():
    """They give None at first, and float64 later, which Reverb refuses at the episode's end."""
    parts = Parts()
    actor = AgentActor(parts.actor)
    actor.observe_first(dm_env.restart(np.zeros(50, np.float32)))
    for timestep in (
        dm_env.transition(0.5, np.zeros(50, np.float32), 0.9),
        dm_env.truncation(1.5, np.zeros(50, np.float32)),
    ):
        action = actor.select_action(timestep.observation)
        actor.observe(action, next_timestep=timestep)
    values = [(row.reward, row.discount) for row in parts.writer.rows]
    np.testing.assert_allclose(values, [(0, 1), (0.5, 0.9), (1.5, 1.0)])
    assert {x.dtype for pair in values for x in pair} == {np.dtype(np.float32)}


def test_a_loop_of_a_program_waits_before_every_step_and_has_the_users_parts():
    parts, granted = Parts(), iter(range(20))

    def before_step():
        if next(granted, None) is None:
            raise Stopped

    logger = Memory()
    made = []

    class Observer:
        def observe_first(self, env, timestep):
            pass

        def observe(self, env, timestep, action):
            pass

        def get_metrics(self):
            return {"from_the_observer": 5}

    def make_logger(label, steps_key, instance):
        made.append((label, steps_key, instance))
        return logger

    options = AcmeOptions(logger_factory=make_logger, observers=[Observer()])
    with pytest.raises(Stopped):
        run_loop(options, parts.environment, parts.actor, index=3, before_step=before_step)
    assert made == [("actor", "actor_steps", 3)]
    assert [data["from_the_observer"] for data in logger.data] == [5, 5]
    assert logger.closed
    assert len(parts.writer.rows) == 20 + 2  # and two last ones


def test_a_loop_of_the_users_own_runs_again_if_it_ends_early():
    parts, runs = Parts(), []

    class Mine:
        def __init__(self, environment, actor, *, logger, observers):
            assert isinstance(environment, SingleEnvironment)
            assert isinstance(actor, AgentActor)
            assert isinstance(logger, loggers.NoOpLogger)
            assert observers == ()

        def run(self):
            runs.append(1)
            if len(runs) == 2:
                raise Stopped

    options = AcmeOptions(make_environment_loop=Mine)
    with pytest.raises(Stopped):
        run_loop(options, parts.environment, parts.actor, index=0, before_step=lambda: None)
    assert len(runs) == 2


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


def test_a_single_environment_restarts_as_a_vector_does():
    vector = TwoSteps()
    single = SingleEnvironment(vector)
    assert single.step(1).first()  # there was no episode yet
    steps = [single.step(1), single.step(0)]
    assert [step.last() for step in steps] == [False, True]
    assert [step.observation.tolist() for step in steps] == [[1.0], [2.0]]  # copies
    assert single.reset().first()
    assert vector.resets == 1  # the vector started the next episode itself
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


def test_a_loop_steps_one_environment():
    with pytest.raises(ValueError, match="steps one environment, got 2"):
        SingleEnvironment(make("catch", num_envs=2))


REPLAY = ReplayConfig(capacity=20_000, batch_size=16, min_rows=200)


def small_reactor(selector):
    replay = dataclasses.replace(REPLAY, selector=selector)
    config = reactor.Config.small(
        recurrent=False,
        sequence_length=10,
        sequence_period=5,
        learning_rate=3e-3,
        target_update_period=20,
        replay=replay,
    )
    return config, reactor.make_agent(make("catch").spec, config)


def test_a_learner_is_acmes_learner():
    config, agent = small_reactor("uniform")
    environment = make("catch", seed=1)

    def make_learner():
        replay = LocalReplay(
            environment.spec, agent.sequence, config.replay, num_environments=1, seed=3
        )
        server = ParameterServer(packing_of(agent), max_wait=0.0)
        learner = Learner(agent, replay, key=jax.random.key(7), parameters=server)
        return replay, server, learner, AgentLearner(learner, timeout=0.0)

    replay, server, learner, acme_learner = make_learner()
    learner.publish()
    client = ParameterClient(server.get, packing_of(agent), update_period=1, threaded=False)
    keys = jax.random.split(jax.random.key(0), 1)
    actor = Actor(agent, environment, replay.writer([0]), client, keys=keys)
    acme_actor = AgentActor(actor)
    acme_actor.update(wait=True)
    loop = acme.EnvironmentLoop(
        SingleEnvironment(environment), acme_actor, logger=loggers.NoOpLogger()
    )
    loop.run(num_steps=300)
    acme_learner.step()
    acme_learner.step()
    assert learner.updates == 2
    variables = acme_learner.get_variables(["params", "again"])
    jax.tree.map(np.testing.assert_array_equal, variables[1], learner.params)
    assert len(variables) == 2
    saved = acme_learner.save()
    counters = {**saved.counters, "steps": 300, "learning_since": 200}
    _, again_server, again, acme_again = make_learner()
    acme_again.restore(saved._replace(counters=counters))
    assert again.updates == again_server.version == 2
    jax.tree.map(np.testing.assert_array_equal, again.params, learner.params)
    for each in (learner, again):
        each.close()


@pytest.mark.parametrize(
    "selector", [pytest.param("contextual", marks=pytest.mark.slow), "proportional"]
)
def test_catch_improves_through_a_reverb_server(selector):
    """Actor, replay and learner as in a program, in threads, run by Acme's own loop."""
    config, agent = small_reactor(selector)
    environment = make("catch", seed=1)
    stop = threading.Event()
    names = (environment.spec, agent.sequence, config.replay)
    server = reverb.Server(make_tables(*names, num_environments=1))
    address = f"127.0.0.1:{server.port}"
    replay = make_replay(address, *names, num_environments=1, seed=0)
    parameters = ParameterServer(packing_of(agent))
    learner = Learner(agent, replay, key=jax.random.key(0), parameters=parameters)
    client = ParameterClient(parameters.get, packing_of(agent), update_period=20, stop=stop.is_set)
    counter = counting.Counter()

    def act():
        client.wait()
        writer = ReverbWriter(address, *names, environments=[0], stop=stop.is_set)
        keys = jax.random.split(jax.random.key(1), 1)
        actor = Actor(agent, environment, writer, client, keys=keys)
        loop = acme.EnvironmentLoop(
            SingleEnvironment(environment),
            AgentActor(actor),
            counter=counter,
            logger=loggers.NoOpLogger(),
        )
        try:
            while not stop.is_set():
                loop.run(num_episodes=1)
        except Stopped:
            pass
        finally:
            actor.close()

    # Acme's loop registers a stop handler. The first one of a process installs Launchpad's signal
    # handlers, which only the main thread may do.
    launchpad.register_stop_handler(stop.set)
    thread = threading.Thread(target=act, daemon=True)
    thread.start()
    try:
        learner.compile()
        learner.publish()
        deadline = time.monotonic() + 240
        # After 1,500 updates, 7,000 steps, most runs have 1.0, but some have hardly begun.
        while learner.updates < 2500 and thread.is_alive() and time.monotonic() < deadline:
            learner.step(0.5)
        counts = counter.get_counts()
    finally:
        launchpad.unregister_stop_handler(stop.set)
        stop.set()
        thread.join(20)
        client.close()
        learner.close()
        server.stop()
    assert not thread.is_alive()
    results = run_episodes(
        agent,
        learner.params,
        make("catch", seed=2, num_envs=10),
        key=jax.random.key(0),
        num_episodes=50,
    )
    assert results.returns.mean() > 0.5  # at first it is about -0.6
    assert counts["episodes"] == pytest.approx(counts["steps"] / 9)
    taken = counts["steps"]
    if selector == "proportional":
        taken += counts["episodes"]  # Reverb counts rows, last ones too
    assert taken == pytest.approx(200 + 5 * learner.updates, rel=0.05)
    assert learner.idle_seconds >= 0
    assert client.version > 1000
    assert 0 < client.staleness < 200
    assert client.failures == 0
