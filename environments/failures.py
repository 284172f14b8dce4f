"""Errors of other people's environments, in one sentence. `sys.exit()` in one is an error too."""

import contextlib
import logging
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np

from ..basics.sentences import reason

_log = logging.getLogger("retrax")
Closable = TypeVar("Closable")
_CLOSE_SECONDS = 10.0
# From packages, and from Gymnasium's names of them, to our extras.
_EXTRAS = {"pygame": "video", "MuJoCo": "mujoco", "dm_control": "mujoco", "mujoco": "mujoco"}
_ALIKE = "brax bsuite craftax envpool gymnax jumanji minatar pgx xminigrid"
_EXTRAS |= {name: name for name in _ALIKE.split()}


class RefusedError(ValueError):
    """An environment is refused: its error or what it returned, where, and why, in one sentence."""


@contextlib.contextmanager
def one_sentence(what: str) -> Iterator[None]:
    """Turns whatever a user's code raises into one sentence that begins with `what`.

    It is an ImportError that names what installs a missing module, or a RefusedError.
    """
    try:
        yield
    except (Exception, SystemExit) as error:
        raise failure(what, error) from error


def failure(what: str, error: BaseException) -> Exception:
    """The error to be raised in place of one that a user's code raised; see `one_sentence`."""
    if isinstance(error, RefusedError):
        return error
    if isinstance(error, ModuleNotFoundError) and error.name:
        package = error.name.partition(".")[0]
        wanted = f'"retrax[{_EXTRAS[package]}]"' if package in _EXTRAS else package
        missing = f"it needs the module {error.name}, which is not installed"
        return ImportError(f"{what}: {missing}: pip install {wanted}")
    if isinstance(error, ImportError):
        return error
    if isinstance(error, SystemExit):
        return RefusedError(f"{what}: it called sys.exit({error.code!r}).")
    if type(error).__name__ == "DependencyNotInstalled":  # Gymnasium's, which says no extra of ours
        for name, extra in _EXTRAS.items():
            if name in str(error):
                return ImportError(
                    f'{what}: it needs {name}, which is missing: pip install "retrax[{extra}]"'
                )
    raised_by = str(traceback.format_tb(error.__traceback__)[-1:])
    if "values to unpack (expected 5" in str(error) and ".step(" in raised_by:  # in a wrapper
        names = "observation, reward, terminated, truncated, info"
        return RefusedError(f"{what}: step() must return ({names}).")
    return RefusedError(f"{what}: {reason(error)}.")


def close_quietly(
    environment: Any, name: str = "the environment", *, has_failed: bool = False
) -> None:
    """Closes a user's environment, whose work is done; what it raises is a line in the log.

    The `close` of one that `has_failed` may never end: it has some seconds, in a thread.
    """
    raised: list[BaseException] = []

    def close() -> None:
        try:
            environment.close()
        except BaseException as error:
            raised.append(error)

    if has_failed:
        thread = threading.Thread(target=close, daemon=True)
        thread.start()
        thread.join(_CLOSE_SECONDS)
        if thread.is_alive():
            raised.append(TimeoutError(f"it takes more than {_CLOSE_SECONDS:g} s"))
    else:
        close()
    for error in raised:
        if not isinstance(error, Exception | SystemExit):
            raise error
        _log.warning(str(failure(f"{name} could not be closed", error)))


@contextlib.contextmanager
def closing_quietly(environment: Closable) -> Iterator[Closable]:
    """`contextlib.closing` with `close_quietly`."""
    try:
        yield environment
    except BaseException:
        close_quietly(environment, has_failed=True)
        raise
    close_quietly(environment)


def close_all(environments: Sequence[Any]) -> None:
    """Closes environments of one vector, whatever the first ones do."""
    for e, environment in enumerate(environments):
        close_quietly(environment, f"environment {e}")


@contextlib.contextmanager
def closed_on_error(environments: Sequence[Any]) -> Iterator[None]:
    """Closes environments, of which more may be made in the block, if it fails."""
    try:
        yield
    except BaseException:
        close_all(environments)
        raise


def drawn(render: Callable[[], Any]) -> np.ndarray:
    """A picture by an environment's method `render`: uint8 `[height, width, 3]`."""
    with one_sentence("the environment cannot be drawn"):
        picture = render()
        array = np.asarray(picture)
    if array.dtype.kind == "i" and array.size and 0 <= array.min() <= array.max() <= 255:
        array = array.astype(np.uint8)
    if array.dtype != np.uint8 or array.ndim != 3 or array.shape[-1] != 3:
        found = f"{array.dtype} {[*array.shape]}" if array.dtype != object else f"{picture!r:.60}"
        raise RefusedError(
            f"the environment cannot be drawn: render() must return uint8 [height, width, 3], got "
            f"{found}."
        )
    return array
