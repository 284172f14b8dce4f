"""`python -m retrax.launchpad_programs AGENT`: so Python starts programs."""

import subprocess
import sys


def run(*arguments):
    command = [sys.executable, "-m", "retrax.launchpad_programs", *arguments]
    return subprocess.run(command, capture_output=True, text=True)


def test_the_module_is_the_command():
    shown = run("d4pg", "--help")
    assert shown.returncode == 0, shown.stderr
    assert "retrax launch d4pg" in shown.stdout
    assert "--agent.policy-sizes" in shown.stdout


def test_wrong_input_is_one_sentence_and_exit_status_2():
    refused = run("reactor", "--launch", "local_mt", "--stepz", "3")
    assert refused.returncode == 2
    (line,) = refused.stderr.splitlines()
    assert line == "retrax: Unknown option --stepz (did you mean --steps?)."
