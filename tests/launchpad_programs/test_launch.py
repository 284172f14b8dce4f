"""`retrax launch`: wrong input is refused in one sentence, before any process starts."""

import json
import socket

import pytest

from retrax.experiments.command import main
from retrax.experiments.config import RunConfig, preset_config, write_config
from retrax.launchpad_programs import launch_command

needs_launchpad = pytest.mark.skipif(
    launch_command.missing() != [], reason="needs the distributed tier (Python 3.10, Linux)"
)


@pytest.fixture
def refused(monkeypatch, capsys):
    """Runs `retrax launch ...`, which must refuse, and returns what it says."""
    monkeypatch.setattr(launch_command.network, "isolate", lambda: "")

    def run(*arguments):
        assert main(["launch", *map(str, arguments)]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        return line.removeprefix("retrax: ")

    return run


def test_without_the_tier_it_says_what_is_needed(refused, monkeypatch):
    monkeypatch.setattr(launch_command, "missing", lambda: ["launchpad", "reverb"])
    sentence = refused("reactor", "--environment", "catch")
    assert sentence.startswith("launching needs Python 3.10 and the distributed tier: ")
    assert "not installed: launchpad, reverb" in sentence


@pytest.mark.distributed
@needs_launchpad
@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], "retrax launch needs an agent first, one of acer, reactor"),
        (["react", "--environment", "catch"], "did you mean reactor?"),
        (["reactor"], "--environment"),
        (["reactor", "--environment", "catsh"], "the nearest known are catch"),
        (["reactor", "--environment", "catch", "--num-actors", 0], "must be at least 1, got 0"),
        (["reactor", "--environment", "catch", "--num-actors", 10**6], "of memory, but"),
        (["reactor", "--environment", "catch", "--num-actors", "two"], "two"),
        (["reactor", "--environment", "catch", "--steps", 0], "--steps must be at least 1, got 0"),
        (["reactor", "--environment", "catch", "--port", 80], "--port must be 1024"),
        (["reactor", "--environment", "catch", "--launch", "tmux"], "tmux"),
        (["reactor", "--environment", "catch", "--agent.discount", 2], "Config.discount must be"),
        (["reactor", "--environment", "catch", "--run-directory", "/proc/a/b"], "be written to"),
        (["--resume", "/nowhere"], "/nowhere is not a run directory"),
    ],
)
def test_wrong_arguments(refused, arguments, expected, tmp_path):
    if "--environment" in arguments and "--run-directory" not in arguments:
        arguments = [*arguments, "--run-directory", tmp_path / "run"]
    assert expected in refused(*arguments)
    assert not list(tmp_path.glob("run/logs"))


@pytest.mark.distributed
@needs_launchpad
def test_a_taken_port(refused, tmp_path):
    with socket.create_server(("", 0)) as server:
        port = server.getsockname()[1]
        run = ["--run-directory", tmp_path / "run"]
        sentence = refused("reactor", "--environment", "catch", "--port", port - 1, *run)
    assert f"{port} is taken" in sentence
    assert not (tmp_path / "run").exists()


@pytest.mark.distributed
@needs_launchpad
def test_run_directories_that_are_in_use(refused, tmp_path):
    launch = ["reactor", "--environment", "catch", "--run-directory"]
    (tmp_path / "file").write_text("")
    assert refused(*launch, tmp_path / "file").endswith("is a file.")
    assert "is not empty, and holds no run" in refused(*launch, tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({}))
    assert f"retrax launch --resume {tmp_path}" in refused(*launch, tmp_path)


@pytest.mark.distributed
@needs_launchpad
def test_a_run_of_one_process_is_not_resumed_as_a_program(refused, tmp_path):
    run = RunConfig(
        agent="reactor",
        environment="catch",
        preset="small",
        steps=100,
        seed=0,
        num_envs=2,
        snapshot_every=50,
        log_every=10,
        agent_config=preset_config("reactor", "small"),
    )
    write_config(tmp_path, run)
    sentence = refused("--resume", tmp_path)
    assert "was trained in one process" in sentence
    assert f"retrax train --resume {tmp_path}" in sentence


@needs_launchpad
def test_help_lists_the_agents_fields(capsys):
    with pytest.raises(SystemExit):
        main(["launch", "reactor", "--help"])
    shown = capsys.readouterr().out
    assert "--num-actors" in shown
    assert "--agent.replay.selector" in shown
