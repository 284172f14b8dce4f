"""Errors of other people's environments, in one sentence. `sys.exit()` in one is an error too."""

import contextlib
from collections.abc import Iterator

from .._imports import reason


class RefusedError(ValueError):
    """An environment is refused: its error or what it returned, where, and why, in one sentence."""


@contextlib.contextmanager
def one_sentence(what: str) -> Iterator[None]:
    """Turns whatever somebody's code raises into one sentence.

    Args:
      what: is done, as the beginning of a sentence: "my_envs:Maze cannot be made".

    Raises:
      ImportError: a module is not installed.
      RefusedError: anything else went wrong.
    """
    try:
        yield
    except (Exception, SystemExit) as error:
        raise failure(what, error) from error


def failure(what: str, error: BaseException) -> Exception:
    """The error to be raised in place of one that somebody's code raised; see `one_sentence`."""
    if isinstance(error, RefusedError):
        return error
    if isinstance(error, ModuleNotFoundError) and error.name:
        package = error.name.partition(".")[0]
        return ImportError(
            f"{what}: it needs the module {error.name}, which is not installed: "
            f"pip install {package}"
        )
    if isinstance(error, ImportError):
        return error
    if isinstance(error, SystemExit):
        return RefusedError(f"{what}: it called sys.exit({error.code!r}).")
    return RefusedError(f"{what}: {reason(error)}.")
