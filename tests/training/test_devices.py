"""Learners on several devices; the devices are virtual ones, in a process of their own."""

import json
import os
from pathlib import Path

import jax
import pytest
from fresh_python import run_python

from retrax.training.learner import Updates

SCRIPT = Path(__file__).with_name("on_devices.py")
COUNT = 4


@pytest.fixture(scope="module")
def found():
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={COUNT}"
    paths = [str(SCRIPT.parents[1]), os.environ.get("PYTHONPATH", "")]
    variables = {"XLA_FLAGS": flags, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    return json.loads(run_python(SCRIPT, env={**os.environ, **variables}).splitlines()[-1])


def test_several_devices_learn_what_one_learns(found):
    """The optimiser's operations are not split; with small networks they count."""
    differences = found["learner"]
    assert differences["held"] == [COUNT]
    assert differences["operations"] < 1.6 / COUNT
    assert differences["learned"] > 1e-3
    assert differences["state"] < 1e-6
    assert differences["priorities"] < 1e-5
    assert differences["metrics"] < 1e-5


def test_a_run_uses_them_and_continues_on_another_number(found):
    counts, updates, more = found["run"]
    assert counts == [COUNT, 1]
    assert more > updates > 0


def test_seeds_of_a_run_on_devices_are_spread_over_them(found):
    seeds = found["seeds"]
    assert seeds["equal"]
    assert seeds["devices"] == 2
    assert seeds["difference"] == 0.0 < seeds["learned"]


def test_devices_that_there_are_not():
    count = jax.local_device_count() + 1
    with pytest.raises(ValueError, match=f"learner_devices is {count}, but JAX has {count - 1} he"):
        Updates(None, count)
