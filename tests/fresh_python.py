"""Python in processes of their own."""

import subprocess
import sys


def run_python(*words, **options):
    """What it prints; an error in it is an error of the test."""
    command = [sys.executable, *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def start_retrax(*words, **options):
    """The command in a process of its own, with pipes for what it prints."""
    program = "import sys; from retrax.command.main import main; sys.exit(main())"
    command = [sys.executable, "-c", program, *map(str, words)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, **pipes, **options)
