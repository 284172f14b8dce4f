import numpy as np
import pytest

from retrax.replay import importance_weights, make_selector
from retrax.replay.priorities import check_priorities


def test_importance_weights_make_the_mean_unbiased():
    values = np.random.default_rng(0).normal(size=8)
    selector = make_selector("contextual", 8, uniform_fraction=0.1)
    selector.insert(np.arange(8))
    selector.set_priorities(np.array([1, 2, 5]), np.array([0.0, 4.0, 1.0]))
    slots, drawn = selector.sample(np.random.default_rng(1), 1000)
    slots, index = np.unique(slots, return_index=True)
    assert slots.size == 8, "every slot was drawn"
    probabilities = drawn[index]
    weights = importance_weights(probabilities, 8, 1.0)
    np.testing.assert_allclose((probabilities * weights * values).sum(), values.mean(), rtol=1e-12)


def test_importance_weights_by_hand():
    probabilities = np.array([0.5, 0.25, 0.125])
    np.testing.assert_array_equal(importance_weights(probabilities, 4, 1.0), [0.5, 1.0, 2.0])
    np.testing.assert_allclose(importance_weights(probabilities, 4, 0.5), np.sqrt([0.5, 1, 2]))
    np.testing.assert_array_equal(importance_weights(probabilities, 4, 0.0), np.ones(3))


@pytest.mark.parametrize(
    ("probabilities", "size", "exponent", "message"),
    [
        ([0.5, 0.0], 4, 1.0, "probabilities must be above 0 and finite, got 0.0"),
        ([np.nan], 4, 1.0, "probabilities must be above 0 and finite, got nan"),
        ([0.5], 0, 1.0, "size must be at least 1 slot, got 0"),
        ([0.5], 4, -1.0, "exponent must be finite and at least 0, got -1.0"),
    ],
)
def test_importance_weights_refuse(probabilities, size, exponent, message):
    with pytest.raises(ValueError, match=message):
        importance_weights(np.array(probabilities), size, exponent)


@pytest.mark.parametrize(
    ("priorities", "message"),
    [
        ([1.0, np.nan], "got nan"),
        ([np.inf, 1.0], "got inf"),
        ([-1.0, 1.0], "at least 0 .* got -1.0"),
        ([1.0, 1e101], r"at most 1e\+100, got 1e\+101"),
        ([1.0], r"shape \(2,\), got \(1,\)"),
    ],
)
def test_wrong_priorities_are_refused(priorities, message):
    with pytest.raises(ValueError, match=message):
        check_priorities(np.array(priorities), 2)


def test_priorities_become_float64():
    checked = check_priorities(np.array([0, 3], np.float32), 2)
    assert checked.dtype == np.float64
    assert checked.tolist() == [0.0, 3.0]
