"""Command lines into dataclasses, and messages about wrong ones."""

import dataclasses
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Generic, Literal, TypeVar

import pytest
import tyro

from retrax.agents import acer, agent57, d4pg, reactor
from retrax.basics.validation import Range, Sizes
from retrax.command.parsing import parse, parse_call, parse_known, part, words_of


@dataclasses.dataclass(frozen=True, kw_only=True)
class Part:
    """A part."""

    rate: Annotated[float, Range(0.0)] = 0.5
    """How fast."""

    def __post_init__(self):
        if self.rate < 0:
            raise ValueError(f"Part.rate must be >= 0, got {self.rate}.")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Form:
    """A form."""

    name: str
    """Who."""

    count: int | None = None
    """How many."""

    sizes: tuple[int, ...] = (3,)
    """How large."""

    kind: Literal["a", "b"] = "a"
    """Which."""

    file: Path = Path("file")
    """Where."""

    part: Part = Part()
    """The part."""


AgentConfig = TypeVar("AgentConfig")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Run(Generic[AgentConfig]):
    """A run, in the manner of `retrax train`."""

    folders: Annotated[tyro.conf.Positional[tuple[Path, ...]], tyro.conf.arg(metavar="DIR...")] = ()
    """Where."""

    environment: Annotated[str, tyro.conf.arg(metavar="ID")]
    """Of what kind."""

    steps: Annotated[int | None, tyro.conf.arg(metavar="N")] = None
    """How long."""

    plain: bool = False
    """Whether without colours."""

    save: bool = True
    """Whether to keep it."""

    agent: tyro.conf.FlagConversionOff[AgentConfig]
    """The agent's config."""


def run(*arguments, config=None):
    config = reactor.Config.small() if config is None else config
    default: Any = Run(environment=tyro.MISSING, agent=config)
    given = ["--environment", "x", *arguments]
    return parse(Run[type(config)], given, prog="retrax train", default=default)


def refusal(capfd, *arguments, form=Form, default=None):
    """tyro's message about wrong arguments, without its frame, in one line."""
    with pytest.raises(SystemExit) as stop:
        parse(form, arguments, prog="program", default=default)
    assert stop.value.code == 2
    out, err = capfd.readouterr()
    assert out == ""
    return in_one_line(err)


def in_one_line(text):
    return " ".join(re.sub("[│╭╮╰╯─|+]", " ", text).split())


def test_values_and_defaults():
    given = parse(Form, ["--name", "x", "--part.rate", "2", "--sizes", "1", "2"], prog="program")
    assert given == Form(name="x", sizes=(1, 2), part=Part(rate=2.0))
    default = Form(name="--count", count=3, part=Part(rate=7.0))
    words = ["--sizes", "5", "--name=--count", "--count", "-3"]
    changed = dataclasses.replace(default, sizes=(5,), count=-3)
    assert parse(Form, words, prog="program", default=default) == changed


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "Missing from program: --name STR Who. (required)"),
        (["--name"], "Missing value for argument '--name'."),
        (["--name", "x", "--foo", "3"], "Unrecognized options: --foo"),
        (["--name", "x", "--part.rat", "3"], "Perhaps you meant: --part.rate FLOAT"),
        (["--name", "x", "y"], "Unrecognized options: y"),
        (["--name", "x", "--count", "1e3"], "--count: must be an integer, got '1e3'"),
        (["--name", "x", "--count=", "--kind", "a"], "--count: must be an integer, got ''"),
        (["--name", "x", "--part.rate", "fast"], "--part.rate: must be a number, got 'fast'"),
        (["--name", "x", "--part.rate", "None"], "--part.rate: must be a number, got 'None'"),
        (["--name", "x", "--sizes", "1", "a"], "--sizes: must be integers, got 'a'"),
        (["--name", "x", "--kind", "c"], "invalid choice 'c' for argument '--kind'"),
        (["--name="], "--name: must not be empty"),
        (["--name", "x", "--part.rate", "-1"], "Part.rate must be >= 0, got -1.0."),
    ],
)
def test_wrong_arguments_are_named(capfd, arguments, message):
    assert message in refusal(capfd, *arguments)


@pytest.mark.parametrize(
    ("hint", "word", "sentence"),
    [
        (Annotated[int, Range(1)], "0", "must be an integer >= 1, got 0."),
        (float, "-inf", "must be a number, got -inf."),
        (float, "NaN", "must be a number, got nan."),
    ],
)
@pytest.mark.parametrize("parse_it", [parse, parse_known])
def test_fields_out_of_bounds_are_named_as_options(parse_it, hint, word, sentence):
    form = dataclasses.make_dataclass("Made", [("two_words", hint, 1)])
    with pytest.raises(ValueError, match=f"^--two-words {sentence}$"):
        parse_it(form, ["--two_words", word], prog="p")
    assert parse_it(form, ["--two-words", "3"], prog="p") in (form(3), (form(3), []))


def test_none_is_a_value_of_optional_options():
    assert parse(Form, ["--name", "x", "--count", "None"], prog="p").count is None
    for word, value in (("None", None), ("2", 2.0)):
        given = run("--agent.max-action-gradient-norm", word, config=d4pg.Config.small())
        assert given.agent.max_action_gradient_norm == value


def test_switches_of_a_run_and_bools_of_an_agent():
    assert run("a", "b", "--plain", "--no-save", "--agent.recurrent", "False") == Run(
        folders=(Path("a"), Path("b")),
        environment="x",
        plain=True,
        save=False,
        agent=reactor.Config.small(recurrent=False),
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--agent.discout", "1"], "Perhaps you meant: --agent.discount FLOAT"),
        (["--agent.replay.capacty", "1"], "Perhaps you meant: --agent.replay.capacity INT"),
        (["--no-plain"], "Unrecognized options: --no-plain"),
        (["--steps", "abc"], "--steps: must be an integer, got 'abc'"),
        (["--agent.num-atoms", "2.5"], "--agent.num-atoms: must be an integer, got '2.5'"),
        (["--agent.recurrent", "no"], "invalid choice 'no' for argument '--agent.recurrent'"),
        (["--agent.recurrent", "--plain"], "Missing value for argument '--agent.recurrent'"),
        (["--agent.replay.selector", "x"], "('uniform', 'proportional', 'contextual')"),
        (["--agent.convolutions", "8", "x", "1"], "--agent.convolutions: must be integers, got"),
        (["--agent.convolutions", "16", "3"], "must be 3 numbers for each entry, got 16 3"),
        (["--agent.discount", "2"], "Config.discount must be a number >= 0.0 and <= 1.0, got 2.0."),
        (["--agent.replay.min-rows", "0"], "ReplayConfig.min_rows must be an integer >= 1"),
    ],
)
def test_wrong_arguments_of_a_run_are_named(capfd, arguments, message):
    default: Any = Run(environment="x", agent=reactor.Config.small())
    assert message in refusal(capfd, *arguments, form=Run[reactor.Config], default=default)


def words(config, prefix):
    """Every field of a config with its value, as a command line."""
    for field in dataclasses.fields(config):
        value, flag = getattr(config, field.name), f"--{prefix}.{field.name.replace('_', '-')}"
        if dataclasses.is_dataclass(value):
            yield from words(value, flag[2:])
        else:
            yield from [flag, *str(value).replace("(", " ").replace(")", " ").split()]


@pytest.mark.parametrize("agent", [acer, agent57, d4pg, reactor])
def test_every_option_of_every_agent_takes_its_default(agent):
    config = agent.Config.small()
    given = [word.rstrip(",") for word in words(config, "agent")]
    assert len(given) > 79
    assert run(*given, config=config).agent == config


def help_of(capsys, form, default=None):
    """The help in one line, since tyro breaks lines."""
    with pytest.raises(SystemExit) as stop:
        parse(form, ["--help"], prog="program", default=default, description="What it does.")
    assert stop.value.code == 0
    return in_one_line(capsys.readouterr().out)


def test_help_has_the_docs_and_the_bounds(capsys):
    text = help_of(capsys, Form)
    for words in ("usage: program", "What it does.", "--part.rate FLOAT How fast. Must be >= 0.0."):
        assert words in text
    text = help_of(capsys, Run[reactor.Config], Run(environment="x", agent=reactor.Config.small()))
    for bounds in (
        "--agent.retrace-lambda FLOAT lambda of Retrace. Paper: 1.0. Must be >= 0.0 and <= 1.0.",
        "Paper: 0 (3.5). Must be >= 0.0 and < 1.0.",
        "None: chosen by image size (ours). Paper: appendix. Must be a tuple of integers >= 1.",
        "Sequences in one update. Must be >= 1.",
    ):
        assert bounds in text
    assert "Must be ." not in text
    bare = [("sizes", Annotated[tuple[int, ...], Sizes(1)], (1,))]
    text = help_of(capsys, dataclasses.make_dataclass("Made", bare))
    assert "Must be a tuple of integers >= 1, at least 1 of them." in text


def test_what_is_not_known_is_returned():
    default = Form(name="", count=3)
    known = ["--kind", "b", "--help", "--other", "1", "2", "--sizes", "5", "--others=3"]
    found, unknown = parse_known(Form, known, prog="p", default=default)
    assert found == dataclasses.replace(default, kind="b", sizes=(5,))
    assert unknown == ["--help", "--other", "1", "2", "--others=3"]


def test_hidden_fields_are_no_options_and_keep_their_values(capfd):
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Half(Form):
        hidden: ClassVar = {"kind", "part"}

    default = Half(name="y", kind="b", part=Part(rate=7.0))
    given = parse(Half, ["--count", "2"], prog="p", default=default)
    assert given == dataclasses.replace(default, count=2)
    for option in ("--kind", "--part.rate"):
        message = refusal(capfd, option, "1", form=Half, default=default)
        assert f"Unrecognized options: {option}" in message


def test_a_functions_signature_is_a_commands_interface(capfd):
    """Of several types, the command line has one; the first parameter is positional."""

    def look(
        runs: Sequence[Path | str],
        output: Path | str | None = None,
        *,
        snapshot: int | str = "newest",
        episodes: Annotated[int, Range(1)] = 3,
    ):
        """Looks.

        Args:
          runs: where.
          output: what to write.
          snapshot: which one.
          episodes: how many.
        """

    given = parse_call(look, ["a", "b", "--snapshot", "7"], prog="look", base=Part)
    assert given.pop("runs") == (Path("a"), Path("b"))
    assert given == {"output": None, "snapshot": "7", "episodes": 3, "rate": 0.5}
    with pytest.raises(ValueError, match=r"^--episodes must be an integer >= 1, got 0\.$"):
        parse_call(look, ["--episodes", "0"], prog="look")
    with pytest.raises(SystemExit):
        parse_call(look, ["--help"], prog="look")
    assert "RUN... Where." in in_one_line(capfd.readouterr().out)


def test_words_are_read_as_what_they_were_made_from():
    default, options = Run(environment="", agent=None), Run(environment="x", steps=3, agent=None)
    options = dataclasses.replace(options, plain=True)
    words = words_of(options, default)
    assert words == ["--environment", "x", "--steps", "3", "--plain"]
    assert parse(Run[type(None)], words, prog="p", default=default) == options


def test_a_part_of_a_whole():
    whole = dataclasses.make_dataclass("Whole", [("name", str, "")], bases=(Part,), frozen=True)
    assert part(whole(rate=2.0), Part) == Part(rate=2.0)
    assert part(whole(rate=2.0), Part, rate=3.0) == Part(rate=3.0)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["None"], None),
        (["16", "3", "1"], ((16, 3, 1),)),
        (["8", "4", "2", "16", "3", "1"], ((8, 4, 2), (16, 3, 1))),
    ],
)
def test_convolutions_are_triples_or_none(words, expected):
    assert run("--agent.convolutions", *words).agent.convolutions == expected
