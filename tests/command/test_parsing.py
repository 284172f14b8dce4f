"""Command lines into dataclasses, and messages about wrong ones."""

import dataclasses
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
import tyro

from retrax.agents import acer, agent57, d4pg, reactor
from retrax.basics.validation import Range, Sizes
from retrax.command.parsing import (
    Hidden,
    parse,
    parse_call,
    parse_known,
    part,
    with_types,
    words_of,
)

SMALL = reactor.Config.small()


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

    plain: bool = False
    """Whether without colours."""

    save: bool = True
    """Whether to keep it."""

    part: Part = Part()
    """The part."""

    agent: tyro.conf.FlagConversionOff[reactor.Config] = SMALL
    """The agent's config."""


def refusal(capfd, *arguments, form=Form):
    """tyro's message about wrong arguments, without its frame, in one line."""
    with pytest.raises(SystemExit) as stop:
        parse(form, arguments, prog="program")
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
    words += ["--plain", "--no-save", "--agent.recurrent", "False"]
    changed = {"sizes": (5,), "count": -3, "plain": True, "save": False}
    changed["agent"] = reactor.Config.small(recurrent=False)
    assert parse(default, words, prog="program") == dataclasses.replace(default, **changed)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("", "Missing from program: --name STR Who. (required)"),
        ("--name x --foo 3", "Unrecognized options: --foo"),
        ("--name x --no-plain", "Unrecognized options: --no-plain"),
        ("--name x --count 1e-3", "parsing --count: no type matching {None} INT could be ins"),
        ("--name x --part.rate fast", "Error parsing --part.rate: could not convert string to fl"),
        ("--name x --sizes 1 a", "parsing --sizes: Could not find valid parse for arguments: ['1'"),
        ("--name x --part.rate -1", "Part.rate must be >= 0, got -1.0."),
        ("--agent.lr 1", "--agent.lr is unknown (did you mean --agent.learning-rate?)"),
        ("--nam x", "retrax: --nam is unknown (did you mean --name?)"),
        ("--name x --agent.discout 1", "Perhaps you meant: --agent.discount FLOAT"),
        ("--name x --agent.num-atoms 2.5", "parsing --agent.num-atoms: invalid literal for int()"),
        ("--name x --agent.recurrent no", "invalid choice 'no' for argument '--agent.recurrent'"),
        ("--name x --agent.recurrent --plain", "Missing value for argument '--agent.recurrent'"),
        ("--name x --agent.replay.selector x", "('uniform', 'proportional', 'contextual')"),
        ("--name x --agent.convolutions 16 3", "parsing --agent.convolutions: no type matching"),
        ("--name x --agent.discount 2", "Config.discount must be a number >= 0.0 and <= 1.0, got"),
        ("--name x --agent.replay.min-rows 0", "ReplayConfig.min_rows must be an integer >= 1"),
    ],
)
def test_wrong_arguments_are_named(capfd, arguments, message):
    assert message in refusal(capfd, *arguments.split())


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


def words(config, prefix):
    """Every field of a config with its value, as a command line."""
    for field in dataclasses.fields(config):
        value, flag = getattr(config, field.name), f"--{prefix}.{field.name.replace('_', '-')}"
        if dataclasses.is_dataclass(value):
            yield from words(value, flag[2:])
        else:
            yield from [flag, *str(value).replace("(", " ").replace(")", " ").split()]


def run_of(config, given):
    """The agent's config of a command line."""
    default: Any = with_types(Form(name="x"), {"agent": tyro.conf.FlagConversionOff[type(config)]})
    default = dataclasses.replace(default, agent=config)
    return parse(default, given, prog="p").agent


@pytest.mark.parametrize("agent", [acer, agent57, d4pg, reactor])
def test_every_option_of_every_agent_takes_its_default(agent):
    config = agent.Config.small()
    given = [word.rstrip(",") for word in words(config, "agent")]
    assert len(given) > 79
    assert run_of(config, given) == config


@pytest.mark.parametrize(
    ("config", "field", "given", "value"),
    [
        (d4pg.Config.small(), "max_action_gradient_norm", "None", None),
        (d4pg.Config.small(), "max_action_gradient_norm", "2", 2.0),
        (SMALL, "convolutions", "None", None),
        (SMALL, "convolutions", "16 3 1", ((16, 3, 1),)),
        (SMALL, "convolutions", "8 4 2 16 3 1", ((8, 4, 2), (16, 3, 1))),
    ],
)
def test_none_and_tuples_are_values(config, field, given, value):
    option = f"--agent.{field.replace('_', '-')}"
    assert getattr(run_of(config, [option, *given.split()]), field) == value


def test_help_has_the_docs_and_the_bounds(capsys):
    bare = [("bare", Annotated[tuple[int, ...], Sizes(1)], (1,))]
    form = dataclasses.make_dataclass("Made", bare, bases=(Form,), frozen=True, kw_only=True)
    with pytest.raises(SystemExit) as stop:
        parse(form, ["--help"], prog="program", description="What it does.")
    assert stop.value.code == 0
    text = in_one_line(capsys.readouterr().out)
    for words in (
        "usage: program",
        "What it does.",
        "--part.rate FLOAT How fast. Must be >= 0.0.",
        "--agent.retrace-lambda FLOAT lambda of Retrace. Paper: 1.0. Must be >= 0.0 and <= 1.0.",
        "Paper: 0 (3.5). Must be >= 0.0 and < 1.0.",
        "image size (ours). Paper: appendix. Must be a tuple of tuples of 3 integers >= 1.",
        "Sequences in one update. Must be >= 1.",
        "Must be a tuple of integers >= 1, at least 1 of them.",
    ):
        assert words in text
    assert "Must be ." not in text


def test_what_is_not_known_is_returned():
    default = Form(name="", count=3)
    known = ["--kind", "b", "--help", "--other", "1", "2", "--sizes", "5", "--others=3"]
    found, unknown = parse_known(default, known, prog="p")
    assert found == dataclasses.replace(default, kind="b", sizes=(5,))
    assert unknown == ["--help", "--other", "1", "2", "--others=3"]


def test_hidden_fields_are_no_options_and_keep_their_values(capfd):
    default = with_types(
        Form(name="y", kind="b", part=Part(rate=7.0)), {"kind": Hidden[str], "part": Hidden[Part]}
    )
    given = parse(default, ["--count", "2"], prog="p")
    assert given == dataclasses.replace(default, count=2)
    assert (given.kind, given.part.rate) == ("b", 7.0)
    for option in ("--kind", "--part.rate"):
        message = refusal(capfd, option, "1", form=default)
        assert f"Unrecognized options: {option}" in message


def test_a_functions_signature_is_a_commands_interface(capfd):
    """The first parameter is positional."""

    def look(
        runs: Sequence[Path | str],
        output: Path | str | None = None,
        *,
        snapshot: int | str = "newest",
        starts: Sequence[str] = ("noop",),
        episodes: Annotated[int, Range(1)] = 3,
    ):
        """Looks.

        Args:
          runs: where.
          output: what to write.
          snapshot: which one.
          starts: how.
          episodes: how many.
        """

    given = parse_call(look, ["a", "b", "--snapshot", "best"], prog="look", base=Part)
    assert list(given.pop("runs")) == [Path("a"), Path("b")]
    expected = {"output": None, "snapshot": "best", "starts": ("noop",), "episodes": 3, "rate": 0.5}
    assert given == expected
    given = parse_call(look, ["a", "--output", "b", "--snapshot", "7", "--starts", "c"], prog="x")
    assert (given["output"], given["snapshot"], list(given["starts"])) == (Path("b"), 7, ["c"])
    with pytest.raises(ValueError, match=r"^--episodes must be an integer >= 1, got 0\.$"):
        parse_call(look, ["--episodes", "0"], prog="look")
    with pytest.raises(SystemExit):
        parse_call(look, ["--help"], prog="look")
    assert "RUN... Where." in in_one_line(capfd.readouterr().out)


def test_words_are_read_as_what_they_were_made_from():
    default, options = Form(name=""), Form(name="x", count=3, plain=True)
    words = words_of(options, default)
    assert words == ["--name", "x", "--count", "3", "--plain"]
    assert parse(default, words, prog="p") == options


def test_a_part_of_a_whole():
    whole = dataclasses.make_dataclass("Whole", [("name", str, "")], bases=(Part,), frozen=True)
    assert part(whole(rate=2.0), Part) == Part(rate=2.0)
    assert part(whole(rate=2.0), Part, rate=3.0) == Part(rate=3.0)
