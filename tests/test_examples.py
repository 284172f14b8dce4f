"""Packages in examples/ are what somebody else would write: retrax does not know them."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import retrax

ROOT = Path(retrax.__file__).parent
EXAMPLES = ROOT / "examples"
MAX_LINES = 300
SOLVED = 475


def command(*words, timeout=600):
    """`retrax`, started from examples/; its standard output."""
    program = "import sys; from retrax.experiments.commands.main import main; sys.exit(main())"
    done = subprocess.run(
        [sys.executable, "-c", program, *map(str, words)],
        cwd=EXAMPLES,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_rainbow_is_short():
    sources = [path for path in (EXAMPLES / "rainbow").glob("*.py") if "test" not in path.name]
    assert len(sources) > 1
    assert sum(len(path.read_text().splitlines()) for path in sources) <= MAX_LINES


def test_nothing_in_the_package_knows_rainbow():
    others = ("tests", "examples", "docs", "build")
    folders = [path for path in ROOT.iterdir() if path.name not in others and path.name[0] != "."]
    sources = [path for folder in folders for path in [folder, *folder.rglob("*.py")]]
    sources = [path for path in sources if path.suffix == ".py"]
    assert len(sources) > 50
    assert not [path for path in sources if "import rainbow" in path.read_text(encoding="utf-8")]


def test_examples_import_retrax_as_others_do():
    texts = [path.read_text(encoding="utf-8") for path in EXAMPLES.rglob("*.py")]
    assert any("from retrax" in text for text in texts)
    assert not [text for text in texts if "from .." in text or "retrax._" in text]


def test_the_command_trains_and_evaluates_it_from_its_directory(tmp_path):
    run = tmp_path / "run"
    options = ["--steps", 400, "--agent.replay.min-rows", 100, "--agent.hidden-size", 8]
    command("train", "rainbow:AGENT", "--environment", "catch", "--run-directory", run, *options)
    assert json.loads(command("evaluate", run, "--episodes", 8, "--json"))["episodes"] == 8
    assert json.loads((run / "config.json").read_text())["agent"] == "rainbow:AGENT"


@pytest.mark.distributed
def test_it_trains_as_a_program_of_two_actors(tmp_path):
    pytest.importorskip("launchpad", reason="needs the distributed tier (Python 3.10, Linux)")
    run = tmp_path / "run"
    options = ["--steps", 400, "--agent.replay.min-rows", 100, "--agent.hidden-size", 8]
    start = ["launch", "rainbow:AGENT", "--environment", "catch", "--num-actors", 2, "--plain"]
    command(*start, "--run-directory", run, *options)
    assert json.loads(command("evaluate", run, "--episodes", 8, "--json"))["steps"] >= 400
    command("plot", run, "--output", tmp_path / "curves.png")
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_rainbow_solves_cart_pole_with_its_defaults(seed, tmp_path):
    run = tmp_path / "run"
    environment = ["--environment", "CartPole-v1", "--seed", seed]
    command("train", "rainbow:AGENT", *environment, "--run-directory", run)
    found = json.loads(command("evaluate", run, "--episodes", 20, "--json"))
    assert found["mean_return"] >= SOLVED
