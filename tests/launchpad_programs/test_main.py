"""`python -m retrax.launchpad_programs AGENT` and `.AGENT`, for every registered agent."""

import importlib.util
import subprocess
import sys

import retrax.launchpad_programs
from retrax.agents.entry import agent_names


def run(module, *arguments):
    command = [sys.executable, "-m", module, *arguments]
    return subprocess.run(command, capture_output=True, text=True)


def test_the_module_of_an_agent_is_the_command():
    """`python -m retrax.launchpad_programs AGENT`: so test_program.py starts its programs."""
    shown = run("retrax.launchpad_programs.d4pg", "--launch", "sync", "--help")
    assert shown.returncode == 0, shown.stderr
    assert "retrax launch d4pg" in shown.stdout
    assert "--agent.policy-sizes" in shown.stdout


def test_wrong_input_is_one_sentence_and_exit_status_2():
    refused = run("retrax.launchpad_programs.reactor", "--launch", "sync", "--stepz", "3")
    assert refused.returncode == 2
    (line,) = refused.stderr.splitlines()
    assert line.startswith("retrax: ")


def test_every_registered_agent_is_found_and_nothing_else():
    package = retrax.launchpad_programs.__name__
    assert agent_names() == ["acer", "agent57", "d4pg", "reactor"]
    for name in agent_names():
        spec = importlib.util.find_spec(f"{package}.{name}")
        assert spec is not None
        assert spec.origin.endswith("__main__.py")
    assert importlib.util.find_spec(f"{package}.no_such_agent") is None
    assert not importlib.util.find_spec(f"{package}.leases").origin.endswith("__main__.py")
