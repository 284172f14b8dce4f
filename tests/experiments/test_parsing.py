"""Command lines into dataclasses, and wrong ones into sentences."""

import dataclasses
from pathlib import Path
from typing import Literal

import pytest

from retrax.experiments.parsing import parse, scan, tell, wants_help


@dataclasses.dataclass(frozen=True, kw_only=True)
class Part:
    """A part."""

    rate: float = 0.5
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


def refusal(*arguments):
    with pytest.raises(ValueError, match=r".*\.$") as error:
        parse(Form, arguments, prog="program")
    return str(error.value)


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
    ("arguments", "sentence"),
    [
        ([], "program needs --name STR: Who (see program --help)."),
        (["--name"], "--name needs a value (see program --help)."),
        (["--name", "x", "--foo", "3"], "Unknown option --foo (see program --help)."),
        (["--name", "x", "--foo=3"], "Unknown option --foo=3 (see program --help)."),
        (["--name", "x", "--cuont", "3"], "Unknown option --cuont (did you mean --count?)."),
        (
            ["--name", "x", "--part.rat", "3"],
            "Unknown option --part.rat (did you mean --part.rate?).",
        ),
        (["--name", "x", "y"], "Unknown argument y (see program --help)."),
        (
            ["--name", "x", "--count", "1e3"],
            "--count must be an integer, got '1e3' (see program --help).",
        ),
        (
            ["--name", "x", "--part.rate", "fast"],
            "--part.rate must be a number, got 'fast' (see program --help).",
        ),
        (["--name", "x", "--sizes", "a"], "--sizes cannot be 'a' (see program --help)."),
        (
            ["--name", "x", "--kind", "c"],
            "--kind must be one of ('a', 'b'), got 'c' (see program --help).",
        ),
        (
            ["--name", "x", "--part.rate", "-1"],
            "Part.rate must be >= 0, got -1.0 (see program --help).",
        ),
    ],
)
def test_refusals_are_one_sentence(arguments, sentence):
    assert refusal(*arguments) == sentence


def test_refusals_print_nothing(capfd):
    refusal("--count", "x")
    assert capfd.readouterr() == ("", "")


def test_frames_in_utf8_read_the_same(monkeypatch, capfd):
    class Utf8:
        encoding = "utf-8"

        def write(self, text):
            return len(text)

        def flush(self):
            pass

        def isatty(self):
            return False

    with monkeypatch.context() as patch:
        patch.setattr("sys.stdout", Utf8())
        sentence = refusal("--name", "x", "--cuont", "3")
    assert sentence == "Unknown option --cuont (did you mean --count?)."


def test_help_has_the_docs(capsys):
    with pytest.raises(SystemExit) as stop:
        parse(Form, ["--help"], prog="program", description="What it does.")
    assert stop.value.code == 0
    text = capsys.readouterr().out
    for word in ("usage: program", "What it does.", "--part.rate", "How fast.", "0.5"):
        assert word in text


@pytest.mark.parametrize(
    ("arguments", "value"),
    [
        (["--name", "x"], "x"),
        (["--name=x"], "x"),
        (["--other", "y", "--name", "x"], "x"),
        (["--name"], None),
        (["--names", "x"], None),
        ([], None),
    ],
)
def test_scan(arguments, value):
    assert scan(arguments, "--name") == value


def test_wants_help():
    assert wants_help(["a", "--help"])
    assert wants_help(["-h"])
    assert not wants_help(["help"])


def test_tell_leaves_stdout_to_results(capsys):
    tell("something")
    assert capsys.readouterr() == ("", "something\n")
