"""Epsilon-greedy actions, their probabilities, and epsilon of actors."""

import jax
import numpy as np

from retrax.agents import exploration


def test_epsilon_falls_from_actor_to_actor():
    epsilons = [exploration.epsilon_of_actor(actor, 256, 0.4, 8.0) for actor in range(256)]
    assert (np.diff(epsilons) < 0).all()
    np.testing.assert_allclose([epsilons[0], epsilons[-1]], [0.4, 2.62e-4], rtol=1e-3)
    np.testing.assert_allclose(exploration.epsilon_of_actor(0, 1, 0.4, 8.0), 0.4**5, rtol=1e-6)


def test_mu_depends_on_the_action_and_not_on_the_branch_that_drew_it():
    """Of A = 3 and epsilon 0.6 the greedy action has 1 - 0.6 * 2 / 3 = 0.6 however it was drawn."""
    values = np.array([0.0, 2.0, 1.0], np.float32)
    keys = jax.random.split(jax.random.key(0), 3000)
    draw = jax.jit(jax.vmap(exploration.epsilon_greedy, in_axes=(0, None, None)))
    actions, mu = draw(keys, values, 0.6)
    np.testing.assert_allclose(mu, np.where(actions == 1, 0.6, 0.2), rtol=1e-6)
    counts = np.bincount(actions, minlength=3) / 3000
    np.testing.assert_allclose(counts, [0.2, 0.6, 0.2], atol=0.04)


def test_epsilon_greedy_has_its_limits():
    values = np.array([[0.0, 2.0, 2.0], [3.0, 1.0, 1.0]], np.float32)
    greedy = exploration.epsilon_greedy_probabilities(values, 0.0)
    np.testing.assert_array_equal(greedy, [[0, 1, 0], [1, 0, 0]])
    uniform = exploration.epsilon_greedy_probabilities(values, 1.0)
    np.testing.assert_allclose(uniform, 1 / 3, rtol=1e-6)
