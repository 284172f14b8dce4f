"""Imports by name: modules found from a directory, and objects that distributions register."""

import importlib
import sys
from importlib.metadata import entry_points
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


def registered(group: str, name: str) -> Any:
    """Imports the entry point of a name, if there is one; ValueError if several, or it fails."""
    found = [point for point in entry_points(group=group) if point.name == name]
    owners = [point.dist.name if point.dist else "an unnamed distribution" for point in found]
    if len(found) > 1:
        pairs = zip(owners, found, strict=True)
        each = ", ".join(sorted(f"{owner} ({point.value})" for owner, point in pairs))
        raise ValueError(f"{name!r} is registered more than once in the group {group}: {each}.")
    try:
        return found[0].load() if found else None
    except (Exception, SystemExit) as error:
        raise ValueError(
            f"{name!r}, registered by {owners[0]} as {found[0].value}, cannot be imported: "
            f"{reason(error)}."
        ) from error
