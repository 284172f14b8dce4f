"""Epsilon-greedy actions, their probabilities, and epsilon of actors and of steps."""

import jax
import numpy as np
import optax
import pytest

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


@pytest.mark.parametrize("num_actors", [1, 4])
def test_epsilon_of_a_step_counts_the_steps_of_all_actors(num_actors):
    """From 1 to 0.2 over 80 time steps of all environments: 20 steps of each of 4 actors."""
    schedule = optax.linear_schedule(1.0, 0.2, 80)

    @jax.jit
    def epsilon(steps):
        return exploration.epsilon_of_step(schedule, steps, num_actors)

    steps = np.array([0, 5, 10, 20, 100], np.int32)
    expected = np.maximum(1.0 - 0.8 * steps * num_actors / 80, 0.2)
    found = [epsilon(step) for step in steps]
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    assert found[0].dtype == np.float32
