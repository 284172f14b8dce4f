"""Which engines can run here: installed packages and versions."""

import importlib.metadata
import importlib.util

OLDEST_RAY = (2, 48)
_WITH_TOKENS = (2, 52)  # the oldest Ray that answers only those who know a token
_LAUNCHPAD = ("launchpad", "reverb", "acme", "courier")


def missing_packages() -> list[str]:
    """Packages that the engine launchpad needs and that are not installed."""
    return [name for name in _LAUNCHPAD if importlib.util.find_spec(name) is None]


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
