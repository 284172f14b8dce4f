"""Agents and environments run by Acme's own loop; test_program.py has it in a program."""

import types
import unittest

import average_agent
import dm_env
import jax
import numpy as np
import pytest
from dm_env import specs, test_utils
from node_fakes import Logger, Writer

pytest.importorskip("reverb", reason="needs the distributed tier (Python 3.10, Linux)")

from retrax.environments import make
from retrax.launchpad_programs.acme_adapters import (
    AgentActor,
    AgentLearner,
    SingleEnvironment,
    acme,
    run_loop,
)
from retrax.launchpad_programs.config import AcmeOptions
from retrax.replay.interface import Stopped
from retrax.replay.local import LocalReplay
from retrax.training.learner import Learner, ParameterClient, ParameterServer, packing_of
from retrax.training.loop import Actor

from acme.utils import counting, loggers  # isort: skip

pytestmark = pytest.mark.distributed


class Recorder(Writer):
    def write(self, rows, new_priority):
        assert len(self.rows) < 100, "the loop does not end"
        super().write(jax.tree.map(lambda x: x[0], rows), new_priority)


@pytest.fixture
def parts():
    """An actor on one environment, and what it reads and writes."""
    environment, writer = make("catch", seed=1), Recorder()
    agent = average_agent.make_agent(environment.spec, average_agent.Config())
    packing = packing_of(agent)
    server = ParameterServer(packing, max_wait=0.0)
    server.publish(0, np.float32(0), 3.0)
    client = ParameterClient(server.get, packing, update_period=1, threaded=False)
    client.wait()

    def make_actor(writer):
        keys = jax.random.split(jax.random.key(0), 1)
        return Actor(agent, environment, writer, client, keys=keys)

    actor, single = make_actor(writer), SingleEnvironment(environment)
    return types.SimpleNamespace(**locals())


def test_it_writes_what_happened_on_every_time_step_last_ones_too(parts):
    counter, logger = counting.Counter(), Logger()
    loop = acme.EnvironmentLoop(
        parts.single, AgentActor(parts.actor), counter=counter, logger=logger
    )
    loop.run(num_episodes=3)
    assert counter.get_counts() == {"episodes": 3, "steps": 27}
    rows, returns = parts.writer.rows, [float(data["episode_return"]) for data in logger.data]
    assert np.flatnonzero([row.is_first for row in rows]).tolist() == [0, 10, 20]
    assert np.flatnonzero([row.is_last for row in rows]).tolist() == [9, 19, 29]
    assert len(rows) == 30
    assert set(parts.writer.priorities) == {3.0}
    assert parts.actor.take_episodes() == {"return": returns, "length": [9, 9, 9]}
    replayed = make("catch", seed=1)
    timestep, found = replayed.reset(), [0.0]
    (key,) = jax.random.split(jax.random.key(0), 1)
    for row in rows:
        key, action_key = jax.random.split(key)  # the agent was asked once, and kept its state
        assert row.action == jax.random.randint(action_key, (), 0, 3)
        assert row.reward.dtype == row.discount.dtype == np.float32
        assert row.action.dtype == np.int32
        np.testing.assert_array_equal(row.observation, timestep.observation[0])
        assert (row.reward, row.discount) == (timestep.reward[0], timestep.discount[0])
        assert row.is_last == (timestep.step_type[0] == dm_env.StepType.LAST)
        found[-1] += float(row.reward)
        if row.is_last:
            found.append(0.0)
        timestep = replayed.step(row.action[None])
    assert returns == found[:-1]


def test_new_parameters_are_taken_between_steps(parts):
    actor, seen = AgentActor(parts.actor), []
    actor.update(wait=True)
    timestep = parts.single.reset()
    actor.observe_first(timestep)
    for version in range(1, 6):
        action = actor.select_action(timestep.observation)
        seen.append((parts.client.version, float(parts.client.params)))
        timestep = parts.single.step(action)
        actor.observe(action, next_timestep=timestep)
        parts.server.publish(version, np.float32(10 * version))
        actor.update()
    assert seen == [(0, 0), (1, 10), (2, 20), (3, 30), (4, 40)]


def test_time_steps_of_dm_envs_own_helpers_are_cast(parts):
    """They give None at first, and float64 later, which Reverb refuses at the episode's end."""
    actor, observation = AgentActor(parts.actor), np.zeros(50, np.float32)
    actor.observe_first(dm_env.restart(observation))
    for timestep in (dm_env.transition(0.5, observation, 0.9), dm_env.truncation(1.5, observation)):
        action = actor.select_action(timestep.observation)
        actor.observe(action, next_timestep=timestep)
    values = [(row.reward, row.discount) for row in parts.writer.rows]
    np.testing.assert_allclose(values, [(0, 1), (0.5, 0.9), (1.5, 1.0)])
    assert {x.dtype for pair in values for x in pair} == {np.dtype(np.float32)}


def test_a_loop_of_a_program_waits_before_every_step(parts):
    granted, logger, made = iter(range(20)), Logger(), []

    def before_step():
        if next(granted, None) is None:
            raise Stopped

    def make_logger(*labels):
        made.append(labels)
        return logger

    options = AcmeOptions(logger_factory=make_logger)
    with pytest.raises(Stopped):
        run_loop(options, parts.environment, parts.actor, index=3, before_step=before_step)
    assert made == [("actor", "actor_steps", 3)]
    assert [data["episode_length"] for data in logger.data] == [9, 9]
    assert logger.closed
    assert len(parts.writer.rows) == 20 + 2  # and two last ones


def test_a_loop_of_the_users_own_runs_again_if_it_ends_early(parts):
    runs = []

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


def test_a_single_environment_restarts_as_a_vector_does():
    """It begins the vector's own next episode after a last step, and otherwise resets it."""
    vector = make("catch", seed=1)
    single, calls, reset = SingleEnvironment(vector), [], vector.reset
    vector.reset = lambda: calls.append("reset") or reset()
    assert single.step(1).first()  # there was no episode yet
    first, *_, last = steps = [single.step(1) for _ in range(9)]
    assert [step.last() for step in steps] == [False] * 8 + [True]
    assert first.observation.tolist() != last.observation.tolist()  # copies
    assert single.reset().first()
    assert len(calls) == 1
    single.step(1)
    assert single.reset().first()  # in the middle of an episode
    assert len(calls) == 2
    assert [single.step(1).last() for _ in range(9)][-1]
    assert single.step(1).first()
    assert len(calls) == 2


class Conforming(test_utils.EnvironmentTestMixin, unittest.TestCase):
    """dm_env's own tests of an environment of ours, with random actions."""

    __test__ = False  # pytest would run it for catch alone
    made = "catch"
    ended = False

    def make_object_under_test(self):
        return SingleEnvironment(make(self.made, seed=0))

    def make_action_sequence(self):
        generator, spec = np.random.default_rng(0), self.environment.action_spec()
        for _ in range(60):
            if isinstance(spec, specs.DiscreteArray):
                yield generator.integers(spec.num_values)
            else:
                yield generator.uniform(spec.minimum, spec.maximum)

    def step_environment(self, action=None):
        step = super().step_environment(action)
        self.ended |= step.last()
        return step


@pytest.mark.parametrize(
    "id",
    [
        "catch",
        "CartPole-v1",
        "Pendulum-v1,max_episode_steps=20",
        "FrozenLake-v1",
        "dm_control:cartpole/swingup,time_limit=0.3",
        "ALE/Pong-v5,max_frames=80",
    ],
)
def test_a_single_environment_passes_dm_envs_own_tests(id):
    if id.startswith("dm_control"):
        pytest.importorskip("dm_control", reason="no mujoco extra")
    names = [name for name in dir(Conforming) if name.startswith("test_")]
    assert len(names) == 4
    for name in names:
        case, result = Conforming(name), unittest.TestResult()
        case.made = id
        case.run(result)
        assert not result.failures + result.errors, name
        assert case.ended or "longer" not in name


def test_what_a_single_environment_refuses_and_closes():
    vector, closed = make("catch"), []
    vector.close = lambda: closed.append(True)
    single = SingleEnvironment(vector)
    single.reset()
    with pytest.raises(TypeError, match=r"Cannot cast array data from .*float64"):
        single.step(1.7)
    single.close()
    assert closed == [True]
    with pytest.raises(ValueError, match="steps one environment, got 2"):
        SingleEnvironment(make("catch", num_envs=2))


def test_a_learner_is_acmes_learner(parts):
    def make_learner():
        config, sequence = average_agent.Config(), parts.agent.sequence
        replay = LocalReplay(parts.environment.spec, sequence, config.replay, num_envs=1, seed=3)
        server = ParameterServer(packing_of(parts.agent), max_wait=0.0)
        learner = Learner(parts.agent, replay, key=jax.random.key(7), parameters=server)
        return replay, server, learner, AgentLearner(learner, timeout=0.0)

    replay, _, learner, acme_learner = make_learner()
    actor = parts.make_actor(replay.writer([0]))
    for _ in range(30):
        actor.step()
    acme_learner.step()
    acme_learner.step()
    assert learner.updates == 2
    assert float(learner.params) != 1.0
    assert acme_learner.get_variables(["params", "again"]) == [learner.params] * 2
    saved = acme_learner.save()
    counters = {**saved.counters, "steps": 30, "learning_since": 6}
    _, again_server, again, acme_again = make_learner()
    acme_again.restore(saved._replace(counters=counters))
    assert again.updates == again_server.version == 2
    assert again.params == learner.params
    for each in (learner, again):
        each.close()
