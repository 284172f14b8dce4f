"""D4PG: which setting reaches which part, and the values of the presets."""

import dataclasses

import jax
import numpy as np
import optax
import pytest
from dm_env import specs

from retrax.agents.d4pg import Config, make_agent
from retrax.datatypes import EnvironmentSpec, SequenceSpec

SPEC = EnvironmentSpec(
    specs.Array((9, 9, 1), np.uint8), specs.BoundedArray((2,), np.float32, -1.0, 1.0)
)
TINY = {"policy_sizes": (3,), "critic_sizes": (3, 3), "num_atoms": 3, "pixel_features": 2}


def adam(gradients, learning_rate, b1=0.9, b2=0.999, epsilon=1e-8):
    """The sum of Adam's steps on a list of gradients."""
    total = first = second = 0.0
    for number, gradient in enumerate(gradients, 1):
        first = b1 * first + (1 - b1) * gradient
        second = b2 * second + (1 - b2) * gradient**2
        direction = first / (1 - b1**number)
        total -= learning_rate * direction / (np.sqrt(second / (1 - b2**number)) + epsilon)
    return total


@pytest.mark.parametrize("rates", [(0.01, 0.3), (0.2, 0.05)])
def test_policy_and_critic_have_their_own_learning_rates(rates):
    """The torso is the critic's."""
    config = Config.small(
        **TINY, scale_rewards=False, policy_learning_rate=rates[0], critic_learning_rate=rates[1]
    )
    agent = make_agent(SPEC, config)
    learner = start = jax.jit(agent.init)(jax.random.key(0))
    scales, apply = (0.5, -0.1), jax.jit(agent.apply)
    for scale in scales:
        gradients = optax.tree.full_like(start.params, scale)
        learner = apply(learner, gradients)
    for name, rate in (("policy", rates[0]), ("critic", rates[1]), ("torso", rates[1])):
        before, after = (getattr(state.params, name) for state in (start, learner))
        assert jax.tree.leaves(before)
        change = jax.tree.map(lambda x, y: np.asarray(y) - np.asarray(x), before, after)
        for leaf in jax.tree.leaves(change):
            np.testing.assert_allclose(leaf, adam(scales, rate), rtol=1e-3)


@pytest.mark.parametrize("n_step", [1, 4])
def test_every_row_begins_a_window_of_n_transitions_in_one_episode(n_step):
    agent = make_agent(SPEC, Config.small(**TINY, scale_rewards=False, n_step=n_step))
    assert agent.sequence == SequenceSpec(length=n_step + 1, period=1, crosses_episodes=False)


PAPER = {
    "critic": "categorical",
    "num_atoms": 51,
    "vmin": -150.0,
    "vmax": 150.0,
    "mixture_components": 5,
    "mixture_samples": 16,
    "mixture_min_scale": 0.01,
    "return_unit": 1.0,
    "scale_rewards": False,
    "n_step": 5,
    "discount": 0.99,
    "exploration": "fixed",
    "sigma": 0.3,
    "noise_correlation": 0.0,
    "sigma_min": 1 / 32,
    "sigma_max": 1.0,
    "policy_learning_rate": 1e-4,
    "critic_learning_rate": 1e-4,
    "max_action_gradient_norm": None,
    "preactivation_cost": 0.0,
    "target_update_period": 100,
    "policy_sizes": (300, 200),
    "critic_sizes": (400, 300),
    "layer_norm": False,
    "action_input": "second_layer",
    "frame_stack": 1,
    "convolutions": ((32, 3, 2), (32, 3, 1)),
    "pixel_features": 50,
}
REPLAY = {
    "selector": "proportional",
    "capacity": 10**6,
    "batch_size": 256,
    "acting_steps_per_update": 8.0,
    "updates_per_call": 1,
    "priority_exponent": 0.6,
    "importance_exponent": 1.0,
}


def test_paper_has_these_values():
    values = dataclasses.asdict(Config.paper())
    replay = values.pop("replay")
    assert values == PAPER
    assert {name: replay[name] for name in REPLAY} == REPLAY
