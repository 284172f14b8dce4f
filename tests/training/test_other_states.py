"""Actors' states outlive their processes, and the best parameters their evaluator."""

from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp
import pytest

from retrax.basics.checksums import sealed
from retrax.training.snapshots import (
    BestParameters,
    actor_file,
    actor_files,
    pack_actor,
    read_actor,
    unpack_actor,
)


class State(NamedTuple):
    key: jax.Array
    bandit: dict[str, jax.Array]
    nothing: tuple[()] = ()


def make_state(seed, size=3):
    keys = jax.random.split(jax.random.key(seed), 2)
    return State(keys, {"count": jnp.full((2, size), seed), "mean": jnp.ones((2,), jnp.bfloat16)})


def write_actor(directory, seed, index=1):
    with sealed(actor_file(directory, index)) as file:
        file.write(pack_actor(make_state(seed)))


def test_an_actors_state_comes_back_bit_for_bit(tmp_path):
    for seed in (5, 7):  # the newest counts
        write_actor(tmp_path, seed)
    template, saved = make_state(0), make_state(7)
    of_file = read_actor(actor_file(tmp_path, 1), template)
    for found in (of_file, unpack_actor(pack_actor(saved), template)):
        data = [x._replace(key=jax.random.key_data(x.key)) for x in (found, saved)]
        chex.assert_trees_all_equal(*data)
        chex.assert_trees_all_equal_dtypes(*data)
        assert jax.random.normal(found.key[1]) == jax.random.normal(saved.key[1])
    with pytest.raises(ValueError, match=r"^The actor's state is of another agent or config \("):
        unpack_actor(pack_actor(saved), make_state(0, size=4))


def test_files_are_in_the_order_of_the_actors(tmp_path):
    for index in (10, 2, 1):
        write_actor(tmp_path, 5, index)
    assert actor_files(tmp_path) == [tmp_path / "actors" / f"{x}.npz" for x in (1, 2, 10)]


@pytest.mark.parametrize("size", [3, 4])
def test_an_actors_file_that_cannot_be_read_is_named(tmp_path, size):
    """Damaged, or of another agent."""
    write_actor(tmp_path, 5, 0)
    path = actor_file(tmp_path, 0)
    if size == 3:
        path.write_bytes(path.read_bytes()[:50])
    with pytest.raises(ValueError, match=f"{path} cannot be read .*: remove the file"):
        read_actor(path, make_state(5, size))


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
    found = BestParameters(tmp_path).read(params=shapes())
    assert (found.mean_return, found.steps) == (0.5, 5)
    chex.assert_trees_all_equal(found.params, jax.device_get(make_params(5)))
    chex.assert_trees_all_equal_dtypes(found.params, make_params(5))
    assert [path.name for path in tmp_path.iterdir()] == ["best.npz"]


def test_a_run_that_begins_again_forgets_the_best(tmp_path):
    best = BestParameters(tmp_path)
    best.forget()
    best.offer(make_params(1), mean_return=9.0, steps=1)
    best.forget()
    assert not best.exists
    assert best.offer(make_params(2), mean_return=1.0, steps=2)


@pytest.mark.parametrize("size", [3, 4])
def test_a_best_file_that_does_not_fit_is_named(tmp_path, size):
    """Damaged, or of another agent."""
    best = BestParameters(tmp_path)
    best.offer(make_params(1), mean_return=9.0, steps=1)
    if size == 3:
        (tmp_path / "best.npz").write_bytes(b"PK")
    with pytest.raises(
        ValueError, match=r"The best parameters .*best\.npz cannot be read \(.*\): re"
    ):
        best.read(params=shapes(size))


def test_an_evaluation_of_any_size_is_compared_exactly(tmp_path):
    best = BestParameters(tmp_path)
    assert best.offer(make_params(1), mean_return=1e9 + 0.5, steps=1)
    assert not best.offer(make_params(2), mean_return=1e9, steps=2)  # equal in float32
    assert best.mean_return == 1e9 + 0.5
