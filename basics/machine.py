"""This machine's memory and devices, asked before they are taken; programs that processes share."""

import json
import os
import platform
import subprocess
import sys
from pathlib import Path

import psutil

GB = 1e9
SECONDS = 120.0
CACHE = "JAX_COMPILATION_CACHE_DIR"
_DEVICES = """
import json, jax
print(json.dumps([f"{x.platform}:{x.id} {x.device_kind}" for x in jax.local_devices()]))
"""


def check_memory(what: str, need: float, count: int = 0, *, available: float | None = None) -> None:
    """A ValueError that begins with `what` if fewer bytes are available (None: here) than needed.

    With the `count` of what needs these bytes, the message says how many fit.
    """
    available = psutil.virtual_memory().available if available is None else available
    if need > available:
        fitting = f": at most {int(count * available / need)} fit" if count else ""
        raise ValueError(
            f"{what} needs {need / GB:.1f} GB, but only {available / GB:.1f} GB of memory are "
            f"available{fitting}."
        )


def devices() -> list[str]:
    """The devices that JAX finds in a separate process, whose crash or hang does no harm.

    An OSError says why it does not start, or does not answer within `SECONDS`.
    """
    try:
        command = [sys.executable, "-c", _DEVICES]
        env = {**os.environ, "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
        answer = subprocess.check_output(
            command, env=env, stderr=subprocess.PIPE, text=True, timeout=SECONDS
        )
        return list(json.loads(answer.splitlines()[-1]))
    except subprocess.CalledProcessError as error:
        lines = error.stderr.strip().splitlines() or [f"exit status {error.returncode}"]
        raise OSError(f"JAX does not start: {lines[-1]}") from error
    except (OSError, ValueError, IndexError, subprocess.TimeoutExpired) as error:
        raise OSError(f"JAX does not answer: {error}") from error


def shared_programs() -> dict[str, str]:
    """JAX's environment variables with which processes share compiled programs: a user's, or ours.

    Ours name a folder for this machine in the user's cache, which keeps the newest gigabyte.
    """
    given = {name: x for name, x in os.environ.items() if name[:4] == "JAX_" and "_CACHE" in name}
    cache = Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"))
    if CACHE in given or not cache.is_absolute():  # where there is no home directory
        return given
    return {
        CACHE: str(cache / "retrax" / platform.node()),
        "JAX_COMPILATION_CACHE_MAX_SIZE": "1000000000",
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.1",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        **given,
    }
