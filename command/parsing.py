"""Command lines into dataclasses and functions' arguments: tyro, with the bounds of fields."""

import contextlib
import dataclasses
import inspect
import io
import re
import sys
from collections.abc import Callable, Sequence
from typing import Annotated, Any, TypeVar, get_origin

import tyro

from ..basics.validation import check_fields, field_types

_REGISTRY = tyro.constructors.ConstructorRegistry()
HELP = {"-h", "--help"}
_HAS_BOUNDS: Any = object()  # marks a dataclass for which tyro's own rule is asked

Part = TypeVar("Part")
Hidden = Annotated[Part, tyro.conf.Suppress, tyro.conf.Fixed]  # the type of a field: no option


def parse(form: Any, arguments: Sequence[str], **options: Any) -> Any:
    """Parses arguments into a dataclass, or an instance, whose values are then the defaults.

    The fields' docs and bounds become the help; `options` go to `tyro.cli`. A ValueError says which
    field is out of its bounds; SystemExit is 0 after `--help`, 2 after tyro's message.
    """
    fixed: Any = {"config": (tyro.conf.FlagCreatePairsOff,), "registry": _REGISTRY}
    if not isinstance(form, type):
        fixed["default"], form = form, type(form)
    try:
        found = tyro.cli(form, args=list(arguments), **fixed, **options)
    except SystemExit as stop:
        if not stop.code:
            raise
        with contextlib.redirect_stdout(io.StringIO()) as page, contextlib.suppress(SystemExit):
            tyro.cli(form, args=["--help"], **fixed)
        known = re.findall(r"^\W*(--[\w.-]+)", page.getvalue(), re.MULTILINE)
        for flag in [word.partition("=")[0] for word in arguments if word.startswith("--")]:
            short = flag.rpartition(".")[2].strip("-")  # a beginning, or initials
            wanted = rf"--(.+\.)?({re.escape(short)}|{'-'.join(f'{x}[^-]*' for x in short)}$)"
            meant = [x for x in known if short.isalpha() and re.match(wanted, x)]
            if flag not in known and meant:
                tell(f"retrax: {flag} is unknown (did you mean {' or '.join(meant)}?)")
        raise
    parsed = found[0] if options.get("return_unknown_args") else found
    try:
        check_fields(parsed)
    except ValueError as error:
        name, space, rest = str(error).removeprefix(f"{type(parsed).__name__}.").partition(" ")
        raise ValueError(f"--{name.replace('_', '-')}{space}{rest}") from None
    return found


def parse_known(form: Any, arguments: Sequence[str], *, prog: str) -> tuple[Any, list[str]]:
    """`parse` of what is known, where no field is required; the rest is returned, `--help` too."""
    words = [word for word in arguments if not word.startswith("--tyro-")]
    return parse(form, words, prog=prog, add_help=False, return_unknown_args=True)


def parse_call(
    function: Callable[..., Any], arguments: Sequence[str], *, prog: str, base: type = object
) -> dict[str, Any]:
    """Parses the keyword arguments of a function, which has the help in its docs.

    Its first parameter is positional; `base` is a dataclass of what options there are besides.
    """
    fields: list[Any] = []
    for name, parameter in inspect.signature(function).parameters.items():
        hint = parameter.annotation
        if parameter.default is not parameter.empty:
            fields.append((name, hint, dataclasses.field(default=parameter.default)))
            continue
        if not fields:
            is_many = get_origin(hint) in (Sequence, tuple)
            metavar = f"{name.upper().removesuffix('S')}..." if is_many else name.upper()
            shown = tyro.conf.arg(metavar=metavar, help_behavior_hint="(required)")
            hint = Annotated[hint, tyro.conf.Positional, shown]
        fields.append((name, hint))
    doc = inspect.getdoc(function) or ""
    # The help of an option begins with a capital letter.
    doc = re.sub(r"^  (\w+): (\w)", lambda m: f"  {m[1]}: {m[2].upper()}", doc, flags=re.MULTILINE)
    form = dataclasses.make_dataclass(
        "Call", fields, bases=(base,), namespace={"__doc__": doc}, frozen=True, kw_only=True
    )
    return vars(parse(form, arguments, prog=prog))


def with_types(options: Any, types: dict[str, Any]) -> Any:
    """An instance of a dataclass, with other types of some fields."""
    cls, fields = type(options), [(name, hint, None) for name, hint in types.items()]
    form = dataclasses.make_dataclass(cls.__name__, fields, bases=(cls,), frozen=True, kw_only=True)
    return part(options, form)


def part(whole: Any, kind: type[Part], **changes: Any) -> Part:
    """The dataclass `kind` with the values of fields that `whole` has too, and `changes`."""
    names = [field.name for field in dataclasses.fields(kind)]  # type: ignore[arg-type]
    return kind(**{name: getattr(whole, name) for name in names} | changes)


def words_of(options: Any, default: Any) -> list[str]:
    """Arguments that `parse` reads as `options`, where they differ from `default`."""
    words = []
    for field in dataclasses.fields(options):
        value = getattr(options, field.name)
        if value != getattr(default, field.name):
            flag = f"--{field.name.replace('_', '-')}"
            words += [flag] if value is True else [flag, str(value)]
    return words


def tell(text: str) -> None:
    """Prints for a person: to stderr, so that stdout holds results alone."""
    print(text, file=sys.stderr)


@_REGISTRY.primitive_rule
def _integer(info: Any) -> Any:
    """Integers may be written as 1e5."""

    def read(words: list[str]) -> int:
        number = float(words[0]) if "e" in words[0].lower() else int(words[0])
        if number != number // 1:
            raise ValueError(f"{words[0]} is not an integer")
        return int(number)

    form: Any = {"instance_from_str": read, "is_instance": lambda x: type(x) is int}
    form |= {"nargs": 1, "metavar": "INT", "str_from_instance": lambda x: [str(x)]}
    return tyro.constructors.PrimitiveConstructorSpec(**form) if info.type is int else None


@_REGISTRY.struct_rule
def _with_bounds(info: Any) -> Any:
    """Tyro's own rule for dataclasses, with bounds in the help."""
    if not dataclasses.is_dataclass(info.type) or _HAS_BOUNDS in info.markers:
        return None
    marked = dataclasses.replace(info, markers=(*info.markers, _HAS_BOUNDS))
    spec: Any = tyro.constructors.ConstructorRegistry.get_struct_spec(marked)
    types = field_types(info.type)  # type: ignore[arg-type]
    fields = tuple(
        dataclasses.replace(field, helptext=_help(field.helptext, types[field.name].bounds))
        for field in spec.fields
    )
    return dataclasses.replace(spec, fields=fields)


def _help(doc: Any, bounds: Any) -> Any:
    """A field's doc in one line, and its bounds. tyro may give a function that makes the doc."""
    if callable(doc):
        return lambda: _help(doc(), bounds)
    return " ".join([*(doc or "").split(), *([f"Must be {bounds}."] if bounds else [])]) or None
