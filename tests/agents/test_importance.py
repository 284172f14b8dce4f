"""Importance weights with an annealed exponent."""

import jax
import numpy as np
import pytest

from retrax.agents.importance import anneal_weights, linear_importance_exponent

PROBABILITIES = np.array([0.5, 0.25, 0.125, 0.125])
WEIGHTS = (1.0 / (4 * PROBABILITIES)).astype(np.float32)  # 0.5, 1, 2, 2


@pytest.mark.parametrize("exponent", [0.0, 0.4, 1.0])
@pytest.mark.parametrize("normalize", [False, True])
def test_weights_are_the_definition(exponent, normalize):
    expected = (1.0 / (4 * PROBABILITIES)) ** exponent
    expected = expected / expected.max() if normalize else expected
    found = jax.jit(anneal_weights, static_argnames="normalize")(
        WEIGHTS, exponent, normalize=normalize
    )
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_exponent_one_changes_nothing():
    np.testing.assert_array_equal(anneal_weights(WEIGHTS, 1.0), WEIGHTS)


def test_normalised_weights_scale_updates_down_only():
    weights = anneal_weights(WEIGHTS, 0.7, normalize=True)
    assert weights.max() == 1.0
    np.testing.assert_allclose(weights[:2] / weights[2], [0.25**0.7, 0.5**0.7], rtol=1e-6)


def test_exponent_rises_linearly_to_one_and_stays():
    schedule = linear_importance_exponent(0.4, 100)
    found = [schedule(number) for number in (0, 50, 100, 1000)]
    np.testing.assert_allclose(found, [0.4, 0.7, 1.0, 1.0], rtol=1e-6)
