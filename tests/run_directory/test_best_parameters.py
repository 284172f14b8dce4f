"""The best parameters of a program outlive its evaluator."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from retrax.run_directory.best_parameters import BestParameters


def make_params(seed, size=3):
    return {"w": jnp.full((2, size), seed, jnp.float32), "b": jnp.full((2,), seed, jnp.bfloat16)}


def shapes(size=3):
    return jax.eval_shape(lambda: make_params(0, size))


def test_the_largest_return_is_kept_and_of_equal_ones_the_newer(tmp_path):
    assert not BestParameters(tmp_path).exists
    returns = [float("nan"), -2.0, -3.0, 0.5, 0.25, 0.5, float("nan"), 0.4]
    kept = [
        BestParameters(tmp_path).offer(make_params(steps), mean_return=value, steps=steps)
        for steps, value in enumerate(returns)
    ]
    assert kept == [False, True, False, True, False, True, False, False]
    found = BestParameters(tmp_path).restore(shapes())
    assert (found.mean_return, found.steps) == (0.5, 5)
    chex.assert_trees_all_equal(found.params, jax.device_get(make_params(5)))
    chex.assert_trees_all_equal_dtypes(found.params, make_params(5))
    assert [path.name for path in tmp_path.iterdir()] == ["best.npz"]


def test_a_run_that_begins_anew_forgets_them(tmp_path):
    best = BestParameters(tmp_path)
    best.forget()
    best.offer(make_params(1), mean_return=9.0, steps=1)
    best.forget()
    assert not best.exists
    assert best.offer(make_params(2), mean_return=1.0, steps=2)


@pytest.mark.parametrize("how", ["damaged", "another agent"])
def test_a_file_that_does_not_fit_is_told(tmp_path, how):
    best = BestParameters(tmp_path)
    best.offer(make_params(1), mean_return=9.0, steps=1)
    if how == "damaged":
        (tmp_path / "best.npz").write_bytes(b"PK")
    with pytest.raises(
        ValueError, match=r"The best parameters .*best\.npz cannot be read \(.*\): re"
    ):
        best.restore(shapes(size=4))


def test_an_evaluation_of_any_size_is_compared_exactly(tmp_path):
    best = BestParameters(tmp_path)
    assert best.offer(make_params(1), mean_return=1e9 + 0.5, steps=1)
    assert not best.offer(make_params(2), mean_return=1e9, steps=2)  # equal in float32
    assert best.restore(shapes()).mean_return == np.float64(1e9 + 0.5)
