"""N-step transitions of sampled sequences against a NumPy loop."""

import jax
import numpy as np
import oracles
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from linear_agents import as_sample, episode_rows

from retrax.agents.n_step import n_step_transitions

transitions = jax.jit(n_step_transitions, static_argnums=1)


def random_sample(seed, batch=5, length=4):
    """Sequences of one episode each; some end by termination, some by truncation, some not."""
    rng = np.random.default_rng(seed)
    ends = rng.integers(1, length + 2, size=batch)  # beyond the length: no end
    rows, mask = episode_rows(rng, length, ends, rng.random(batch) < 0.5)
    actions = rng.integers(3, size=mask.shape).astype(np.int32)
    return as_sample(rows | {"action": actions}, mask=mask)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**31), gamma=st.sampled_from([0.0, 0.8, 1.0]))
def test_transitions_are_the_numpy_loop(seed, gamma):
    sample = random_sample(seed)
    found = transitions(sample, gamma)
    for b in range(5):
        return_, discount, last = oracles.n_step_transition(
            sample.rows.reward[b], sample.rows.discount[b], sample.mask[b], gamma
        )
        np.testing.assert_allclose(found.return_[b], return_, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(found.discount[b], discount, rtol=1e-6)
        np.testing.assert_array_equal(found.observation_t[b], sample.rows.observation[b, last])
    np.testing.assert_array_equal(found.observation_tm1, sample.rows.observation[:, 0])
    np.testing.assert_array_equal(found.action_tm1, sample.rows.action[:, 0])


@pytest.mark.parametrize("field", ["reward", "discount", "observation", "action"])
def test_padding_and_later_actions_do_not_matter(field):
    sample = random_sample(1)
    before = transitions(sample, 0.9)
    values = np.array(getattr(sample.rows, field))
    values[~sample.mask] = 7
    if field == "action":
        values[:, 1:] = 2
    after = transitions(sample._replace(rows=sample.rows._replace(**{field: values})), 0.9)
    assert (~sample.mask).any()
    for x, y in zip(before, after, strict=True):
        np.testing.assert_array_equal(x, y)


def test_one_step_by_hand():
    """One transition: r + gamma * discount, from the second observation."""
    sample = random_sample(0, batch=3, length=2)
    found = transitions(sample, 0.9)
    np.testing.assert_array_equal(found.return_, sample.rows.reward[:, 1])
    np.testing.assert_allclose(found.discount, 0.9 * sample.rows.discount[:, 1], rtol=1e-6)
    np.testing.assert_array_equal(found.observation_t, sample.rows.observation[:, 1])
