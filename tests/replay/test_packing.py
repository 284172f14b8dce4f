"""Rows as bytes: packed and unpacked they are the same, and nothing is copied."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from dm_env import specs
from hypothesis import given
from hypothesis import strategies as st
from replay_rows import assert_equal

from retrax.datatypes import EnvironmentSpec, Row, SequenceSpec
from retrax.replay.packing import Packing, SequencePacking, TreePacking

DTYPES = st.sampled_from([np.bool_, np.uint8, np.int16, np.int32, np.float32, np.float64])
SHAPES = st.lists(st.integers(1, 3), max_size=2).map(tuple)
STRUCTS = st.builds(jax.ShapeDtypeStruct, SHAPES, DTYPES)
TREES = st.dictionaries(
    st.sampled_from("abc"), st.one_of(STRUCTS, st.lists(STRUCTS, max_size=3)), min_size=1
).filter(jax.tree.leaves)


def values_of(spec, *axes):
    """Arrays with random bytes: NaN, infinities and all."""
    rng = np.random.default_rng(0)

    def values(struct):
        shape = (*axes, *struct.shape)
        if struct.dtype == np.bool_:
            return rng.random(shape) < 0.5
        return np.frombuffer(rng.bytes(int(np.prod(shape)) * struct.dtype.itemsize), struct.dtype)

    return jax.tree.map(lambda s: values(s).reshape(*axes, *s.shape), spec)


@given(spec=TREES, num_rows=st.integers(1, 4))
def test_packed_values_are_unpacked_as_views(spec, num_rows):
    packing, values = Packing(spec), values_of(spec, num_rows)
    packed = packing.pack(values)
    assert (packed.dtype, packed.shape) == (np.uint8, (num_rows, packing.dtype.itemsize))
    unpacked = packing.unpack(packed)
    assert_equal(unpacked, values)
    assert all(np.shares_memory(leaf, packed) for leaf in jax.tree.leaves(unpacked))
    assert all(leaf.flags.aligned for leaf in jax.tree.leaves(unpacked))
    assert_equal(packing.unpack(packed.reshape(1, num_rows, -1)), values_of(spec, 1, num_rows))


def struct(shape, dtype):
    return jax.ShapeDtypeStruct(shape, dtype)


FLAG, NUMBER = struct((), np.bool_), struct((), np.float32)
ROW = Row(
    struct((2,), np.float32), NUMBER, NUMBER, FLAG, FLAG, struct((), np.int32), {"mu": NUMBER}
)


@given(spec=TREES)
def test_a_single_tree_comes_back_as_it_was(spec):
    tree = jax.tree.map(lambda x: x[0], values_of(spec, 1))
    tree["half"] = np.array([1.0, 1 / 3], jnp.bfloat16)
    spec = {**spec, "half": jax.ShapeDtypeStruct((2,), jnp.bfloat16)}
    packing = TreePacking("A tree", spec)
    blob, leaves = packing.pack(tree), jax.tree.leaves(spec)
    least = 8 + sum(leaf.size * leaf.dtype.itemsize for leaf in leaves)
    assert least <= len(blob) == packing.num_bytes < least + 8 * (len(leaves) + 1)
    assert_equal(packing.unpack(blob), tree)


@pytest.mark.parametrize(
    "other",
    [
        ROW._replace(observation=struct((2,), np.int32)),
        ROW._replace(observation=struct((1, 2), np.float32)),
        ROW._replace(extras={"nu": NUMBER}),
    ],
)
def test_rows_of_the_same_size_have_other_layouts(other):
    assert Packing(other).dtype.itemsize == Packing(ROW).dtype.itemsize
    assert Packing(other).layout != Packing(ROW).layout
    assert Packing(jax.tree.map(lambda x: x, ROW)).layout == Packing(ROW).layout


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"reward": np.zeros(1)}, r"reward as float32 \(1,\), got float64 \(1,\)\."),
        ({"reward": np.zeros(2, "f")}, r"reward as float32 \(1,\), got float32 \(2,\)\."),
        ({"observation": np.zeros((1, 1), "f")}, r"observation as float32 \(1, 2\), got"),
        ({"extras": {"nu": np.zeros(1, "f")}}, "Rows must have the structure .*'mu'.*, got .*'nu'"),
    ],
)
def test_rows_that_are_not_as_specified_are_refused(change, expected):
    packing, rows = Packing(ROW), values_of(ROW, 1)
    packing.pack(rows)
    with pytest.raises(ValueError, match=expected):
        packing.pack(rows._replace(**change))


@pytest.mark.parametrize("crosses", [False, True])
def test_sequences_of_packed_rows(crosses):
    """Two sequences of three rows; the first one ends with its second row."""
    extras = {"mu": NUMBER, "memory": struct((3,), np.float32)}
    row = ROW._replace(extras=extras)
    spec = EnvironmentSpec(specs.Array((2,), np.float32), specs.DiscreteArray(3))
    sequence = SequenceSpec(
        length=3, crosses_episodes=crosses, extras=extras, first_row_extras=("memory",)
    )
    rows = values_of(row, 6)._replace(is_last=np.array([0, 1, 0, 0, 0, 1], bool))
    packing = SequencePacking(spec, sequence)
    packed, first = packing.pack(rows)
    unpacked, mask = packing.unpack([packed.reshape(2, 3, -1), first[::3]])
    expected = jax.tree.map(lambda x: x.reshape(2, 3, *x.shape[1:]), rows)
    expected.extras["memory"] = expected.extras["memory"][:, 0]
    assert_equal(unpacked, expected)
    assert mask.tolist() == [[1, 1, crosses], [1, 1, 1]]


def test_the_state_of_a_network_without_memory_is_no_part():
    extras = {"mu": NUMBER, "memory": ()}
    cut = SequenceSpec(length=3, crosses_episodes=True, extras=extras, first_row_extras=("memory",))
    spec = EnvironmentSpec(specs.Array((2,), np.float32), specs.DiscreteArray(3))
    packing, rows = SequencePacking(spec, cut), values_of(ROW._replace(extras=extras), 3)
    (packed,) = packing.pack(rows)
    unpacked, _ = packing.unpack([packed[None]])
    assert_equal(unpacked, jax.tree.map(lambda x: x[None], rows))
