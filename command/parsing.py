"""Command lines into dataclasses: tyro, with refusals in one sentence."""

import contextlib
import dataclasses
import difflib
import functools
import io
import itertools
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin

import tyro

from ..basics.validation import check_fields, field_types, split_type

_REGISTRY = tyro.constructors.ConstructorRegistry()
_KINDS: dict[Any, tuple[str, str]] = {  # one value, several
    int: ("an integer", "integers"),
    float: ("a number", "numbers"),
    str: ("text", "words"),
    Path: ("a path", "paths"),
}
_FRAME = "│|"
_OF_HELP = " " * 8  # before the help of a missing option

Part = TypeVar("Part")


class _RefusedError(Exception):
    """A dataclass refused its values. Not a ValueError, which tyro would reword."""


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
      ValueError: says in one sentence what was given and what is allowed.
      SystemExit: after `--help` was printed.
    """
    options = {"prog": prog, "default": default, "description": description}
    found, unknown, missing = _cli(form, arguments, **options)
    if unknown:
        raise ValueError(_unknown(unknown[0], missing, form, options))
    if missing:
        raise ValueError(f"{prog} needs {missing} (see {prog} --help).")
    return found


def parse_known(
    form: Any, arguments: Sequence[str], *, prog: str, default: Any = None
) -> tuple[Any, list[str]]:
    """`parse` of what is known; everything else is returned, `--help` included.

    No field may be required.
    """
    words = [word for word in arguments if not word.startswith("--tyro-")]
    found, unknown, _ = _cli(form, words, prog=prog, default=default, add_help=False)
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


def _cli(
    form: Any,
    arguments: Sequence[str],
    *,
    prog: str,
    default: Any,
    description: str = "",
    add_help: bool = True,
) -> tuple[Any, list[str], str]:
    """What tyro parses, the arguments that it does not know, and a required option not given."""
    errors = io.StringIO()
    try:
        with contextlib.redirect_stderr(errors):
            found, unknown = tyro.cli(
                form,
                args=list(arguments),
                prog=prog,
                description=description or None,
                default=tyro.MISSING_NONPROP if default is None else default,
                config=(tyro.conf.FlagCreatePairsOff,),
                registry=_REGISTRY,
                add_help=add_help,
                return_unknown_args=True,
            )
        check_fields(found)
        return found, unknown, ""
    except (_RefusedError, ValueError) as refusal:
        raise ValueError(_of_option(str(refusal), form)) from None
    except SystemExit as stop:
        if not stop.code:
            raise
        return None, *_missing(errors.getvalue(), prog)


def _of_option(message: str, form: Any) -> str:
    """A message about a field of the form, which is an option."""
    owner = f"{(get_origin(form) or form).__name__}."
    name, space, rest = message.removeprefix(owner).partition(" ")
    is_field = message.startswith(owner)
    return f"--{name.replace('_', '-')}{space}{rest}" if is_field else message


def _missing(text: str, prog: str) -> tuple[list[str], str]:
    """Unknown arguments and the first missing option, with its doc, of tyro's message in a frame.

    Raises:
      ValueError: it is about another mistake.
    """
    sections: list[list[str]] = [[]]
    for line in text.splitlines()[1:-1]:
        inside = line.strip(_FRAME)[1:].rstrip()
        if set(inside) <= set("─-"):
            sections.append([])
        else:
            sections[-1].append(inside)
    first, *others = filter(None, sections)
    if not first[0].startswith("Missing from"):
        raise ValueError(_sentence(" ".join(map(str.strip, first)), prog))
    doc = itertools.takewhile(lambda line: line.startswith(_OF_HELP), first[2:])
    missing = f"{first[1].strip()}: {' '.join(map(str.strip, doc))}"
    missing = missing.replace("(required)", "").strip(" .:")
    words = [line.strip() for lines in others if "Unrecognized" in lines[0] for line in lines[1:]]
    return words, missing


def _sentence(message: str, prog: str) -> str:
    """A message of tyro's in our words."""
    if found := re.match(r"Error parsing (\S+): (.*)", message):
        return f"{found[1]} {found[2].rstrip('.')}."
    if found := re.match(r"Missing value for argument '(\S+)'\. Expected (\d+)", message):
        number = "a value" if found[2] == "1" else f"{found[2]} values"
        return f"{found[1]} needs {number} (see {prog} --help)."
    if found := re.match(r"invalid choice ('.*') for argument '(\S+)'\. .* \((.*)\)", message):
        allowed = found[3].replace("'", "").rstrip(",")
        return f"{found[2]} must be one of {allowed}, got {found[1]}."
    return f"{message.rstrip('.')}."


def _unknown(word: str, missing: str, form: Any, options: dict[str, Any]) -> str:
    """A sentence about an argument that is not known, with the most similar option."""
    see = f"see {options['prog']} --help"
    if not word.startswith("-"):
        hint = f"did you mean {missing.split()[0]} {word}?" if missing.startswith("--") else see
        return f"Unknown argument {word} ({hint})."
    flag, shown = word.partition("=")[0], io.StringIO()
    with contextlib.redirect_stdout(shown), contextlib.suppress(SystemExit):
        _cli(form, ["--help"], **options)
    known = re.findall(r"^[│| ]*--([\w.-]+)", shown.getvalue(), re.MULTILINE)
    close = _nearest(flag.lstrip("-").replace("_", "-"), known)
    return f"Unknown option {flag} ({f'did you mean --{close[0]}?' if close else see})."


def _nearest(given: str, known: Sequence[str]) -> list[str]:
    """The known name whose last part is most similar: sharing "agent." makes none similar."""
    for head, dot, _ in (name.rpartition(".") for name in known):
        if dot and given.startswith(f"{head.replace('.', '-')}-"):  # --agent-discount
            given = f"{head}.{given[len(head) + 1 :]}"
    leaves = {name.rpartition(".")[2] for name in known}
    alike = difflib.get_close_matches(given.rpartition(".")[2], sorted(leaves), n=1)
    close = [name for name in known if name.rpartition(".")[2] in alike]
    return difflib.get_close_matches(given, close, n=1, cutoff=0.0)


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
        return dataclasses.replace(spec, instantiate=_refusing_plainly()(make), fields=fields)


_REGISTRY.struct_rule(_Fields())


def _help(doc: Any, bounds: Any) -> Any:
    """A field's doc in one line, and its bounds. tyro may give a function that makes the doc."""
    if callable(doc):
        return lambda: _help(doc(), bounds)
    return " ".join([*(doc or "").split(), *([f"Must be {bounds}."] if bounds else [])]) or None


@contextlib.contextmanager
def _refusing_plainly() -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        raise _RefusedError(str(error)) from error
