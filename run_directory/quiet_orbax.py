"""Orbax without what it prints: it raises everything that matters."""

import contextlib
import functools
import logging
import sys
import warnings
from collections.abc import Iterator


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Hides what orbax logs."""
    logger = logging.getLogger("absl")
    logger.addFilter(_nothing)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "coroutine .* never awaited", RuntimeWarning)
            yield
    finally:
        logger.removeFilter(_nothing)


@functools.cache
def ignore_orphans() -> None:
    """Hides errors of reads that orbax abandons after one of many arrays could not be read.

    They end later, in threads of their own, and would print their errors on the terminal.
    """
    before = sys.unraisablehook

    def hook(unraisable: "sys.UnraisableHookArgs") -> None:
        code = getattr(unraisable.object, "cr_code", None)  # of a coroutine
        abandoned = code is not None and "orbax" in code.co_filename
        if not abandoned and str(unraisable.exc_value) != "Event loop is closed":
            before(unraisable)

    sys.unraisablehook = hook


def _nothing(record: logging.LogRecord) -> bool:
    return False
