"""Runs that fail after their start: what is kept, and one sentence."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

from ..basics.sentences import first_line
from ..run_directory.snapshots import newest_snapshot
from ..runtime.loop import Loop


class RunFailedError(RuntimeError):
    """A run that failed after its start; the message says where and why."""


@contextlib.contextmanager
def kept_on_failure(loop: Loop, keep: Callable[[], None]) -> Iterator[None]:
    """Keeps the state of a run that fails where its state is consistent: in an environment.

    Args:
      loop: of the run.
      keep: saves a snapshot; its errors are not raised: the first one explains the failure.
    """
    try:
        yield
    except (Exception, SystemExit):
        if loop.is_consistent:
            with contextlib.suppress(Exception):
                keep()
        raise


def run_failed(error: BaseException, loop: Loop, directory: Path) -> RunFailedError:
    """The error to be raised in place of one that ended a run: where, why, and how to continue."""
    steps = loop.counters.steps
    reason = first_line(error).rstrip(".")
    if isinstance(error, SystemExit):
        reason = f"the environment or the agent called sys.exit({error.code!r})"
    kept = newest_snapshot(directory)
    advice = f"; retrax train --resume {directory} continues at {kept} steps"
    return RunFailedError(
        f"The run failed at {steps} steps: {reason} (traceback in {directory / 'log.txt'})"
        f"{'' if kept is None else advice}."
    )
