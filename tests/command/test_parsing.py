"""Command lines into dataclasses, and messages about wrong ones."""

import dataclasses
import re
from pathlib import Path
from typing import Annotated, Any, ClassVar, Generic, Literal, TypeVar

import pytest
import tyro

from retrax.agents import acer, agent57, d4pg, reactor
from retrax.basics.validation import Range, Sizes
from retrax.command.parsing import parse, parse_known, part, tell, wants_help, words_of


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


def test_default_instance_gives_the_defaults():
    default = Form(name="y", count=3, part=Part(rate=7.0))
    assert parse(Form, ["--sizes", "5"], prog="program", default=default) == dataclasses.replace(
        default, sizes=(5,)
    )


def test_hyphens_and_underscores_are_alike():
    @dataclasses.dataclass(frozen=True)
    class Words:
        two_words: int = 0

    assert parse(Words, ["--two-words", "1"], prog="p") == Words(1)
    assert parse(Words, ["--two_words", "1"], prog="p") == Words(1)


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


def test_fields_out_of_bounds_are_named_as_options():
    form = dataclasses.make_dataclass("Made", [("two_words", Annotated[int, Range(1)], 1)])
    for parse_it in (parse, parse_known):
        with pytest.raises(ValueError, match=r"^--two-words must be an integer >= 1, got 0\.$"):
            parse_it(form, ["--two-words", "0"], prog="p")


def test_values_that_look_like_options():
    given = parse(Form, ["--name=--count", "--part.rate", "1e9", "--count", "-3"], prog="program")
    assert given == Form(name="--count", count=-3, part=Part(rate=1e9))


@pytest.mark.parametrize("value", ["-5", "-.5"])
def test_negative_numbers_are_values(value):
    form = dataclasses.make_dataclass("Numbers", [("number", float, 0.0)])
    assert parse(form, ["--number", value], prog="p").number == float(value)
    for infinite in ("-inf", "NaN"):
        with pytest.raises(
            ValueError, match=rf"^--number must be a number, got {infinite.lower()}"
        ):
            parse(form, ["--number", infinite], prog="p")


def test_none_is_a_value_of_optional_options():
    assert parse(Form, ["--name", "x", "--count", "None"], prog="p").count is None
    config = d4pg.Config.small(max_action_gradient_norm=1.0)
    given = run("--agent.max-action-gradient-norm", "None", config=config)
    assert given.agent.max_action_gradient_norm is None
    given = run("--agent.max-action-gradient-norm", "2", config=config)
    assert given.agent.max_action_gradient_norm == 2.0


def test_switches_of_a_run_and_bools_of_an_agent():
    assert run("--plain", "--no-save", "--agent.recurrent", "False") == Run(
        environment="x", plain=True, save=False, agent=reactor.Config.small(recurrent=False)
    )


def test_positional_arguments():
    assert run("a", "b", "--steps", "3").folders == (Path("a"), Path("b"))


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
        (
            ["--agent.replay.min-rows", "10", "--agent.replay.capacity", "5"],
            "ReplayConfig.min_rows must be an integer >= 1 and <= 5, got 10.",
        ),
    ],
)
def test_wrong_arguments_of_a_run_are_named(capfd, arguments, message):
    default: Any = Run(environment="x", agent=reactor.Config.small())
    assert message in refusal(capfd, *arguments, form=Run[reactor.Config], default=default)


def test_missing_positional_arguments_are_named(capfd):
    @dataclasses.dataclass(frozen=True)
    class Look:
        run: tyro.conf.Positional[Path]
        starts: tuple[str, ...] = ()

    assert "Missing from program: PATH" in refusal(capfd, form=Look)
    assert "Unrecognized options: b" in refusal(capfd, "a", "b", form=Look)
    assert parse(Look, ["r", "--starts", "a", "b"], prog="p") == Look(Path("r"), ("a", "b"))


def test_types_of_tyro_alone(capfd):
    @dataclasses.dataclass(frozen=True)
    class Maybe:
        part: Part | None = None
        pair: tuple[int, int] = (1, 2)

    assert parse(Maybe, ["part:part", "--part.rate", "3"], prog="p") == Maybe(Part(rate=3.0))
    assert "Missing value for argument '--pair'" in refusal(capfd, "--pair", "1", form=Maybe)


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


def test_options_of_nested_dataclasses_of_a_third_party():
    @dataclasses.dataclass(frozen=True)
    class Outer:
        part: Part = Part(rate=3.0)
        depth: Literal[1, 2] = 1

    assert run("--agent.depth", "2", config=Outer()).agent == Outer(depth=2)
    assert run("--agent.part.rate", "4", config=Outer()).agent == Outer(part=Part(rate=4.0))


def test_help_has_the_docs(capsys):
    with pytest.raises(SystemExit) as stop:
        parse(Form, ["--help"], prog="program", description="What it does.")
    assert stop.value.code == 0
    text = capsys.readouterr().out
    for word in ("usage: program", "What it does.", "--part.rate", "How fast.", "0.5"):
        assert word in text


def help_of(capsys, form, default=None):
    """The help in one line, since tyro breaks lines."""
    with pytest.raises(SystemExit) as stop:
        parse(form, ["--help"], prog="program", default=default)
    assert stop.value.code == 0
    return in_one_line(capsys.readouterr().out)


def test_help_has_the_bounds(capsys):
    assert "How fast. Must be >= 0.0. (default: 0.5)" in help_of(capsys, Form)
    text = help_of(capsys, Run[reactor.Config], Run(environment="x", agent=reactor.Config.small()))
    for bounds in (
        "--agent.retrace-lambda FLOAT lambda of Retrace. Paper: 1.0. Must be >= 0.0 and <= 1.0.",
        "Paper: 0 (3.5). Must be >= 0.0 and < 1.0.",
        "None: by their size (ours). Paper: appendix. Must be a tuple of integers >= 1.",
        "Sequences in one update. Must be >= 1.",
    ):
        assert bounds in text
    assert "Must be ." not in text


def test_bounds_without_a_doc_are_in_the_help(capsys):
    form = dataclasses.make_dataclass(
        "Made", [("sizes", Annotated[tuple[int, ...], Sizes(1)], (1,))]
    )
    assert "Must be a tuple of integers >= 1, at least 1 of them." in help_of(capsys, form)


def test_shell_completion_is_tyros(capsys):
    with pytest.raises(SystemExit) as stop:
        parse(Form, ["--tyro-print-completion", "bash"], prog="program")
    assert not stop.value.code
    assert "completion" in capsys.readouterr().out


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
    assert parse(Half, ["--count", "2"], prog="p", default=default) == dataclasses.replace(
        default, count=2
    )
    for option in ("--kind", "--part.rate"):
        message = refusal(capfd, option, "1", form=Half, default=default)
        assert f"Unrecognized options: {option}" in message


def test_words_are_read_as_what_they_were_made_from():
    default, options = Run(environment="", agent=None), Run(environment="x", steps=3, agent=None)
    options = dataclasses.replace(options, plain=True)
    words = words_of(options, default)
    assert words == ["--environment", "x", "--steps", "3", "--plain"]
    assert parse(Run[type(None)], words, prog="p", default=default) == options


def test_a_part_of_a_whole():
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Whole(Part):
        name: str = ""

    assert part(Whole(rate=2.0), Part) == Part(rate=2.0)
    assert part(Whole(rate=2.0), Part, rate=3.0) == Part(rate=3.0)


def test_wants_help():
    assert wants_help(["a", "--help"])
    assert wants_help(["-h"])
    assert not wants_help(["help"])


def test_tell_leaves_stdout_to_results(capsys):
    tell("something")
    assert capsys.readouterr() == ("", "something\n")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["None"], None),
        (["16", "3", "1"], ((16, 3, 1),)),
        (["8", "4", "2", "16", "3", "1"], ((8, 4, 2), (16, 3, 1))),
    ],
)
def test_convolutions_are_triples_or_none(words, expected):
    form = Run[reactor.Config]
    default = Run(environment="x", agent=reactor.Config.small())
    run = parse(form, ["--agent.convolutions", *words], prog="program", default=default)
    assert run.agent.convolutions == expected
