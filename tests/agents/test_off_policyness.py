"""Metrics of importance ratios, against their definition."""

import jax
import numpy as np
import oracles
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retrax.agents.off_policyness import off_policyness

NAMES = ("mean_ratio", "cut_traces", "effective_sample_share")
found_for = jax.jit(off_policyness)


def values(ratios, acted):
    found = found_for(np.asarray(ratios, np.float32), np.asarray(acted, bool))
    assert set(found) == set(NAMES)
    return [float(found[name]) for name in NAMES]


@settings(max_examples=30, deadline=None)
@given(
    shape=st.sampled_from([(1, 1), (3, 5), (2, 8)]),
    seed=st.integers(0, 2**16),
    share=st.floats(0.0, 1.0),
)
def test_they_are_the_definition(shape, seed, share):
    rng = np.random.default_rng(seed)
    pi_a, mu_a = rng.uniform(0.0, 1.0, shape), rng.uniform(0.05, 1.0, shape)
    acted = rng.random(shape) < share
    ratios = np.where(acted, pi_a / mu_a, np.nan)  # what means nothing may be anything
    wanted = oracles.off_policyness(pi_a, mu_a, acted)
    np.testing.assert_allclose(values(ratios, acted), wanted, rtol=1e-5, atol=1e-6)


def test_by_hand():
    """Ratios 0.5, 2, 0.5: mean 1, two of three cut, (3)^2 / (3 (0.25 + 4 + 0.25)) = 2 / 3."""
    found = values([[0.5, 2.0, 0.5, 9.0]], [[True, True, True, False]])
    np.testing.assert_allclose(found, [1.0, 2 / 3, 2 / 3], rtol=1e-6)


def test_on_policy_data_has_ratio_one_and_counts_fully():
    assert values(np.ones((2, 4)), np.ones((2, 4))) == [1.0, 0.0, 1.0]


def test_one_large_ratio_counts_as_one_step():
    for large in (1e30, np.inf):
        found = values([[large, 1e-3, 1e-3, 1e-3]], np.ones((1, 4)))
        assert found[1:] == pytest.approx([0.75, 0.25])


@pytest.mark.parametrize("acted", [True, False])
def test_nothing_is_nan(acted):
    assert values(np.zeros((2, 2)), np.full((2, 2), acted)) == [0.0, float(acted), 0.0]


def test_no_gradient_flows_through_them():
    def total(ratios):
        return sum(off_policyness(ratios, np.ones(3, bool)).values())

    np.testing.assert_array_equal(jax.grad(total)(np.array([0.5, 1.5, 2.0])), np.zeros(3))
