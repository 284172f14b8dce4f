import jax
import numpy as np
import pytest
from dm_env import StepType, specs

import sticky_actions
from retrax.agents import acer
from retrax.datatypes import TimeStep
from retrax.environments import make
from retrax.testing import check_agent, check_agent_shapes

pytestmark = pytest.mark.once
SPEC, ACTIONS = make("catch").spec, 3


def made(entry):
    return entry.make_agent(SPEC, entry.config_of("small"))


def test_they_keep_the_contract():
    check_agent(made(sticky_actions.ACER), SPEC, entry=sticky_actions.ACER)
    check_agent_shapes(made(sticky_actions.REACTOR), SPEC)


def test_mu_are_the_probabilities_of_the_actions():
    """By hand, from the policy that the agent alone stores; and by counts of 20,000 actors."""
    alone = made(acer.AGENT)
    agent = sticky_actions.repeat_actions(alone, acer.Config.small())
    key = jax.random.key(0)
    params = agent.acting_params(agent.init(key))
    observation = np.ones(SPEC.observations.shape, SPEC.observations.dtype)
    state, keys = agent.begin(jax.random.key(1), np.int32(0), 1), jax.random.split(key, 20_000)

    @jax.jit
    def draw(keys, state, step):
        explore = jax.vmap(lambda key: agent.explore(params, state._replace(key=key), step).action)
        return explore(keys)

    for kind in (StepType.FIRST, StepType.MID, StepType.MID):
        step = TimeStep(np.int32(kind), np.float32(0), np.float32(1), observation)
        mu = np.array(alone.explore(params, state.agent, step).extras["mu"])
        if kind != StepType.FIRST:
            mu *= 1 - sticky_actions.REPEATED
            mu[int(state.action)] += sticky_actions.REPEATED
        decision = agent.explore(params, state, step)
        np.testing.assert_allclose(decision.extras["mu"], mu, rtol=1e-6)
        counts = np.bincount(draw(keys, state, step), minlength=ACTIONS)
        np.testing.assert_allclose(counts / len(keys), mu, atol=4 * 0.5 / np.sqrt(len(keys)))
        assert decision.state.action == decision.action
        state = decision.state


def test_continuous_actions_are_refused():
    entry = sticky_actions.ACER
    spec = SPEC._replace(actions=specs.BoundedArray((1,), np.float32, -1.0, 1.0))
    with pytest.raises(ValueError, match=r"^sticky_actions needs discrete actions\.$"):
        entry.make_agent(spec, entry.config_of("small_continuous"))
