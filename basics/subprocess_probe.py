"""Subprocesses: probes, whose crash, hang or high memory use does no harm; shared programs."""

import json
import os
import subprocess
import sys
from pathlib import Path

SECONDS = 120.0
_DEVICES = """
import json, jax
print(json.dumps([f"{x.platform}:{x.id} {x.device_kind}" for x in jax.local_devices()]))
"""


def devices() -> list[str]:
    """The devices that JAX has in a process of its own on this machine.

    Raises:
      RuntimeError: it does not start or does not answer within `SECONDS`; gives the reason.
    """
    try:
        answer = subprocess.run(
            [sys.executable, "-c", _DEVICES],
            env={**os.environ, "XLA_PYTHON_CLIENT_PREALLOCATE": "false"},
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=True,
        )
        return list(json.loads(answer.stdout.splitlines()[-1]))
    except subprocess.CalledProcessError as error:
        lines = error.stderr.strip().splitlines() or [f"exit status {error.returncode}"]
        raise RuntimeError(f"does not start: {lines[-1]}") from error
    except (OSError, ValueError, IndexError, subprocess.TimeoutExpired) as error:
        raise RuntimeError(f"does not answer: {error}") from error


def shared_programs(directory: Path) -> dict[str, str]:
    """Environment variables of processes that share compiled programs.

    They are kept below a directory, or where the user keeps them already.
    """
    own = str((directory / "compilation_cache").absolute())
    return {
        "JAX_COMPILATION_CACHE_DIR": os.environ.get("JAX_COMPILATION_CACHE_DIR", own),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }
