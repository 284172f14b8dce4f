"""Questions to a process of its own: one that crashes, hangs or takes all memory does no harm."""

import json
import os
import subprocess
import sys
from typing import Any

SECONDS = 120.0


def ask(program: str) -> Any:
    """What a program prints as JSON in its last line.

    Args:
      program: Python; it has `SECONDS` to answer.

    Raises:
      RuntimeError: it does not start or does not answer, and why.
    """
    environment = {**os.environ, "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    try:
        answer = subprocess.run(
            [sys.executable, "-c", program],
            env=environment,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=True,
        )
        return json.loads(answer.stdout.splitlines()[-1])
    except subprocess.CalledProcessError as error:
        lines = error.stderr.strip().splitlines() or [f"exit status {error.returncode}"]
        raise RuntimeError(f"does not start: {lines[-1]}") from error
    except (OSError, ValueError, IndexError, subprocess.TimeoutExpired) as error:
        raise RuntimeError(f"does not answer: {error}") from error
