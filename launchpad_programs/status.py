"""status.json: the state of a program while it runs, for its launcher and for a person.

The counter writes it, and continues from it when it is restarted. restarts.json, from node to its
restarts, is written by the launcher for the counter.
"""

import contextlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..basics.writing import replacing

STATUS = "status.json"
RESTARTS = "restarts.json"


def write_status(directory: Path, status: Mapping[str, Any]) -> None:
    """Replaces status.json, whole or not at all."""
    _write(directory / STATUS, status)


def read_status(directory: Path) -> dict[str, Any]:
    """The newest status; empty before the first."""
    return _read(directory / STATUS)


def write_restarts(directory: Path, restarts: Mapping[str, int]) -> None:
    """Replaces restarts.json, whole or not at all."""
    _write(directory / RESTARTS, restarts)


def read_restarts(directory: Path) -> dict[str, int]:
    """From node to how often it was restarted; empty if none was."""
    return _read(directory / RESTARTS)


def forget(directory: Path) -> None:
    """Removes the files of a program that has ended."""
    for name in (STATUS, RESTARTS):
        (directory / name).unlink(missing_ok=True)


def _write(path: Path, values: Mapping[str, Any]) -> None:
    with replacing(path) as partial:
        partial.write_text(json.dumps(values))


def _read(path: Path) -> dict[str, Any]:
    with contextlib.suppress(FileNotFoundError):
        values: dict[str, Any] = json.loads(path.read_text())
        return values
    return {}
