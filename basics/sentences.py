"""Parts of messages: an error in one line, names spelled like a wrong one, a command to type."""

import difflib
import shlex
from collections.abc import Iterable


def first_line(error: BaseException) -> str:
    """The first line of an error; its type, if it says nothing, or a key alone."""
    lines = [] if isinstance(error, KeyError) else str(error).strip().splitlines()
    return lines[0] if lines else reason(error)


def reason(error: BaseException) -> str:
    """The type and the first line of an error, without a full stop."""
    line = next(iter(str(error).splitlines()), "")
    return f"{type(error).__name__}: {line}".rstrip(": .")


def typed(*words: object) -> str:
    """A command of ours, as a shell takes it."""
    return shlex.join(["retrax", *map(str, words)])


def did_you_mean(name: str, known: Iterable[str], *, most: int = 1) -> str:
    """A hint after an unknown name, of any case: " (did you mean A?)"; "" if none is similar."""
    lowered = {each.lower(): each for each in known}
    close = difflib.get_close_matches(name.lower(), lowered, most, 0.4)  # ids of Pong have more
    *others, last = [lowered[each] for each in close] or [""]
    return f" (did you mean {', '.join(others)}{' or ' if others else ''}{last}?)" if last else ""
