"""Files of a program while it runs, for its other processes and for a person.

The counter writes status.json, and continues from it when it is restarted. restarts.json, from node
to its restarts, is written by the launcher for the counter.
"""

import contextlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..basics.writing import replacing

STATUS = "status.json"
RESTARTS = "restarts.json"


def write_json(path: Path, values: Mapping[str, Any]) -> None:
    """Replaces a file, whole or not at all."""
    with replacing(path) as partial:
        partial.write_text(json.dumps(values))


def read_json(path: Path) -> dict[str, Any]:
    """What was written last; empty before."""
    with contextlib.suppress(FileNotFoundError):
        values: dict[str, Any] = json.loads(path.read_text())
        return values
    return {}
