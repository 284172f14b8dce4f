"""A program in one thread: the same nodes, stepped in a seeded order, so the same every time."""

from .program import ProgramConfig


def run_synchronously(config: ProgramConfig, *, plain: bool) -> int:
    """Runs the program."""
    raise NotImplementedError
