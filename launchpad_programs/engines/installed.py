"""Which engines are installed. Imports nothing: see `isolation`."""

import importlib.metadata
import importlib.util
from typing import Literal

EngineName = Literal["launchpad", "ray"]
_LAUNCHPAD = ("launchpad", "reverb", "acme", "courier")
OLDEST_RAY = (2, 48)
_WITH_TOKENS = (2, 52)  # the oldest Ray that answers only those who know a token


def missing_packages() -> list[str]:
    """Packages that the engine launchpad needs and that are not installed."""
    return [name for name in _LAUNCHPAD if importlib.util.find_spec(name) is None]


def default_engine() -> EngineName:
    """The engine of programs for which none is named."""
    return "ray" if missing_packages() else "launchpad"


def ray_version() -> tuple[int, int]:
    """Ray's version; (0, 0) if it is not installed."""
    try:
        major, minor = importlib.metadata.version("ray").split(".")[:2]
    except importlib.metadata.PackageNotFoundError:
        return 0, 0
    return int(major), int(minor)


def has_tokens() -> bool:
    """Whether the installed Ray answers only those who know a token."""
    return ray_version() >= _WITH_TOKENS
