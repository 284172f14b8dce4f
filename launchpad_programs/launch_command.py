"""`retrax launch`: what must happen before anything heavy is imported."""

from collections.abc import Sequence

from ..command.parsing import HELP, parse_known
from .engines import isolation
from .engines.options import EngineOptions


def launch_command(arguments: Sequence[str]) -> int:
    """Launches a program and waits for its end; 1 if a node failed, 0 otherwise."""
    engine, _ = parse_known(EngineOptions, arguments, prog="retrax launch")
    refused = "it was not asked for"
    if engine.needs_namespace and not HELP & {*arguments}:
        # Before NumPy, which every other module imports, has started its threads.
        refused = isolation.isolate()
    from .launch import launch_with_arguments

    return launch_with_arguments(arguments, refused=refused)
