"""Packed gradients, and the part of a learner state that workers need."""

import average_agent
import chex
import hypothesis
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from retrax.agents.base import Agent, Update
from retrax.datatypes import Sample, SequenceSpec
from retrax.runtime.workers.packing import GradientPacking, StatePacking, update_shapes

SHAPES = st.lists(st.lists(st.integers(1, 3), max_size=3).map(tuple), min_size=1, max_size=4)
DTYPES = st.sampled_from([np.float32, jnp.bfloat16, np.float16, np.int32])


def agent_with(gradients):
    """An agent whose gradients are fixed."""
    empty = jnp.zeros(())
    return Agent(
        init=lambda key: empty,
        acting_params=lambda state: state,
        begin=None,
        explore=None,
        exploit=None,
        gradients=lambda state, sample: (gradients, Update(empty, {})),
        apply=None,
        sequence=SequenceSpec(length=2),
    )


@pytest.fixture(scope="module")
def average():
    """The agent, and the shapes of its updates."""
    return average_agent.agent_and_shapes()


@hypothesis.settings(max_examples=25, deadline=None)
@hypothesis.given(SHAPES, st.data())
def test_gradients_come_back_as_they_were(shapes, data):
    rng = np.random.default_rng(0)
    gradients = {
        str(i): rng.normal(size=shape).astype(data.draw(DTYPES)) for i, shape in enumerate(shapes)
    }
    packing = GradientPacking(agent_with(gradients), None)
    blob = packing.pack(packing.compress(gradients))
    least = 8 + sum(leaf.nbytes for leaf in gradients.values())
    assert least <= len(blob) == packing.num_bytes < least + 8 * (len(gradients) + 1)
    back = packing.restore(packing.unpack(blob))
    chex.assert_trees_all_equal(back, gradients)
    chex.assert_trees_all_equal_dtypes(back, gradients)


def test_compressed_gradients_are_rounded_to_bfloat16():
    gradients = {"a": np.array([1.0, 1 / 3], np.float32)}
    packing = GradientPacking(agent_with(gradients), None, compress=True)
    blob = packing.pack(packing.compress(gradients))
    assert len(blob) == packing.num_bytes == 8 + 2 * 2
    back = packing.restore(packing.unpack(blob))["a"]
    assert back.dtype == np.float32
    # 8 bits of mantissa: 1/3 = 0.333984375 there.
    np.testing.assert_array_equal(back, [1.0, 0.333984375])


@pytest.mark.parametrize("other", [{"b": np.zeros(3, np.float32)}, {"a": np.zeros(4, np.float32)}])
def test_gradients_of_another_agent_are_refused(other):
    packing = GradientPacking(agent_with({"a": np.zeros(3, np.float32)}), None)
    blob = GradientPacking(agent_with(other), None).pack(other)
    with pytest.raises(ValueError, match="both sides need the same agent and config"):
        packing.unpack(blob)


def test_samples_of_single_updates():
    call = Sample(*(jax.ShapeDtypeStruct((6, 2), np.float32) for _ in Sample._fields))
    newest = Sample(*(jax.ShapeDtypeStruct((4, 2), np.float32) for _ in Sample._fields))
    replayed, same = update_shapes([call, newest], 3)
    assert {x.shape for x in jax.tree.leaves(replayed)} == {(2, 2)}
    assert same == newest


def test_workers_get_what_gradients_read_and_keep_the_rest(average):
    agent, shapes = average
    packing = StatePacking(agent, shapes)
    server = agent.init(jax.random.key(1))._replace(applied=jnp.int32(7))
    server.means["reward"] = jnp.float32(0.5)
    selected = packing.select(server)
    assert [x.dtype for x in selected] == [np.float32, np.float32, np.uint32]  # not the count
    blob = packing.parameters.pack(selected, 0.0)
    values, _ = packing.parameters.unpack(blob)
    merged = packing.merge(agent.init(jax.random.key(2)), values)
    assert merged.means["reward"] == 0.5
    assert merged.applied == 0
    assert merged.key.dtype == server.key.dtype
    assert jnp.array_equal(jax.random.key_data(merged.key), jax.random.key_data(server.key))
    assert jax.random.uniform(merged.key) == jax.random.uniform(server.key)
