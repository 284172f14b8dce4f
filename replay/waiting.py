"""How waits end. Imports nothing of the distributed tier."""


class Stopped(Exception):  # noqa: N818 - not an error: a stop was requested
    """A wait ended because the program stops."""


class WaitTimeout(RuntimeError):  # noqa: N818 - a RuntimeError whose name says what it is
    """A wait took too long; the message describes the state of what was waited for."""


class PeerLost(RuntimeError):  # noqa: N818 - a RuntimeError too
    """The node that was called died before it answered; it may come back."""


def never() -> bool:
    """A stop callable of a program that is never stopped."""
    return False
