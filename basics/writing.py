"""Files written whole or not at all, and errors of writing in one sentence with the path."""

import contextlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Names a file in the OSErrors of the code inside: "PATH cannot be written: REASON."."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise OSError(f"{path} cannot be written: {reason}.") from error


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Replaces a file in one go: a process that is killed leaves the old one, or the new one.

    Yields PATH.partial, where the code inside writes. It takes the name when the code ends without
    an error, and is removed otherwise: a full disk needs the room. Errors: see `writing`.
    """
    partial = path.with_name(f"{path.name}.partial")
    with writing(path):
        try:
            yield partial
            partial.replace(path)
        except BaseException:
            with contextlib.suppress(OSError):
                partial.unlink()
            raise


def write_json(path: Path, values: Mapping[str, Any]) -> None:
    """Replaces a file by JSON values; see `replacing`."""
    with replacing(path) as partial:
        partial.write_text(json.dumps(values, indent=2) + "\n", encoding="utf-8")
