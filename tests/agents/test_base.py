"""Default steps, and options that exclude each other."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from retrax.agents import base
from retrax.datatypes import Row, Sample


def test_default_steps_are_few_for_small_presets():
    steps = base.steps_by_preset({"catch": 20_000}, {"control_suite": 1_000_000})
    assert steps("catch", "small") == steps("catch", "small_continuous") == 20_000
    assert steps("Acrobot-v1", "small") == base.OTHER_STEPS == 200_000
    assert steps("catch", "paper") == base.PAPER_STEPS == 50_000_000
    assert steps("catch", "control_suite") == 1_000_000


def test_a_network_and_a_torso_are_refused():
    with pytest.raises(ValueError, match=r"torso replaces the torso of .* give one of the two"):
        base.check_network_or_torso(object(), object())
    base.check_network_or_torso(None, object())
    base.check_network_or_torso(object(), None)


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
