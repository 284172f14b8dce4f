"""`python -m retrax.launchpad_programs AGENT`: so Python starts programs."""

import subprocess
import sys


def test_the_module_is_the_command():
    """Wrong input is one sentence, and exit status 2."""
    command = [sys.executable, "-m", "retrax.launchpad_programs", "reactor", "--launch", "local_mt"]
    refused = subprocess.run([*command, "--stepz", "3"], capture_output=True, text=True)
    assert refused.returncode == 2
    (line,) = refused.stderr.splitlines()
    assert line == "retrax: Unknown option --stepz (did you mean --steps?)."
