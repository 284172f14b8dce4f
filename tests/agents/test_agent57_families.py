"""beta_j and gamma_j: their values, and the errata of the printed formulas."""

import numpy as np
import oracles
import pytest

from retrax.agents.agent57 import families


def test_paper_families_are_the_formulas():
    beta, gamma = oracles.agent57_family(32).T
    np.testing.assert_allclose(families.intrinsic_weights(32, 0.3), beta, rtol=1e-6)
    ours = families.agent57_discounts(32, 0.9999, 0.997, 0.99)
    np.testing.assert_allclose(1 - ours, 1 - gamma, rtol=1e-3)


def test_paper_families_have_the_known_values():
    beta = families.intrinsic_weights(32, 0.3)
    known = {0: 0, 8: 0.0028, 12: 0.0358, 15: 0.15, 18: 0.2642, 24: 0.2993, 31: 0.3}
    for j, value in known.items():
        assert abs(beta[j] - value) < 5e-5
    gamma = families.agent57_discounts(32, 0.9999, 0.997, 0.99)
    start = [0.9999, 0.999896, 0.9998, 0.99845, 0.9971, 0.997004, 0.997, 0.997, 0.997, 0.996839]
    np.testing.assert_allclose(gamma[:10], start, atol=1e-6)
    np.testing.assert_allclose(gamma[-3:], [0.990994, 0.99051, 0.99], atol=1e-6)


@pytest.mark.parametrize("num_arms", [2, 3, 4, 5, 8, 16, 32, 64])
def test_families_of_any_size_are_monotone(num_arms):
    beta = families.intrinsic_weights(num_arms, 0.3)
    gamma = families.agent57_discounts(num_arms, 0.999, 0.99, 0.9)
    ngu = families.ngu_discounts(num_arms, 0.997, 0.99)
    assert beta.shape == gamma.shape == ngu.shape == (num_arms,)
    assert (np.diff(beta) >= 0).all()
    assert (np.diff(gamma) <= 0).all()
    assert (np.diff(ngu) < 0).all()
    np.testing.assert_allclose([beta[0], beta[-1]], [0, 0.3])
    np.testing.assert_allclose(gamma[0], 0.999)
    np.testing.assert_allclose([ngu[0], ngu[-1]], [0.997, 0.99])
    if num_arms > 2:
        np.testing.assert_allclose(gamma[-1], 0.9, rtol=1e-6)
