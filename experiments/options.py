"""The options of a command line, derived from a dataclass, and refusals of the common mistakes.

tyro parses. It is asked only after the common mistakes have been refused in sentences of ours.
"""

import ast
import dataclasses
import difflib
import enum
import inspect
import itertools
import pathlib
import textwrap
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin

import tyro

_MARKERS = (
    tyro.conf.Positional,
    tyro.conf.FlagCreatePairsOff,
    tyro.conf.FlagConversionOff,
)
_ARG: Any = type(tyro.conf.arg())
_NUMBERS = {int: ("an integer", "integers"), float: ("a number", "numbers")}
_UNIONS = (typing.Union, types.UnionType)
_SPECIAL_NUMBERS = ("inf", "infinity", "nan")


class NotUnderstoodError(Exception):
    """A dataclass has a field whose options only tyro can derive."""


class Value(NamedTuple):
    """The values of an option.

    Attributes:
      kind: int, float, or str; str values are not checked.
      choices: the allowed values, if they are listed.
      many: whether an option has any number of values.
      optional: whether `None` is allowed.
    """

    kind: type
    choices: tuple[str, ...] = ()
    many: bool = False
    optional: bool = False


class Option(NamedTuple):
    """One field of a dataclass, as the command line has it.

    Attributes:
      name: `--agent.replay.selector`; the metavar of a positional argument.
      flags: everything that stands for it; nothing for a positional argument.
      value: its values; None for a switch, which has none.
      metavar: what stands for its value in the help.
      required: whether it has no default.
      positional: whether it is a positional argument.
      owner: the dataclass that has the field.
      field: the field's name.
    """

    name: str
    flags: tuple[str, ...]
    value: Value | None
    metavar: str
    required: bool
    positional: bool
    owner: type
    field: str


def options_of(form: Any, default: Any = None) -> list[Option]:
    """The options of a dataclass, nested dataclasses included.

    Args:
      form: a dataclass, or a generic one with its argument.
      default: an instance with the fields' defaults, or None.

    Raises:
      NotUnderstoodError: a field is not a (nested) dataclass, number, string, path, choice, switch,
        or sequence of these; or it has a marker of tyro that changes more than this module knows.
    """
    return list(_walk(form, default, "", frozenset()))


def check_arguments(arguments: Sequence[str], options: Sequence[Option], prog: str) -> None:
    """Refuses unknown options, missing and wrong values, and missing options.

    Raises:
      ValueError: says in one sentence what was given and what is allowed.
    """
    positional = [option for option in options if option.positional]
    named = {flag: option for option in options for flag in option.flags}
    given, plain, open_ended = _read(arguments, named, prog)
    missing = [o for o in options if o.required and not o.positional and o.name not in given]
    if len(plain) > len(positional) and not any(o.value and o.value.many for o in positional):
        word = plain[len(positional)]
        hint = f"did you mean {missing[0].name} {word}?" if missing else f"see {prog} --help"
        raise ValueError(f"Unknown argument {word} ({hint}).")
    if missing:
        raise ValueError(_missing(missing[0], prog))
    if len(plain) < len(positional) and not open_ended:
        option = positional[len(plain)]
        if option.required and option.value and not option.value.many:
            raise ValueError(_missing(option, prog))


def _walk(form: Any, default: Any, prefix: str, inherited: frozenset[Any]) -> Iterator[Option]:
    owner = get_origin(form) or form
    if not dataclasses.is_dataclass(owner) or hasattr(owner, "__tyro_markers__"):
        raise NotUnderstoodError(form)
    hints = typing.get_type_hints(owner, include_extras=True)
    for field in dataclasses.fields(owner):
        hint, markers, metavar = _unwrap(hints[field.name])
        if not field.init:
            raise NotUnderstoodError(field)
        markers |= inherited
        value = _default(field, default)
        name = prefix + field.name.replace("_", "-")
        if get_origin(hint) not in _UNIONS and dataclasses.is_dataclass(type(value)):
            yield from _walk(type(value), value, f"{name}.", markers)
        elif dataclasses.is_dataclass(get_origin(hint) or hint):
            yield from _walk(hint, None, f"{name}.", markers)
        else:
            yield _option(name, field.name, hint, value, markers, metavar, owner)


def _unwrap(hint: Any) -> tuple[Any, frozenset[Any], str | None]:
    """A type without `Annotated`, tyro's markers on it, and its metavar."""
    if get_origin(hint) is not Annotated:
        return hint, frozenset(), None
    hint, *extras = get_args(hint)
    markers = set()
    metavar = None
    for extra in extras:
        if isinstance(extra, _ARG):
            if dataclasses.replace(extra, metavar=None, help=None) != tyro.conf.arg():
                raise NotUnderstoodError(extra)
            metavar = extra.metavar
        elif type(extra).__module__.startswith("tyro."):
            if extra not in _MARKERS:
                raise NotUnderstoodError(extra)
            markers.add(extra)
    return hint, frozenset(markers), metavar


def _default(field: "dataclasses.Field[Any]", default: Any) -> Any:
    """A field's default; `tyro.MISSING` if it has none."""
    if default is not None:
        return getattr(default, field.name)
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return tyro.MISSING if field.default is dataclasses.MISSING else field.default


def _option(
    name: str,
    field: str,
    hint: Any,
    default: Any,
    markers: frozenset[Any],
    metavar: str | None,
    owner: Any,
) -> Option:
    required = default is tyro.MISSING
    value = _value(hint)
    kind = "{" + ",".join(value.choices) + "}" if value.choices else value.kind.__name__.upper()
    positional = tyro.conf.Positional in markers
    if positional:
        shown = metavar or field.upper()
        return Option(shown, (), value, shown, required, True, owner, field)
    flags: tuple[str, ...] = (f"--{name}",)
    if hint is bool and not required and tyro.conf.FlagConversionOff not in markers:
        head, dot, leaf = name.rpartition(".")
        pair = (f"--{name}", f"--{head}{dot}no-{leaf}")
        flags = (pair[bool(default)],) if tyro.conf.FlagCreatePairsOff in markers else pair
        return Option(flags[0], flags, None, "", False, False, owner, field)
    return Option(flags[0], flags, value, metavar or kind, required, False, owner, field)


def _value(hint: Any) -> Value:
    """What the command line takes for a type."""
    hint, _, _ = _unwrap(hint)
    origin, members = get_origin(hint), get_args(hint)
    if hint is bool:
        return Value(str, ("True", "False"))
    if origin is Literal and all(isinstance(choice, (str, int)) for choice in members):
        return Value(str, tuple(map(str, members)))
    if hint in (int, float):
        return Value(hint)
    if isinstance(hint, type) and issubclass(hint, (str, pathlib.PurePath, enum.Enum)):
        return Value(str)
    if origin in (tuple, list, Sequence):
        values = {_value(member) for member in members if member is not Ellipsis}
        return (values.pop() if len(values) == 1 else Value(str))._replace(many=True)
    if origin in _UNIONS:
        found = {_value(member) for member in members if member is not type(None)}
        value = found.pop() if len(found) == 1 else Value(str, many=any(v.many for v in found))
        return value._replace(optional=type(None) in members)
    raise NotUnderstoodError(hint)


def _read(
    arguments: Sequence[str], named: Mapping[str, Option], prog: str
) -> tuple[set[str], list[str], bool]:
    """Checks each option and its values.

    Returns:
      names of the options given; arguments that belong to no option; and whether an option with
      any number of values was given, which may have taken positional arguments for its values.
    """
    given, plain, open_ended = set(), [], False
    words = list(arguments)
    while words:
        word = words.pop(0)
        if not _is_flag(word):
            plain.append(word)
            continue
        flag, equals, first = word.partition("=")
        option = named.get(flag.replace("_", "-"))
        if option is None:
            raise ValueError(f"Unknown option {flag} ({_hint(flag, named, prog)}).")
        given.add(option.name)
        if option.value is None:
            continue
        values = [first] if equals else []
        while words and (option.value.many or not values) and not _is_flag(words[0]):
            values.append(words.pop(0))
        if not values and not option.value.many:
            raise ValueError(f"{option.name} needs a value (see {prog} --help).")
        for text in values:
            _check_value(option.name, option.value, text)
        open_ended |= option.value.many
    return given, plain, open_ended


def _is_flag(word: str) -> bool:
    if word[1:].lower() in _SPECIAL_NUMBERS:
        return False
    return word.startswith("-") and word.lstrip("-")[:1].isalpha()


def _check_value(name: str, value: Value, text: str) -> None:
    if value.optional and text == "None":
        return
    if value.choices:
        if text not in value.choices:
            raise ValueError(f"{name} must be one of {', '.join(value.choices)}, got {text!r}.")
    elif value.kind in _NUMBERS:
        try:
            value.kind(text)
        except ValueError:
            allowed = _NUMBERS[value.kind][value.many]
            raise ValueError(f"{name} must be {allowed}, got {text!r}.") from None
    elif not text:
        raise ValueError(f"{name} must not be empty.")


def _hint(flag: str, named: Mapping[str, Option], prog: str) -> str:
    """The known option whose last part is most similar: sharing "agent." makes none similar."""
    parts = {name.lstrip("-"): name.lstrip("-").rpartition(".") for name in named}
    given = flag.lstrip("-").replace("_", "-")
    for head, dot, _ in parts.values():
        if dot and given.startswith(f"{head.replace('.', '-')}-"):  # --agent-discount
            given = f"{head}.{given[len(head) + 1 :]}"
    leaves = sorted({leaf for _, _, leaf in parts.values()})
    alike = difflib.get_close_matches(given.rpartition(".")[2], leaves, n=1)
    known = [name for name, (_, _, leaf) in parts.items() if leaf in alike]
    close = difflib.get_close_matches(given, known, n=1, cutoff=0.0)
    return f"did you mean --{close[0]}?" if close else f"see {prog} --help"


def _missing(option: Option, prog: str) -> str:
    name = option.name if option.positional else f"{option.name} {option.metavar}"
    doc = _doc(option.owner, option.field).rstrip(".")
    return f"{prog} needs {name}{': ' if doc else ''}{doc} (see {prog} --help)."


def _doc(owner: type, field: str) -> str:
    """The docstring of a dataclass's field in one line; empty if there is none."""
    for base in owner.__mro__:
        try:
            (definition,) = ast.parse(textwrap.dedent(inspect.getsource(base))).body
        except (OSError, TypeError, SyntaxError):
            continue
        for pair in itertools.pairwise(getattr(definition, "body", [])):
            match pair:
                case (
                    ast.AnnAssign(target=ast.Name(id=name)),
                    ast.Expr(value=ast.Constant(value=str(text))),
                ) if name == field:
                    return " ".join(text.split())
    return ""
