"""Actors' states outlive their processes."""

from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from retrax.run_directory.actor_states import ActorStates, pack_actor


class State(NamedTuple):
    key: jax.Array
    bandit: dict[str, jax.Array]
    nothing: tuple[()] = ()


def make_state(seed, size=3):
    keys = jax.random.split(jax.random.key(seed), 2)
    return State(keys, {"count": jnp.full((2, size), seed), "mean": jnp.ones((2,), jnp.bfloat16)})


def data(state):
    return state._replace(key=jax.random.key_data(state.key))


def test_a_state_comes_back_bit_for_bit(tmp_path):
    ActorStates(tmp_path, 1).write(pack_actor(make_state(5)))
    ActorStates(tmp_path, 1).write(pack_actor(make_state(7)))  # the newest counts
    found = ActorStates(tmp_path, 1).restore(make_state(0))
    chex.assert_trees_all_equal(data(found), data(make_state(7)))
    chex.assert_trees_all_equal_dtypes(data(found), data(make_state(7)))
    draws = [jax.random.normal(state.key[1]) for state in (found, make_state(7))]
    assert draws[0] == draws[1]
    assert [path.name for path in (tmp_path / "actors").iterdir()] == ["1.npz"]
    assert ActorStates(tmp_path, 1).read() == pack_actor(make_state(7))


def test_without_a_file_the_actor_begins_anew(tmp_path):
    ActorStates(tmp_path, 1).write(pack_actor(make_state(5)))
    template = make_state(0)
    assert ActorStates(tmp_path, 2).restore(template) is template
    assert ActorStates(tmp_path, 2).read() is None


@pytest.mark.parametrize("damage", ["shorter", "other agent"])
def test_what_cannot_be_read_is_named(tmp_path, damage):
    ActorStates(tmp_path, 0).write(pack_actor(make_state(5)))
    path = tmp_path / "actors" / "0.npz"
    if damage == "shorter":
        path.write_bytes(path.read_bytes()[:50])
    template = make_state(5, size=3 if damage == "shorter" else 4)
    with pytest.raises(ValueError, match=f"{path} cannot be read .*: remove the file") as caught:
        ActorStates(tmp_path, 0).restore(template)
    assert np.size(caught.value.args) == 1
