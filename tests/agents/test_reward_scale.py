"""Rewards in units of the largest return: the sum, the scale, and that units cancel out."""

import dataclasses

import chex
import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest
from dm_env import StepType, specs
from hypothesis import given, settings
from hypothesis import strategies as st

from retrax.agents import acer, d4pg, reactor
from retrax.agents.base import Agent, Decision, Update, update
from retrax.agents.reward_scale import (
    DISCOUNTED_SUM,
    ScaledGradients,
    ScaledLearnerState,
    scales_rewards,
)
from retrax.agents.testing import check_agent
from retrax.datatypes import EnvironmentSpec, ReplayConfig, Row, Sample, SequenceSpec, TimeStep
from retrax.environments import make
from retrax.experiments.actors import NewestParameters
from retrax.experiments.loop import Loop
from retrax.replay.local import LocalReplay
from retrax.runtime.actor import Actor
from retrax.runtime.learner import Learner

SEEN = specs.Array((3,), np.float32)
DISCRETE = EnvironmentSpec(SEEN, specs.DiscreteArray(3))
CONTINUOUS = EnvironmentSpec(SEEN, specs.BoundedArray((2,), np.float32, -1.0, 1.0))
DISCOUNT = 0.9
AGENTS = [(acer, "small"), (acer, "small_continuous"), (reactor, "small"), (d4pg, "small")]


@dataclasses.dataclass(frozen=True)
class RecordingConfig:
    scale_rewards: bool = True
    discount: float = DISCOUNT


@scales_rewards
def recording(environment_spec, config):
    """Its gradients are the rewards that it is given, and its learner counts updates."""
    del environment_spec, config

    def act(params, state, timestep):
        return Decision(jnp.int32(0), {"own": timestep.reward}, state)

    def gradients(learner, sample):
        assert set(sample.rows.extras) == {"own"}
        return sample.rows.reward, Update(sample.weights, {"updates": jnp.float32(learner)})

    return Agent(
        init=lambda key: jnp.int32(0),
        acting_params=lambda learner: {"count": learner},
        begin=lambda key, actor_id, num_actors: actor_id,
        explore=act,
        exploit=act,
        gradients=gradients,
        apply=lambda learner, gradients: learner + 1,
        sequence=SequenceSpec(length=4, extras={"own": jax.ShapeDtypeStruct((), np.float32)}),
    )


def sample_of(rewards, sums, mask=None):
    """Rows `[B, T + 1]` of which only rewards and sums matter."""
    rewards = np.asarray(rewards, np.float32)
    zeros = np.zeros(rewards.shape, np.float32)
    rows = Row(
        observation=zeros,
        reward=rewards,
        discount=zeros + 1,
        is_first=zeros.astype(bool),
        is_last=zeros.astype(bool),
        action=zeros.astype(np.int32),
        extras={"own": rewards, DISCOUNTED_SUM: np.asarray(sums, np.float32)},
    )
    mask = np.ones(rewards.shape, bool) if mask is None else np.asarray(mask)
    return Sample(rows, np.ones(len(rewards), np.float32), mask)


AGENT = recording(DISCRETE, RecordingConfig())
ACTING = [jax.jit(AGENT.explore), jax.jit(AGENT.exploit)]


@settings(deadline=None)  # the first example compiles
@given(
    rewards=st.lists(st.floats(-100, 100, width=32), min_size=1, max_size=30),
    data=st.data(),
)
def test_actors_sum_the_rewards_of_their_episode(rewards, data):
    is_first = np.array([True, *(data.draw(st.booleans()) for _ in rewards[1:])])
    rewards = np.where(is_first, 0.0, rewards)
    for act in ACTING:
        state = AGENT.begin(jax.random.key(0), jnp.int32(7), 8)
        sums = []
        for reward, first in zip(rewards, is_first, strict=True):
            kind = StepType.FIRST if first else StepType.MID
            seen = np.zeros(3, np.float32)
            decision = act({}, state, TimeStep(np.int32(kind), np.float32(reward), 1.0, seen))
            state = decision.state
            assert decision.extras["own"] == np.float32(reward)
            sums.append(decision.extras[DISCOUNTED_SUM])
        assert state.actor == 7
        expected = oracles.discounted_sums(rewards, is_first, DISCOUNT)
        np.testing.assert_allclose(sums, expected, rtol=1e-5, atol=1e-3)


def test_rewards_are_divided_by_the_largest_sum_so_far():
    state = AGENT.init(jax.random.key(0))
    rewards = np.array([[0.0, 8.0, -2.0, 4.0]])
    drawn = [
        (sample_of(rewards, [[0.0, 1.0, -16.0, 2.0]]), 16.0),
        (sample_of(rewards, [[0.0, 3.0, 4.0, 5.0]]), 16.0),
        (sample_of(rewards, [[0.0, 32.0, 1.0, 99.0]], [[True, True, True, False]]), 32.0),
        (sample_of(rewards, np.zeros((1, 4))), 32.0),
    ]
    for count, (sample, scale) in enumerate(drawn):
        gradients, outputs = AGENT.gradients(state, sample)
        np.testing.assert_allclose(gradients.learner, rewards / scale)
        assert outputs.metrics == {"updates": count, "reward_scale": scale}
        state = AGENT.apply(state, gradients)
        assert state == ScaledLearnerState(scale, count + 1)
        assert AGENT.acting_params(state) == {"count": count + 1}


def test_without_rewards_the_scale_is_one():
    sample = sample_of(np.zeros((2, 4)), np.zeros((2, 4)))
    gradients, outputs = AGENT.gradients(AGENT.init(jax.random.key(0)), sample)
    assert outputs.metrics["reward_scale"] == 1
    np.testing.assert_array_equal(gradients.learner, np.zeros((2, 4)))


def test_the_scale_never_shrinks_by_gradients_from_elsewhere():
    state = ScaledLearnerState(jnp.float32(8), jnp.int32(0))
    assert AGENT.apply(state, ScaledGradients(jnp.float32(5), jnp.zeros(1))).largest == 8
    assert AGENT.apply(state, ScaledGradients(jnp.float32(9), jnp.zeros(1))).largest == 9


def test_off_nothing_is_added():
    agent = recording(DISCRETE, RecordingConfig(scale_rewards=False))
    assert set(agent.sequence.extras) == {"own"}
    assert agent.init(jax.random.key(0)) == 0


@pytest.mark.parametrize(("module", "preset"), AGENTS)
def test_agents_that_scale_rewards_keep_the_contract(module, preset):
    config = dataclasses.replace(module.PRESETS[preset](), scale_rewards=True)
    spec = CONTINUOUS if preset == "small_continuous" or module is d4pg else DISCRETE
    agent = module.make_agent(spec, config)
    assert DISCOUNTED_SUM in agent.sequence.extras
    check_agent(agent, spec)


class InUnits:
    """Environments whose rewards are in another unit."""

    def __init__(self, environment, unit):
        self._environment, self._unit = environment, unit
        self.num_envs, self.spec = environment.num_envs, environment.spec

    def reset(self):
        return self._environment.reset()

    def step(self, actions):
        timestep = self._environment.step(actions)
        return timestep._replace(reward=(self._unit * timestep.reward).astype(np.float32))

    def close(self):
        self._environment.close()


def plain_data(x):
    return jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x


def learned(module, config, environment):
    agent = module.make_agent(environment.spec, config)
    count = environment.num_envs
    replay = LocalReplay(
        environment.spec, agent.sequence, config.replay, num_environments=count, seed=0
    )
    learner = Learner(agent, replay, key=jax.random.key(0))
    keys = jax.random.split(jax.random.key(1), count)
    writer = replay.writer(range(count))
    actor = Actor(agent, environment, writer, NewestParameters(learner), keys=keys)
    loop = Loop([actor], learner, replay)
    loop.start()
    for _ in range(60):
        loop.advance()
    assert learner.updates >= 5
    state = jax.device_get(learner.state)
    loop.close()
    return state


@pytest.mark.parametrize(
    ("module", "task", "changes"),
    [
        (reactor, "catch", {"sequence_length": 6}),
        (acer, "catch", {"sequence_length": 6, "hidden_size": 8}),
        (d4pg, "Pendulum-v1", {"policy_sizes": (8,), "critic_sizes": (8, 8)}),
    ],
)
def test_what_is_learned_does_not_depend_on_the_unit_of_rewards(module, task, changes):
    """A power of two is exact, so the learners are equal bit for bit."""
    config = module.Config.small(scale_rewards=True, **changes)
    pace = "rounds" if module is acer else "steady"
    replay = dataclasses.replace(
        config.replay, capacity=1000, min_rows=20, batch_size=4, updates_per_call=1
    )
    assert isinstance(replay, ReplayConfig)
    assert replay.pace == pace
    config = dataclasses.replace(config, replay=replay)
    plain, scaled = (
        learned(module, config, InUnits(make(task, num_envs=4), unit)) for unit in (1.0, 1024.0)
    )
    assert scaled.largest == 1024 * plain.largest > 0
    chex.assert_trees_all_equal(*(jax.tree.map(plain_data, x.learner) for x in (plain, scaled)))


def test_an_update_is_that_of_scaled_rewards():
    """D4PG's learner with rewards divided by hand."""
    scaling = d4pg.make_agent(CONTINUOUS, d4pg.Config.small(scale_rewards=True))
    plain = d4pg.make_agent(CONTINUOUS, d4pg.Config.small(scale_rewards=False))
    rng, length = np.random.default_rng(0), plain.sequence.length
    shape = (5, length)
    rows = Row(
        observation=rng.normal(size=(*shape, 3)).astype(np.float32),
        reward=rng.normal(size=shape).astype(np.float32),
        discount=np.ones(shape, np.float32),
        is_first=np.zeros(shape, bool),
        is_last=np.zeros(shape, bool),
        action=rng.uniform(-1, 1, (*shape, 2)).astype(np.float32),
        extras={},
    )
    sums = 3 * rng.normal(size=shape).astype(np.float32)
    sample = Sample(rows, np.ones(5, np.float32), np.ones(shape, bool))
    divided = sample._replace(rows=rows._replace(reward=rows.reward / np.abs(sums).max()))
    whole = sample._replace(rows=rows._replace(extras={DISCOUNTED_SUM: sums}))
    (one, outputs), (other, expected) = (
        jax.jit(update(agent))(agent.init(jax.random.key(0)), given)
        for agent, given in ((scaling, whole), (plain, divided))
    )
    one, other = (jax.tree.map(plain_data, state) for state in (one.learner, other))
    chex.assert_trees_all_close(one, other, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(outputs.priorities, expected.priorities, rtol=1e-5)
