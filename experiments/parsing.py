"""Command lines into dataclasses: tyro, with its errors as one sentence."""

import contextlib
import io
import re
import sys
from collections.abc import Sequence
from typing import Any

import tyro

_FRAME = "│╭╮╰╯ "
_RULE = re.compile(r"[─-]{3,}")

# What tyro says, and the same in our words.
_REWRITTEN = (
    (r"Unrecognized options: (-[^\s,]*).*", r"Unknown option \1"),
    (r"Unrecognized options: ([^\s,]*).*", r"Unknown argument \1"),
    (r"Missing from (.*?): (--\S+ \S+|\S+) (.*?)\.? \(required\).*", r"\1 needs \2: \3"),
    (r"Missing value for argument '(\S+)'.*", r"\1 needs a value"),
    (r"Error parsing (--\S+): .*invalid literal for int.*: (.*)", r"\1 must be an integer, got \2"),
    (r"Error parsing (--\S+): .*string to float: (.*)", r"\1 must be a number, got \2"),
    (r"Error parsing (--\S+): .* valid parse for arguments: \[(.*)\]", r"\1 cannot be \2"),
    (
        r"invalid choice (.*) for argument '(\S+)'. Expected (one of .*?)\.?",
        r"\2 must be \3, got \1",
    ),
    (r"Error parsing (?!--)[^:]*: (.*)", r"\1"),  # a config refused itself
)


_REGISTRY = tyro.constructors.ConstructorRegistry()


@_REGISTRY.primitive_rule
def _number_or_none(
    info: tyro.constructors.PrimitiveTypeInfo,
) -> tyro.constructors.PrimitiveConstructorSpec[float | None] | None:
    """Numbers that may be left out: `None` is written as such, and so in the help."""
    if info.type != float | None:
        return None
    return tyro.constructors.PrimitiveConstructorSpec(
        nargs=1,
        metavar="FLOAT|None",
        instance_from_str=lambda words: None if words[0] == "None" else float(words[0]),
        is_instance=lambda value: value is None or isinstance(value, (int, float)),
        str_from_instance=lambda value: [str(value)],
    )


def parse(
    form: Any, arguments: Sequence[str], *, prog: str, default: Any = None, description: str = ""
) -> Any:
    """Parses arguments into the dataclass `form`.

    Args:
      form: a dataclass; its fields' docstrings become the help.
      arguments: of the command line.
      prog: the command, for the help.
      default: an instance with the fields' defaults.
      description: the help's first lines; the docstring of `form` if empty.

    Raises:
      ValueError: tells in one sentence what was given and what is allowed.
      SystemExit: after `--help` was printed.
    """
    errors = io.StringIO()
    options: dict[str, Any] = {"description": description or None}
    if default is not None:
        options["default"] = default
    try:
        with contextlib.redirect_stderr(errors):
            return tyro.cli(form, args=list(arguments), prog=prog, registry=_REGISTRY, **options)
    except SystemExit as stop:
        if not stop.code:
            raise
        raise ValueError(f"{_sentence(errors.getvalue(), prog)}") from None


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


def tell(text: str) -> None:
    """Prints for a person: to stderr, so that stdout holds results alone."""
    print(text, file=sys.stderr)


def _sentence(text: str, prog: str) -> str:
    """The message inside the frame that tyro draws, in our words."""
    message, *advice = _paragraphs(text) or [text.strip()]
    for pattern, words in _REWRITTEN:
        match = re.fullmatch(pattern, message)
        if match:
            message = match.expand(words)
            break
    near = [a.split()[3] for a in advice if a.startswith("Perhaps you meant:")]
    hint = f"did you mean {near[0]}?" if near else f"see {prog} --help"
    return f"{message.rstrip('.')} ({hint})."


def _paragraphs(text: str) -> list[str]:
    """What stands between the rules, each in one line; the frame's title is left out."""
    lines = [line.strip(_FRAME) for line in text.splitlines()[1:]]
    paragraphs: list[list[str]] = [[]]
    for line in lines:
        if _RULE.fullmatch(line):
            paragraphs.append([])
        elif line:
            paragraphs[-1].append(line)
    return [" ".join(paragraph) for paragraph in paragraphs if paragraph]
