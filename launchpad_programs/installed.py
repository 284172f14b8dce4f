"""Whether the distributed tier is installed."""

import importlib.util
import sys

_NEEDED = ("launchpad", "reverb", "acme", "courier")


def missing() -> list[str]:
    """Modules of the distributed tier that are not installed; nothing is imported."""
    return [name for name in _NEEDED if importlib.util.find_spec(name) is None]


def check_installed() -> None:
    """Checks that programs can be launched.

    Raises:
      ModuleNotFoundError: the distributed tier is not installed; the message says how to install
        it. (The extra `retrax[distributed]` has no pins: pip would search for minutes.)
    """
    if names := missing():
        version = ".".join(map(str, sys.version_info[:2]))
        raise ModuleNotFoundError(
            "launching needs Linux, Python 3.10 and the distributed tier: "
            f"pip install -r requirements.txt (this is Python {version}; not installed: "
            f"{', '.join(names)}). `retrax train` works without it."
        )
