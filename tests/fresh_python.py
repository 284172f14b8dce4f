"""Python in processes of their own."""

import subprocess
import sys


def run_python(*words, **options):
    """What it prints; an error in it is an error of the test."""
    command = [sys.executable, *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
