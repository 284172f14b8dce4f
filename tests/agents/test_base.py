"""Updates in one call: computed in a loop, or unrolled."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from retrax.agents import base
from retrax.datatypes import Row, Sample


@pytest.mark.parametrize(("shape", "loops"), [((8, 8, 1), 0), ((3,), 1)])
def test_only_updates_without_images_are_computed_in_a_loop(shape, loops):
    """On a CPU, a convolution within a loop takes many times as long as outside of it."""
    observation = np.ones((6, 4, *shape), np.float32)
    row = Row(observation, *[np.ones((6, 4), np.float32)] * (len(Row._fields) - 1))
    agent = base.Agent(
        init=None,
        acting_params=None,
        begin=None,
        explore=None,
        exploit=None,
        gradients=lambda state, sample: (
            jnp.mean(sample.rows.observation),
            base.Update(sample.weights * state, {}),
        ),
        apply=lambda state, gradients: state + gradients,
        sequence=None,
    )
    updates = base.updates_in_one_call(agent)
    sample = Sample(row, np.ones(6, np.float32), np.ones((6, 4), bool))
    program = jax.jit(updates, static_argnums=2).lower(jnp.float32(0), sample, 3).as_text()
    assert program.count("stablehlo.while") == loops
    state, outputs = updates(jnp.float32(0), sample, 3)
    assert state == 3
    assert outputs.priorities.tolist() == [0, 0, 1, 1, 2, 2]
