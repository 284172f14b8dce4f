"""Command lines into dataclasses and functions' arguments: tyro, with the bounds of fields."""

import collections.abc
import dataclasses
import functools
import inspect
import re
import sys
import types
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args, get_origin

import tyro

from ..basics.validation import check_fields, field_types, split_type

_REGISTRY = tyro.constructors.ConstructorRegistry()
_KINDS: dict[Any, tuple[str, str]] = {  # one value, several
    int: ("an integer", "integers"),
    float: ("a number", "numbers"),
    str: ("text", "words"),
    Path: ("a path", "paths"),
}

Part = TypeVar("Part")


def parse(
    form: Any, arguments: Sequence[str], *, prog: str, default: Any = None, description: str = ""
) -> Any:
    """Parses arguments into the dataclass `form`.

    Args:
      form: a dataclass; the docstrings of its fields and their bounds become the help. Fields that
        the default names in `hidden` are no options.
      arguments: of the command line.
      prog: the command, for the help.
      default: an instance with the fields' defaults.
      description: the help's first lines; the docstring of `form` if empty.

    Raises:
      ValueError: says in one sentence which field is out of its bounds.
      SystemExit: 0 after `--help` was printed, 2 after tyro's message about a wrong argument.
    """
    found = _cli(form, arguments, prog=prog, default=default, description=description or None)
    _check(found)
    return found


def parse_call(
    function: Callable[..., Any], arguments: Sequence[str], *, prog: str, base: type = object
) -> dict[str, Any]:
    """Parses arguments into keyword arguments of a function, whose signature and docs they have.

    Its first parameter is positional. Where it accepts several types, the command line has one: a
    path instead of text, text instead of a number, a tuple instead of a sequence. `base` is a
    dataclass of options that the command has besides. Errors: see `parse`.
    """
    fields: list[Any] = []
    for name, parameter in inspect.signature(function).parameters.items():
        hint = _one_type(parameter.annotation)
        if not fields and parameter.default is parameter.empty:
            is_many = get_origin(hint) is tuple
            metavar = f"{name.upper().removesuffix('S')}..." if is_many else name.upper()
            hint = Annotated[hint, tyro.conf.Positional, tyro.conf.arg(metavar=metavar)]
        fields.append([name, hint])
        if parameter.default is not parameter.empty:
            fields[-1].append(dataclasses.field(default=parameter.default))
    doc = inspect.getdoc(function) or ""
    # The help of an option begins with a capital letter.
    doc = re.sub(r"^  (\w+): (\w)", lambda m: f"  {m[1]}: {m[2].upper()}", doc, flags=re.MULTILINE)
    form = dataclasses.make_dataclass(
        "Call", fields, bases=(base,), namespace={"__doc__": doc}, frozen=True, kw_only=True
    )
    return vars(parse(form, arguments, prog=prog))


def _one_type(hint: Any) -> Any:
    members = get_args(hint)
    if get_origin(hint) is collections.abc.Sequence:
        return tuple[_one_type(members[0]), ...]  # type: ignore[misc]
    if get_origin(hint) is types.UnionType and str in members:
        other = Path if Path in members else str
        return other | None if type(None) in members else other
    return hint


def parse_known(
    form: Any, arguments: Sequence[str], *, prog: str, default: Any = None
) -> tuple[Any, list[str]]:
    """`parse` of what is known; everything else is returned, `--help` included.

    No field may be required.
    """
    words = [word for word in arguments if not word.startswith("--tyro-")]
    options = {"prog": prog, "default": default, "add_help": False, "return_unknown_args": True}
    found, unknown = _cli(form, words, **options)
    _check(found)
    return found, unknown


def part(whole: Any, kind: type[Part], **changes: Any) -> Part:
    """The dataclass `kind` with those of its fields that `whole` has, and with `changes`."""
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


def wants_help(arguments: Sequence[str]) -> bool:
    """Whether the command line asks for help and nothing else matters."""
    return any(argument in ("-h", "--help") for argument in arguments)


def tell(text: str) -> None:
    """Prints for a person: to stderr, so that stdout holds results alone."""
    print(text, file=sys.stderr)


def _cli(form: Any, arguments: Sequence[str], *, default: Any, **options: Any) -> Any:
    return tyro.cli(
        form,
        args=list(arguments),
        default=tyro.MISSING_NONPROP if default is None else default,
        config=(tyro.conf.FlagCreatePairsOff,),
        registry=_REGISTRY,
        **options,
    )


def _check(found: Any) -> None:
    """`check_fields` whose sentence names the option."""
    try:
        check_fields(found)
    except ValueError as error:
        name, space, rest = str(error).removeprefix(f"{type(found).__name__}.").partition(" ")
        raise ValueError(f"--{name.replace('_', '-')}{space}{rest}") from None


@_REGISTRY.primitive_rule
def _plain_values(
    info: tyro.constructors.PrimitiveTypeInfo,
) -> tyro.constructors.PrimitiveConstructorSpec[Any] | None:
    """Numbers, text, paths, tuples of any length, and None: errors say what is allowed."""
    hint, _, is_optional = split_type(info.type)
    is_many = get_origin(hint) is tuple and get_args(hint)[1:] == (...,)
    kind = get_args(hint)[0] if is_many else hint
    group = len(get_args(kind)) if is_many and get_origin(kind) is tuple else 1
    kind = get_args(kind)[0] if group > 1 else kind
    if kind not in _KINDS:
        return None

    def read(word: str) -> Any:
        if not word and kind in (str, Path):
            raise ValueError("must not be empty")
        try:
            return kind(word)
        except ValueError:
            raise ValueError(f"must be {_KINDS[kind][is_many]}, got {word!r}") from None

    def read_all(words: list[str]) -> Any:
        if is_optional and words == ["None"]:
            return None
        values = list(map(read, words))
        if not is_many:
            return values[0]
        if len(values) % group:
            raise ValueError(f"must be {group} numbers for each entry, got {' '.join(words)}")
        groups = zip(*[iter(values)] * group, strict=True)
        return tuple(groups if group > 1 else values)

    def write(value: Any) -> list[str]:
        if is_many and value is not None:
            return [str(x) for entry in value for x in (entry if group > 1 else [entry])]
        return [str(value)]

    metavar = " ".join([kind.__name__.upper()] * group)
    metavar = f"[{metavar} ...]" if is_many else metavar
    return tyro.constructors.PrimitiveConstructorSpec(
        nargs="*" if is_many else 1,
        metavar=f"{metavar}|None" if is_optional else metavar,
        instance_from_str=read_all,
        is_instance=lambda _: True,
        str_from_instance=write,
    )


class _Fields:
    """The rule for dataclasses: tyro's own, without hidden fields, with bounds in the help."""

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
        hidden = getattr(info.default, "hidden", ())
        make = functools.partial(dataclasses.replace, info.default) if hidden else spec.instantiate
        types = field_types(info.type)
        fields = tuple(
            dataclasses.replace(field, helptext=_help(field.helptext, types[field.name].bounds))
            for field in spec.fields
            if field.name not in hidden
        )
        return dataclasses.replace(spec, instantiate=make, fields=fields)


_REGISTRY.struct_rule(_Fields())


def _help(doc: Any, bounds: Any) -> Any:
    """A field's doc in one line, and its bounds. tyro may give a function that makes the doc."""
    if callable(doc):
        return lambda: _help(doc(), bounds)
    return " ".join([*(doc or "").split(), *([f"Must be {bounds}."] if bounds else [])]) or None
