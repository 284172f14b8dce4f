"""Imports by name: modules found from a directory, and objects that distributions register."""

import importlib
import sys
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

from .sentences import reason


def import_from(module: str, search_path: Path | None = None) -> ModuleType:
    """Imports a module, with one directory importable; a ValueError says why it cannot be."""
    if not all(part.isidentifier() for part in module.split(".")):
        raise ValueError(
            f"{module!r} is not the name of a module: it must be names with dots between them, as "
            "in package.module:NAME."
        )
    directory = make_importable(search_path)
    importlib.invalidate_caches()  # the module may have been written a moment ago
    try:
        return importlib.import_module(module)
    except (Exception, SystemExit) as error:
        raise ValueError(
            f"module {module!r} cannot be imported from {directory} or the Python path: "
            f"{reason(error)}."
        ) from error


def make_importable(search_path: Path | None = None) -> str:
    """Puts a directory, the current one when None, in front of `sys.path` unless it is in it."""
    directory = str((search_path or Path.cwd()).resolve())
    if directory not in sys.path:
        sys.path.insert(0, directory)
    return directory


def registered_names(group: str) -> list[str]:
    """The names of a group of entry points, sorted; nothing is imported."""
    return sorted({point.name for point in entry_points(group=group)})


def registered(group: str, name: str) -> EntryPoint | None:
    """The entry point of a name, not imported; None if there is none, ValueError if several."""
    found = [point for point in entry_points(group=group) if point.name == name]
    if len(found) > 1:
        owners = ", ".join(sorted(f"{_distribution(p)} ({p.value})" for p in found))
        raise ValueError(f"{name!r} is registered more than once in the group {group}: {owners}.")
    return found[0] if found else None


def load(point: EntryPoint) -> Any:
    """Imports what an entry point names; a ValueError gives the reason why it cannot be."""
    try:
        return point.load()
    except (Exception, SystemExit) as error:
        raise ValueError(
            f"{point.name!r}, registered by {_distribution(point)} as {point.value}, cannot be "
            f"imported: {reason(error)}."
        ) from error


def _distribution(point: EntryPoint) -> str:
    return "an unnamed distribution" if point.dist is None else point.dist.name
