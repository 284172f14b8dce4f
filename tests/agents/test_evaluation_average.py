"""Evaluation with averaged parameters: the average, and who acts with it; 0 changes nothing."""

import functools

import chex
import jax
import numpy as np
import optax
import pytest
from dm_env import specs
from linear_agents import TINY, jitted

from retrax.agents import agent57, base
from retrax.agents.evaluation_average import AveragedLearnerState, AveragedParams
from retrax.datatypes import EnvironmentSpec, ReplayConfig, TimeStep
from retrax.replay import SequenceStore

SPEC = EnvironmentSpec(specs.Array((3,), np.float32), specs.DiscreteArray(4))
DECAY = 0.75
REPLAY = ReplayConfig(capacity=100, batch_size=2, min_rows=1)


@functools.cache
def make(decay, values="split"):
    changes = {
        "values": values,
        "evaluation_average_decay": decay,
        "replay": REPLAY,
        "recurrent": False,
    }
    config = agent57.Config.small(**(TINY["agent57"] | changes))
    return jitted(agent57.make_agent(SPEC, config, optimizer=optax.sgd(1.0))), config


def random_sample(agent, config, seed):
    shapes = SequenceStore(SPEC, agent.sequence, config.replay, num_envs=1, seed=0).shapes
    rng = np.random.default_rng(seed)

    def values(x):
        if x.dtype == np.float32:
            return rng.uniform(0.1, 1.0, x.shape).astype(x.dtype)
        return np.zeros(x.shape, x.dtype)

    sample = jax.tree.map(values, shapes[0])
    return sample._replace(mask=np.ones(sample.mask.shape, bool))


@pytest.mark.parametrize("values", ["split", "extrinsic"])
def test_the_average_is_of_the_updates_alone(values):
    """Weights decay^age, divided by their sum; the first parameters have none."""
    agent, config = make(DECAY, values)
    update, state = base.update(agent), agent.init(jax.random.key(0))
    chex.assert_trees_all_equal(state.average, state.learner.params)
    after = []
    for seed in range(3):
        before = state
        state, _ = update(state, random_sample(agent, config, seed))
        after.append(jax.tree.map(np.float64, state.learner.params))
    weights = DECAY ** np.arange(len(after))[::-1]
    average = jax.tree.map(lambda *x: np.average(x, axis=0, weights=weights), *after)
    chex.assert_trees_all_close(state.average, average, atol=1e-5)
    with pytest.raises(AssertionError):
        chex.assert_trees_all_close(before.average, state.average, atol=1e-5)
    params = agent.acting_params(state)
    chex.assert_trees_all_equal(params.average, state.average)
    chex.assert_trees_all_equal(params.newest.values, state.learner.params)


def test_learning_is_that_of_the_agent_without_an_average():
    (agent, config), (plain, _) = make(DECAY), make(0.0)
    state, other = (each.init(jax.random.key(0)) for each in (agent, plain))
    assert isinstance(state, AveragedLearnerState)
    sample = random_sample(agent, config, 0)
    new, update = base.update(agent)(state, sample)
    wanted, same = base.update(plain)(other, sample)
    chex.assert_trees_all_equal((new.learner, update), (wanted, same))


def test_evaluators_act_with_the_average_and_actors_do_not():
    (agent, _), (plain, _) = make(DECAY), make(0.0)
    newest, other = (plain.acting_params(plain.init(jax.random.key(seed))) for seed in (0, 1))
    params = AveragedParams(newest, other.values)
    state = agent.begin(jax.random.key(2), 0, 1)
    step = TimeStep(np.int32(0), np.float32(0), np.float32(1), np.ones(3, np.float32))
    evaluated = agent.exploit(params, state, step)
    averaged = newest._replace(values=other.values)
    chex.assert_trees_all_equal(evaluated, plain.exploit(averaged, state, step))
    with pytest.raises(AssertionError):
        chex.assert_trees_all_equal(evaluated, plain.exploit(newest, state, step))
    explored = agent.explore(params, state, step)
    chex.assert_trees_all_equal(explored, plain.explore(newest, state, step))
