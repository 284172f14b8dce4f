"""Smaller pictures: against means of areas in float64, and against ale-py itself."""

import numpy as np
import oracles
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from retrax.environments.area_resize import area_resize


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_pixels_are_means_of_areas(data):
    picture = data.draw(hnp.arrays(np.uint8, st.tuples(*[st.integers(1, 24)] * 2)))
    height, width = (data.draw(st.integers(1, size)) for size in picture.shape)
    down = oracles.area_weights(picture.shape[0], height)
    across = oracles.area_weights(picture.shape[1], width).T
    exact = down @ picture @ across
    found = area_resize(picture, height, width)
    assert found.dtype == np.uint8
    assert found.shape == (height, width)
    # Half a grey level of rounding, and the sums are float32.
    np.testing.assert_allclose(found.astype(float), exact, atol=0.5 + 1e-3)


def test_by_hand():
    """Three columns to two: (2 a + b) / 3 and (b + 2 c) / 3."""
    found = area_resize(np.array([[30, 60, 90], [30, 60, 90]], np.uint8), 1, 2)
    np.testing.assert_array_equal(found, [[40, 80]])


@pytest.mark.parametrize("size", [(1, 1), (5, 3), (84, 84)])
def test_the_same_size_changes_nothing(size):
    picture = np.random.default_rng(0).integers(256, size=size, dtype=np.uint8)
    np.testing.assert_array_equal(area_resize(picture, *size), picture)
