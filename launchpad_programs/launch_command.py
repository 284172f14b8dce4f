"""`retrax launch`: what must happen before anything heavy is imported."""

import importlib.util
import itertools
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
    given = [argument.replace("_", "-") for argument in arguments]
    in_one_thread = "--launch=sync" in given or ("--launch", "sync") in itertools.pairwise(given)
    if not in_one_thread:
        _check_tier()
    refused = "it was not asked for"
    if not in_one_thread and not {"-h", "--help", "--listen-everywhere"} & set(given):
        # Before NumPy, which every other module imports, has started its threads.
        refused = isolation.isolate()
    from .launch import launch_with_arguments

    return launch_with_arguments(arguments, refused=refused)


def missing_packages() -> list[str]:
    """Packages of the distributed tier that are not installed."""
    return [name for name in _NEEDED if importlib.util.find_spec(name) is None]


def _check_tier() -> None:
    if missing := missing_packages():
        version = ".".join(map(str, sys.version_info[:2]))
        raise ModuleNotFoundError(
            "Launching needs Linux, Python 3.10 and the distributed tier: pip install -r "
            "requirements.txt in a clone, elsewhere pip install 'retrax[distributed]' "
            f"(this is Python {version}; not installed: {', '.join(missing)}). "
            "`retrax train` and `--launch sync` work without it."
        )
