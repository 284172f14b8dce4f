"""State of the whole process that an environment changes: the working directory, JAX's flags."""

import json
import os

import jax
import pytest

import retrax
from retrax.training.run_config import read_config

WANDERER = """
import os
import pathlib
from retrax.environments.pure import PureVector
from retrax.environments.pure_tasks import PureCatch

class Wanderer(PureVector):
    def __init__(self, *, num_envs, seed):
        super().__init__(PureCatch(), num_envs=num_envs, seed=seed)
        os.chdir(pathlib.Path(__file__).parent / "elsewhere")
"""
DOUBLE = """
import jax
from retrax.environments.pure import PureVector
from retrax.environments.pure_tasks import PureCatch

jax.config.update("jax_enable_x64", True)

class Double(PureVector):
    def __init__(self, *, num_envs, seed):
        super().__init__(PureCatch(), num_envs=num_envs, seed=seed)
"""
NOISY = ["train", "noisy_agent:NOISY", "--num-envs", "2"]


@pytest.fixture
def here(own_modules):
    """The current directory, with the modules and a directory that one of them changes to."""
    (own_modules / "elsewhere").mkdir()
    (own_modules / "wanderers.py").write_text(WANDERER)
    (own_modules / "doubles.py").write_text(DOUBLE)
    return own_modules


def test_an_environment_that_changes_the_working_directory(here, retrax, monkeypatch):
    def call(*arguments):
        monkeypatch.chdir(here)
        status, out, err = retrax(*arguments)
        assert status == 0, err
        assert os.listdir(here / "elsewhere") == []
        return out

    names = [*NOISY, "--environment", "wanderers:Wanderer"]
    assert str(here / "run") in call(*names, "--steps", 60, "--run-directory", "run")
    run = here / "run"
    assert json.loads((run / "config.json").read_text())["search_path"] == str(here)
    assert not (run / "lock").exists()
    call("train", "--resume", "run", "--steps", 80)
    assert (run / "snapshots" / "80.npz").is_file()
    assert not (run / "lock").exists()
    call("evaluate", "run", "--episodes", 2)
    call("export", "run", "--output", "exported", "--platforms", "cpu")
    assert (here / "exported" / "agent.json").is_file()
    call(*names, "--steps", 20)
    (new,) = (here / "runs").iterdir()
    assert read_config(new).steps == 20


def test_the_flag_for_64_bits_is_named(here, retrax, finished):
    sentence = "JAX's flag jax_enable_x64 is on, but agents compute in 32 bits: unset JAX_ENABLE_X"
    try:
        status, _, err = retrax(*NOISY, "--environment", "doubles:Double", "--steps", 20)
        assert (status, jax.config.jax_enable_x64) == (2, True)
        assert err.startswith(f"retrax: {sentence}")
        status, _, err = retrax("evaluate", finished, "--episodes", 1)
        assert status == 2
        assert err.startswith(f"retrax: {sentence}")
    finally:
        jax.config.update("jax_enable_x64", False)
    assert not (here / "runs").exists()


def test_from_python_paths_are_those_before_the_environment(here):
    config = retrax.RunConfig(
        agent="noisy_agent:NOISY", environment="wanderers:Wanderer", num_envs=2, steps=20
    )
    assert retrax.train(config, "run", plain=True).directory == here / "run"
    assert os.listdir(here / "elsewhere") == []
    os.chdir(here)
    assert retrax.load_agent("run").steps == 20
