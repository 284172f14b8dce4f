"""status.json: the state of a program while it runs, for its launcher and for a person."""

import contextlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

STATUS = "status.json"


def write_status(directory: Path, status: Mapping[str, Any]) -> None:
    """Replaces status.json, whole or not at all."""
    partial = directory / f"{STATUS}.partial"
    partial.write_text(json.dumps(status))
    partial.replace(directory / STATUS)


def read_status(directory: Path) -> dict[str, Any]:
    """The newest status; empty before the first."""
    with contextlib.suppress(FileNotFoundError):
        status: dict[str, Any] = json.loads((directory / STATUS).read_text())
        return status
    return {}
