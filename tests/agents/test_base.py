"""Default steps, and options that exclude each other."""

import pytest

from retrax.agents import base


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
