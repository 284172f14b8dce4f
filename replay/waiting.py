"""How waits end: the part that needs no Reverb, which nodes without one import."""


class Stopped(Exception):  # noqa: N818 - not an error: somebody asked for it
    """A wait ended because the program is to end."""


class ReplayTimeout(RuntimeError):  # noqa: N818 - a RuntimeError that says in its name what it is
    """A wait took longer than it may; the message tells the state of what was waited for."""


def never() -> bool:
    """A stop callable of a program that runs for ever."""
    return False
