"""`python -m retrax.launchpad_programs AGENT`: so Python starts programs."""

import subprocess
import sys


def test_the_module_is_the_command():
    """A wrong option is named, with exit status 2."""
    command = [sys.executable, "-m", "retrax.launchpad_programs", "reactor", "--launch", "local_mt"]
    refused = subprocess.run([*command, "--stepz", "3"], capture_output=True, text=True)
    assert refused.returncode == 2
    assert "Unrecognized options" in refused.stderr
    assert "--stepz" in refused.stderr
