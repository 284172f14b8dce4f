"""Errors of a user's agent, or of what a user gave to ours, in one sentence with file and line."""

import contextlib
import sysconfig
import traceback
from collections.abc import Iterator
from pathlib import Path

from ..basics.sentences import reason
from ..training.run_config import RunConfig

_PACKAGE = str(Path(__file__).parents[1])
_LIBRARIES = (_PACKAGE, "<", *sysconfig.get_paths().values())


@contextlib.contextmanager
def own_code(config: RunConfig) -> Iterator[None]:
    """A ValueError names the line of a user's file that made an agent fail, or was given to it."""
    try:
        yield
    except (Exception, SystemExit) as error:
        frames = traceback.extract_tb(error.__traceback__)
        is_sentence = isinstance(error, (ValueError, ImportError, OSError))
        is_sentence = is_sentence and frames[-1].filename.startswith(_PACKAGE)
        if is_sentence and error.__cause__ is not None:
            frames = traceback.extract_tb(error.__cause__.__traceback__)
        lines = [(x.filename, x.lineno) for x in frames if not x.filename.startswith(_LIBRARIES)]
        given = getattr(config.entry.make_agent, "keywords", {})
        if not is_sentence or error.__cause__ is not None:
            codes = [x.__code__ for x in given.values() if hasattr(x, "__code__")]
            lines = lines or [(code.co_filename, code.co_firstlineno) for code in codes]
        if not lines and (is_sentence or not given):
            raise
        why = f"fails: {reason(error)}"
        if isinstance(error, SystemExit):
            why = f"called sys.exit({error.code!r})"
        said = str(error).rstrip(".") if is_sentence else f"{config.agent} {why}"
        where = f" ({lines[-1][0]}, line {lines[-1][1]})" if lines else ""
        raise ValueError(f"{said}{where}.") from error
