"""Command lines into dataclasses: tyro, with refusals in one sentence."""

import contextlib
import dataclasses
import io
import sys
from collections.abc import Callable, Sequence
from typing import Any

import tyro

from .._validation import field_types
from .options import NotUnderstoodError, check_arguments, options_of

_FRAME = set("│╭╮╰╯─|+- ")
_REGISTRY = tyro.constructors.ConstructorRegistry()


class _RefusedError(Exception):
    """A dataclass refused its values. Not a ValueError, which tyro would reword."""


def parse(
    form: Any, arguments: Sequence[str], *, prog: str, default: Any = None, description: str = ""
) -> Any:
    """Parses arguments into the dataclass `form`.

    Args:
      form: a dataclass; the docstrings of its fields and their bounds become the help.
      arguments: of the command line.
      prog: the command, for the help.
      default: an instance with the fields' defaults.
      description: the help's first lines; the docstring of `form` if empty.

    Raises:
      ValueError: says in one sentence what was given and what is allowed.
      SystemExit: after `--help` was printed.
    """
    if not _is_for_tyro(arguments):
        with contextlib.suppress(NotUnderstoodError):
            check_arguments(arguments, options_of(form, default), prog)
    errors = io.StringIO()
    options: dict[str, Any] = {"description": description or None}
    if default is not None:
        options["default"] = default
    try:
        with contextlib.redirect_stderr(errors):
            return tyro.cli(form, args=list(arguments), prog=prog, registry=_REGISTRY, **options)
    except _RefusedError as refusal:
        raise ValueError(str(refusal)) from None
    except SystemExit as stop:
        if not stop.code:
            raise
        raise ValueError(_one_line(errors.getvalue())) from None


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


def _is_for_tyro(arguments: Sequence[str]) -> bool:
    """Whether arguments ask for help or shell completion, or end the options with `--`."""
    return wants_help(arguments) or any(
        argument == "--" or argument.startswith("--tyro-") for argument in arguments
    )


@_REGISTRY.primitive_rule
def _number_or_none(
    info: tyro.constructors.PrimitiveTypeInfo,
) -> tyro.constructors.PrimitiveConstructorSpec[float | None] | None:
    """Optional numbers: `None` is written as such, and so in the help."""
    if info.type != float | None:
        return None
    return tyro.constructors.PrimitiveConstructorSpec(
        nargs=1,
        metavar="FLOAT|None",
        instance_from_str=lambda words: None if words[0] == "None" else float(words[0]),
        is_instance=lambda value: value is None or isinstance(value, (int, float)),
        str_from_instance=lambda value: [str(value)],
    )


@_REGISTRY.primitive_rule
def _triples_or_none(
    info: tyro.constructors.PrimitiveTypeInfo,
) -> tyro.constructors.PrimitiveConstructorSpec[Any] | None:
    """Optional (channels, kernel, stride) of any number of convolutions, as `_number_or_none`."""
    if info.type != tuple[tuple[int, int, int], ...] | None:
        return None

    def triples(words: list[str]) -> tuple[tuple[int, ...], ...] | None:
        if words == ["None"]:
            return None
        if len(words) % 3:
            raise ValueError(f"three numbers for each convolution, got {' '.join(words)}")
        numbers = iter(map(int, words))
        return tuple(zip(numbers, numbers, numbers, strict=True))

    return tyro.constructors.PrimitiveConstructorSpec(
        nargs="*",
        metavar="[INT INT INT ...]|None",
        instance_from_str=triples,
        is_instance=lambda value: value is None or isinstance(value, tuple),
        str_from_instance=lambda value: (
            ["None"] if value is None else [str(x) for triple in value for x in triple]
        ),
    )


class _BoundsInHelp:
    """The rule for dataclasses: tyro's own, with bounds in the help and refusals unchanged."""

    def __init__(self) -> None:
        self._inside: set[Any] = set()  # dataclasses for which tyro's own rule is being asked

    def __call__(
        self, info: tyro.constructors.StructTypeInfo
    ) -> tyro.constructors.StructConstructorSpec | None:
        if not dataclasses.is_dataclass(info.type) or info.type in self._inside:
            return None
        self._inside.add(info.type)
        try:
            spec = tyro.constructors.ConstructorRegistry.get_struct_spec(info)
        finally:
            self._inside.remove(info.type)
        if not isinstance(spec, tyro.constructors.StructConstructorSpec):
            return None
        bounds = {name: bounds for name, (_, bounds, _) in field_types(info.type).items()}
        fields = tuple(
            dataclasses.replace(
                field, helptext=_with_bounds(field.helptext, str(bounds[field.name]))
            )
            if bounds.get(field.name)
            else field
            for field in spec.fields
        )
        return dataclasses.replace(
            spec, instantiate=_refusing_plainly(spec.instantiate), fields=fields
        )


_REGISTRY.struct_rule(_BoundsInHelp())


def _with_bounds(doc: Any, bounds: str) -> Any:
    """A field's help followed by its bounds. tyro may give a function that makes the help."""
    if callable(doc):
        return lambda: _with_bounds(doc(), bounds)
    return f"{doc or ''} Must be {bounds}.".strip()


def _refusing_plainly(instantiate: Callable[..., Any]) -> Callable[..., Any]:
    def wrapped(*arguments: Any, **options: Any) -> Any:
        try:
            return instantiate(*arguments, **options)
        except ValueError as error:
            raise _RefusedError(str(error)) from error

    return wrapped


def _one_line(text: str) -> str:
    """A message of tyro's, without the frame around it and the frame's title."""
    paragraphs = [""]
    for line in text.splitlines()[1:]:
        if set(line) <= _FRAME:
            paragraphs.append("")
        else:
            paragraphs[-1] += f"{line.strip('│| ')} "
    return " ".join(f"{words.rstrip('. ')}." for words in paragraphs if words)
