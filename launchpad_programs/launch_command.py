"""`retrax launch`: what must come first, before anything heavy is imported."""

import importlib.util
import sys
from collections.abc import Sequence

from . import network

_NEEDED = ("launchpad", "reverb", "acme", "courier")
_MISSING = (
    "launching needs Python 3.10 and the distributed tier: pip install 'retrax[distributed]' on "
    "Linux (this is Python {version}; not installed: {missing}). `retrax train` works without it."
)


def launch_command(arguments: Sequence[str]) -> int:
    """Launches a program and waits for its end.

    Returns:
      0 if the run was finished or stopped by a person, 1 if a node failed.

    Raises:
      ModuleNotFoundError: the distributed tier is not installed.
      ValueError: tells in one sentence what is wrong with the arguments.
    """
    _check_tier()
    apart = ""
    if not {"-h", "--help", "--listen-everywhere"} & set(arguments):
        # While there is one thread, and no socket yet: NumPy, which all the rest imports, has more.
        refused = network.isolate()
        apart = (
            f"Others on the network could connect: no private network namespace ({refused})."
            if refused
            else "Nothing outside of this program can connect: it has a network of its own."
        )
    from .launching import launch

    return launch(arguments, network_note=apart or "Listening on all interfaces, as asked for.")


def main(agent: str) -> int:
    """`python -m retrax.launchpad_programs.AGENT`: the exit status, 2 for wrong input."""
    try:
        return launch_command([agent, *sys.argv[1:]])
    except (ValueError, ImportError, OSError) as error:
        print(f"retrax: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("retrax: Interrupted.", file=sys.stderr)
        return 2


def missing() -> list[str]:
    """What is not installed of what launching needs."""
    return [name for name in _NEEDED if importlib.util.find_spec(name) is None]


def _check_tier() -> None:
    if names := missing():
        version = ".".join(map(str, sys.version_info[:2]))
        raise ModuleNotFoundError(_MISSING.format(version=version, missing=", ".join(names)))
