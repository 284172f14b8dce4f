"""One tiny finished run for all tests that only look at it, and the command in this process."""

import shutil

import pytest

from retrax.experiments.commands.main import main

# The smallest agent that still has all its parts.
TINY = {
    "agent.replay.min-rows": "40",
    "agent.replay.batch-size": "2",
    "agent.replay.capacity": "400",
    "agent.memory-size": "4",
    "agent.shared-size": "4",
    "agent.head-size": "4",
    "agent.num-atoms": "5",
    "agent.discount": "0.9",  # with 0.99 its policy misses every ball, whatever the seed
    "agent.sequence-length": "4",
    "agent.vector-sizes": "4",
}
STEPS = 240


@pytest.fixture(scope="session")
def tiny():
    """Arguments of `retrax` that train on catch within seconds."""
    fields = [word for name, value in TINY.items() for word in (f"--{name}", value)]
    run = ["--steps", str(STEPS), "--num-envs", "4", "--snapshot-every", "80", "--log-every", "40"]
    return ["train", "reactor", "--environment", "catch", *run, *fields]


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
