"""Tiny finished runs for all tests that only look at them, and the command in this process."""

import shutil
from pathlib import Path

import pytest

from retrax.command.main import main

SCHEDULE = ["--steps", "240", "--snapshot-every", "80", "--log-every", "40", "--num-envs", "4"]
SCHEDULE += ["--evaluate-every", "0"]


@pytest.fixture(scope="session")
def here():
    """The folder that `noisy_agent` is imported from by processes of their own."""
    return Path(__file__).parents[1]


@pytest.fixture(scope="session")
def tiny():
    """Arguments of `retrax` that train a cheap agent on catch within a second."""
    return ["train", "noisy_agent:NOISY", "--environment", "catch", *SCHEDULE]


@pytest.fixture(scope="session")
def finished(tiny, tmp_path_factory):
    """A finished run; tests must not change it."""
    directory = tmp_path_factory.mktemp("finished") / "run"
    assert main([*tiny, "--run-directory", str(directory)]) == 0
    return directory


@pytest.fixture
def run(finished, tmp_path):
    """A copy of the finished run."""
    return shutil.copytree(finished, tmp_path / "run")


@pytest.fixture
def retrax(capfd):
    """Runs the command in this process: (status, stdout, stderr)."""

    def call(*arguments):
        capfd.readouterr()
        status = main(list(map(str, arguments)))
        return status, *capfd.readouterr()

    return call


@pytest.fixture
def refused(retrax, contents, tmp_path, monkeypatch):
    """Runs a command in a new directory, which it must refuse and not change: its sentence."""
    monkeypatch.chdir(tmp_path)

    def files():
        return {name: data for name, data in contents(tmp_path).items() if "__pyc" not in name}

    def call(*arguments):
        before = files()
        status, out, err = retrax(*arguments)
        assert (status, out, err.count("\n"), err[:8]) == (2, "", 1, "retrax: "), err
        assert files() == before
        return err

    return call
