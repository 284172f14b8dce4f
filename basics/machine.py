"""This machine's memory and devices, asked before they are taken; programs that processes share."""

import json
import os
import subprocess
import sys
from pathlib import Path

import psutil

GB = 1e9
SECONDS = 120.0
_DEVICES = """
import json, jax
print(json.dumps([f"{x.platform}:{x.id} {x.device_kind}" for x in jax.local_devices()]))
"""


def check_memory(
    what: str, needed: float, rows: int = 0, *, available: float | None = None
) -> None:
    """Raises ValueError, which names both numbers, if more bytes are needed than available.

    `what` begins the sentence. Rows are those that the bytes are for, if fewer of them are an
    advice. The available bytes are this machine's if None.
    """
    if available is None:
        available = psutil.virtual_memory().available
    if needed > available:
        fitting = f": at most {int(rows * available / needed)} rows fit" if rows else ""
        raise ValueError(
            f"{what} needs {needed / GB:.1f} GB, but only {available / GB:.1f} GB of memory are "
            f"available{fitting}."
        )


def devices() -> list[str]:
    """The devices that JAX has in a process of its own, whose crash or hang does no harm.

    A RuntimeError says why it does not start, or does not answer within `SECONDS`.
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
    """Variables of processes that share compiled programs, in a directory or the user's own."""
    own = str((directory / "compilation_cache").absolute())
    return {
        "JAX_COMPILATION_CACHE_DIR": os.environ.get("JAX_COMPILATION_CACHE_DIR", own),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }
