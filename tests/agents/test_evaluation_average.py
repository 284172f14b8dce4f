"""Evaluation with averaged parameters: the average, and who acts with it; 0 changes nothing."""

import functools

import chex
import jax
import numpy as np
import optax
import pytest
from linear_agents import (
    SPECS,
    D,
    agent57_config,
    agent57_networks,
    double,
    jitted,
    linear_agent,
    random_sample,
    timestep,
)

from retrax.agents import base
from retrax.agents.agent57 import make_agent
from retrax.agents.evaluation_average import AveragedLearnerState

SPEC, DECAY = SPECS["discrete"], 0.75


@functools.cache
def make(name, is_averaging):
    if name == "acer":
        return linear_agent("acer", average_decay=DECAY, exploit_average=is_averaging)[0]
    config = agent57_config(values="extrinsic", evaluation_average_decay=DECAY * is_averaging)
    parts = {"networks": agent57_networks(False), "optimizer": optax.sgd(1.0)}
    return jitted(make_agent(SPEC, config, **parts))


def newest(name, params):
    """The part of acting parameters of which there is an average."""
    return params.newest if name == "acer" else params.newest.values


@pytest.mark.parametrize("name", ["acer", "agent57"])
def test_the_average_is_of_the_updates_alone(name):
    """Weights decay^age, divided by their sum; the first parameters have none."""
    agent = make(name, True)
    state, after = agent.init(jax.random.key(0)), []
    params = agent.acting_params(state)
    chex.assert_trees_all_equal(params.average, newest(name, params))
    sample = random_sample(agent, SPEC, 0)
    shapes, _ = jax.eval_shape(agent.gradients, state, sample)
    for scale in (1.0, -2.0, 0.5):
        gradients = jax.tree.map(lambda x, size=scale: np.full(x.shape, size, x.dtype), shapes)
        state = agent.apply(state, gradients)
        after.append(double(newest(name, agent.acting_params(state))))
    weights = DECAY ** np.arange(len(after))[::-1]
    average = jax.tree.map(lambda *x: np.average(x, axis=0, weights=weights), *after)
    chex.assert_trees_all_close(agent.acting_params(state).average, average, atol=1e-5)


@pytest.mark.parametrize("name", ["acer", "agent57"])
def test_learning_is_that_of_the_agent_without_an_average(name):
    agent, plain = make(name, True), make(name, False)
    state, other = (each.init(jax.random.key(0)) for each in (agent, plain))
    assert isinstance(state, AveragedLearnerState)
    sample = random_sample(agent, SPEC, 0)
    new, update = base.update(agent)(state, sample)
    wanted, same = base.update(plain)(other, sample)
    chex.assert_trees_all_equal((new.learner, update), (wanted, same))


@pytest.mark.parametrize("name", ["acer", "agent57"])
def test_evaluators_act_with_the_average_and_actors_do_not(name):
    agent, plain = make(name, True), make(name, False)
    ours, others = (agent.acting_params(agent.init(jax.random.key(seed))) for seed in (4, 5))
    params = ours._replace(average=newest(name, others))
    now, averaged = ours[0], params.average
    if name == "agent57":
        averaged = now._replace(values=averaged)
    state = agent.begin(jax.random.key(2), 0, 1)
    observations = np.random.default_rng(0).normal(size=(5, D)).astype(np.float32)
    steps = [timestep(0, observation) for observation in observations]
    evaluated = [agent.exploit(params, state, step) for step in steps]
    chex.assert_trees_all_equal(evaluated, [plain.exploit(averaged, state, s) for s in steps])
    with pytest.raises(AssertionError):
        chex.assert_trees_all_equal(evaluated, [plain.exploit(now, state, s) for s in steps])
    explored = [agent.explore(params, state, step) for step in steps]
    chex.assert_trees_all_equal(explored, [plain.explore(now, state, s) for s in steps])
