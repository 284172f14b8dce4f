"""Normalised observations: the agent of observations that NumPy normalises by all drawn rows."""

import chex
import jax
import numpy as np
import pytest
from dm_env import specs
from linear_agents import SPECS, random_sample, timestep, tiny_agent

from retrax.agents import d4pg
from retrax.agents.normalization import Normalized

SPEC = SPECS["continuous"]


@pytest.mark.parametrize("mean", [0.0, 500.0])
def test_it_is_the_agent_of_observations_that_are_normalised_by_hand(mean):
    (agent, _), (plain, _) = (tiny_agent("d4pg", normalize_observations=x) for x in (True, False))
    state, actor = agent.init(jax.random.key(0)), agent.begin(jax.random.key(1), 0, 1)
    center, deviation, drawn = np.zeros(4), np.ones(4), np.zeros((0, 4))
    for seed in range(4):
        for unit, seen in ((0.5, center + 0.5 * deviation), (10.0, center + 1e6)):
            steps = [timestep(1)._replace(observation=np.float32(x)) for x in (seen, 4 * [unit])]
            for name in ("explore", "exploit"):
                found = getattr(agent, name)(agent.acting_params(state), actor, steps[0])
                wanted = getattr(plain, name)(plain.acting_params(state.own), actor, steps[1])
                np.testing.assert_allclose(found.action, wanted.action, atol=0.01)
        sample = random_sample(agent, SPEC, seed, batch=6, ends=[9, 3, 2, 1, 9, 3])
        seen = np.float32(mean + [1.0, 20.0, 0.5, 3.0] * sample.rows.observation)
        drawn = np.concatenate([drawn, seen[sample.mask]])
        center, deviation = drawn.mean(0), drawn.std(0)
        unit = np.float32((seen - center) / deviation)
        samples = [sample._replace(rows=sample.rows._replace(observation=x)) for x in (seen, unit)]
        gradients, update = agent.gradients(state, samples[0])
        wanted = plain.gradients(state.own, samples[1])
        chex.assert_trees_all_close((gradients.own, update), wanted, rtol=1e-2, atol=1e-4)
        own, state = plain.apply(state.own, gradients.own), agent.apply(state, gradients)
        chex.assert_trees_all_equal(state.own, own)
        assert state.moments.number == len(drawn)


def test_off_and_for_images_nothing_is_added():
    images = SPEC._replace(observations=specs.Array((9, 9, 1), np.uint8))
    for spec, is_on in ((SPEC, False), (images, True)):
        agent = d4pg.make_agent(spec, d4pg.Config.small(normalize_observations=is_on))
        assert not isinstance(jax.eval_shape(agent.init, jax.random.key(0)), Normalized)
