"""Command lines into dataclasses: tyro, with its errors as one sentence."""

import contextlib
import io
import re
import sys
from collections.abc import Sequence
from typing import Any

import tyro

_FRAME = re.compile(r"[╭╮╰╯│─]+")


def parse(form: Any, arguments: Sequence[str], *, prog: str, default: Any = None) -> Any:
    """Parses arguments into the dataclass `form`.

    Args:
      form: a dataclass; its fields' docstrings become the help.
      arguments: of the command line.
      prog: the command, for the help.
      default: an instance with the fields' defaults.

    Raises:
      ValueError: tells in one sentence what was given and what is allowed.
      SystemExit: after `--help` was printed.
    """
    errors = io.StringIO()
    options: dict[str, Any] = {} if default is None else {"default": default}
    try:
        with contextlib.redirect_stderr(errors):
            return tyro.cli(form, args=list(arguments), prog=prog, **options)
    except SystemExit as stop:
        if not stop.code:
            raise
        raise ValueError(f"{_sentence(errors.getvalue())} See: {prog} --help") from None


def scan(arguments: Sequence[str], option: str) -> str | None:
    """The value of an option that decides what the others mean, before they are parsed."""
    for index, argument in enumerate(arguments):
        if argument == option and index + 1 < len(arguments):
            return arguments[index + 1]
        if argument.startswith(f"{option}="):
            return argument.partition("=")[2]
    return None


def wants_help(arguments: Sequence[str]) -> bool:
    """Whether the command line asks for help and nothing else matters."""
    return any(argument in ("-h", "--help") for argument in arguments)


def _sentence(text: str) -> str:
    """The message inside the frame that tyro draws, without its advice."""
    lines = []
    for line in text.splitlines()[1:]:
        if "─" in line:  # a rule: what follows is the help text of the argument, or advice
            break
        lines.append(_FRAME.sub(" ", line).strip())
    sentence = " ".join(filter(None, lines)) or text.strip()
    return sentence if sentence.endswith(".") else f"{sentence}."


def tell(text: str) -> None:
    """Prints for a person: to stderr, so that stdout holds results alone."""
    print(text, file=sys.stderr)
