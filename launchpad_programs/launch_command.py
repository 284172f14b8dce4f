"""`retrax launch`: what must happen before anything heavy is imported."""

import itertools
from collections.abc import Sequence

from .engines import installed, isolation

_ANYWAY = {"-h", "--help", "--listen-everywhere"}


def launch_command(arguments: Sequence[str]) -> int:
    """Launches a program and waits for its end.

    Returns:
      0 if the run was finished or stopped by a person, 1 if a node failed.

    Raises:
      ModuleNotFoundError: the engine is not installed.
      ValueError: one sentence about what is wrong with the arguments.
    """
    given = [argument.replace("_", "-") for argument in arguments]
    options = dict(itertools.pairwise(given)) | dict(
        argument.split("=", 1) for argument in given if "=" in argument
    )
    in_one_process = options.get("--launch") in ("sync", "local-mt")
    has_token = (options.get("--engine") or installed.default_engine()) == "ray" and (
        installed.has_tokens()
    )
    refused = "it was not asked for"
    if not in_one_process and not has_token and not _ANYWAY & set(given):
        # Before NumPy, which every other module imports, has started its threads.
        refused = isolation.isolate()
    from .launch import launch_with_arguments

    return launch_with_arguments(arguments, refused=refused)
