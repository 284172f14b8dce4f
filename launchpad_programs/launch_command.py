"""`retrax launch`: what must happen before anything heavy is imported."""

import importlib.util
import sys
from collections.abc import Sequence

from . import isolation

_NEEDED = ("launchpad", "reverb", "acme", "courier")


def launch_command(arguments: Sequence[str]) -> int:
    """Launches a program and waits for its end.

    Returns:
      0 if the run was finished or stopped by a person, 1 if a node failed.

    Raises:
      ModuleNotFoundError: the distributed tier is not installed.
      ValueError: one sentence about what is wrong with the arguments.
    """
    in_one_thread = "sync" in arguments or "--launch=sync" in arguments
    if not in_one_thread:
        _check_tier()
    note = ""
    if not in_one_thread and not {"-h", "--help", "--listen-everywhere"} & set(arguments):
        # Before NumPy, which every other module imports, has started its threads.
        refused = isolation.isolate()
        note = (
            f"Others on the network could connect: no private network namespace ({refused})."
            if refused
            else "Only this program can connect to it: it has a network namespace of its own."
        )
    from .launch import launch_with_arguments

    return launch_with_arguments(arguments, network_note=note or "Listening on all interfaces.")


def missing_packages() -> list[str]:
    """Packages of the distributed tier that are not installed."""
    return [name for name in _NEEDED if importlib.util.find_spec(name) is None]


def _check_tier() -> None:
    if missing := missing_packages():
        version = ".".join(map(str, sys.version_info[:2]))
        raise ModuleNotFoundError(
            "Launching needs Linux, Python 3.10 and the distributed tier: pip install -r "
            f"requirements.txt (this is Python {version}; not installed: {', '.join(missing)}). "
            "`retrax train` and `--launch sync` work without it."
        )
