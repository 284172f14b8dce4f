"""Rewards in units of the largest return: the sum, the scale, and that units cancel out."""

import dataclasses
import re

import chex
import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest
from dm_env import StepType, specs
from hypothesis import given, settings
from hypothesis import strategies as st
from linear_agents import KINDS, SPECS, linear_agent, random_sample, tiny_agent

from retrax.agents import acer, d4pg, reactor
from retrax.agents.base import Agent, Decision, Update, update
from retrax.agents.reward_scale import DISCOUNTED_SUM, Scaled, advise_on_support, scales_rewards
from retrax.datatypes import EnvironmentSpec, Row, Sample, SequenceSpec, TimeStep

SEEN = specs.Array((3,), np.float32)
DISCRETE = EnvironmentSpec(SEEN, specs.DiscreteArray(3))
DISCOUNT = 0.9


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
    extras = {"own": rewards, DISCOUNTED_SUM: np.asarray(sums, np.float32)}
    never, action = zeros.astype(bool), zeros.astype(np.int32)
    rows = Row(zeros, rewards, zeros + 1, never, never, action, extras)
    mask = np.ones(rewards.shape, bool) if mask is None else np.asarray(mask)
    return Sample(rows, np.ones(len(rewards), np.float32), mask)


AGENT = recording(DISCRETE, RecordingConfig())
ACTING = [jax.jit(AGENT.explore), jax.jit(AGENT.exploit)]


def act_through(act, kinds, rewards, discounts):
    """What an actor counts at each time step of some episodes, and its last state."""
    state, counted = AGENT.begin(jax.random.key(0), jnp.int32(7), 8), []
    for kind, reward, discount in zip(kinds, rewards, discounts, strict=True):
        numbers = np.int32(kind), np.float32(reward), np.float32(discount)
        decision = act({}, state, TimeStep(*numbers, np.zeros(3, np.float32)))
        state = decision.state
        assert decision.extras["own"] == np.float32(reward)
        counted.append(decision.extras[DISCOUNTED_SUM])
    return counted, state


@settings(deadline=None)  # the first example compiles
@given(rewards=st.lists(st.floats(-100, 100, width=32), min_size=1, max_size=30), data=st.data())
def test_actors_sum_the_rewards_of_their_episode(rewards, data):
    is_first = np.array([True, *(data.draw(st.booleans()) for _ in rewards[1:])])
    is_last = np.array([*is_first[1:], data.draw(st.booleans())]) & ~is_first
    discounts = np.array([data.draw(st.sampled_from([0.0, 1.0])) for _ in rewards])
    rewards = np.where(is_first, 0.0, rewards)
    kinds = np.where(is_first, StepType.FIRST, np.where(is_last, StepType.LAST, StepType.MID))
    expected = oracles.sums_for_scale(rewards, is_first, is_last & (discounts > 0), DISCOUNT)
    for act in ACTING:
        sums, state = act_through(act, kinds, rewards, np.where(is_last, discounts, 1.0))
        assert state.actor == 7
        np.testing.assert_allclose(sums, expected, rtol=1e-5, atol=1e-3)


@pytest.mark.parametrize("limit", [1, 3, 6, 7, 30])  # 1 / (2 (1 - 0.9^H)) is above 1 up to H = 6
def test_values_through_a_time_limit_fit_into_the_support(limit):
    """A reward of -1 at each step, values bootstrapped at the limit as of endless episodes."""
    kinds = [StepType.FIRST, *(limit - 1) * [StepType.MID], StepType.LAST]
    counted, _ = act_through(ACTING[0], kinds, [0, *limit * [-1]], (limit + 1) * [1])
    largest = np.abs(counted).max()
    assert -1 / (1 - DISCOUNT) / largest >= -2.0 - 1e-5
    own = np.abs(oracles.discounted_sums(-np.ones(limit + 1), np.arange(limit + 1) == 0, DISCOUNT))
    if limit > 6:  # scales of before
        np.testing.assert_allclose(largest, own.max(), rtol=1e-5)


def test_rewards_are_divided_by_the_largest_sum_so_far():
    state = AGENT.init(jax.random.key(0))
    rewards = np.array([[0.0, 8.0, -2.0, 4.0]])
    drawn = [
        (sample_of(rewards, np.zeros((1, 4))), 1.0),
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
        assert state == Scaled(scale if count else 0, count + 1)
        assert AGENT.acting_params(state) == {"count": count + 1}


def test_the_scale_never_shrinks_by_gradients_from_elsewhere():
    state = Scaled(jnp.float32(8), jnp.int32(0))
    assert AGENT.apply(state, Scaled(jnp.float32(5), jnp.zeros(1))).largest == 8
    assert AGENT.apply(state, Scaled(jnp.float32(9), jnp.zeros(1))).largest == 9


def test_off_nothing_is_added():
    agent = recording(DISCRETE, RecordingConfig(scale_rewards=False))
    assert set(agent.sequence.extras) == {"own"}
    assert agent.init(jax.random.key(0)) == 0


@pytest.mark.parametrize("name", ["acer", "d4pg", "reactor"])
def test_what_is_learned_does_not_depend_on_the_unit_of_rewards(name):
    """A power of two is exact, so the learners are equal bit for bit."""
    agent, _ = (tiny_agent if name == "d4pg" else linear_agent)(name, scale_rewards=True)
    one = scaled = agent.init(jax.random.key(0))
    for seed in range(2):
        sample = random_sample(agent, SPECS[KINDS[name][0]], seed)
        one, _ = update(agent)(one, sample)
        extras = sample.rows.extras | {DISCOUNTED_SUM: 1024 * sample.rows.extras[DISCOUNTED_SUM]}
        rows = sample.rows._replace(reward=1024 * sample.rows.reward, extras=extras)
        scaled, _ = update(agent)(scaled, sample._replace(rows=rows))
    assert scaled.largest == 1024 * one.largest > 0
    chex.assert_trees_all_equal(scaled.learner, one.learner)


# Advice on the support of return distributions


@pytest.mark.parametrize(
    ("below", "above", "named"),
    [
        (0.01, 0.714, "71% .* above vmax = 0.5 and"),
        (0.061, 0.0, "6% .* below vmin = -300 and"),
        (0.049, 0.049, None),
        (float("nan"), 0.0, None),
    ],
)
def test_mass_outside_of_an_end_is_reported(below, above, named):
    metrics = {"clipped_below_vmin": below, "clipped_above_vmax": above}
    advice = advise_on_support(d4pg.Config(vmin=-300.0, vmax=0.5), metrics)
    assert re.match(named, advice) if named else advice is None
    assert [m.AGENT.advice for m in (reactor, d4pg, acer)] == [advise_on_support] * 2 + [None]


@pytest.mark.parametrize("scaled", [False, True])
def test_the_advice_is_not_what_is_set_already(scaled):
    config = d4pg.Config(scale_rewards=scaled, vmin=-2.0, vmax=2.0)
    advice = advise_on_support(config, {"clipped_below_vmin": 0.18})
    assert "widen vmin and vmax" in advice
    assert ("scale_rewards" in advice) != scaled
    # Returns at the ends are not outside.
    assert advise_on_support(config, {"mass_at_vmin": 0.5, "mass_at_vmax": 0.5}) is None
