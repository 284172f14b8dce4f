"""Commands with the packages in examples/, started from there as somebody else would."""

import json

import pytest
from document_blocks import ROOT, run_command

OPTIONS = ["--steps", "400", "--agent.replay.min-rows", "100", "--agent.hidden-size", "8"]


@pytest.mark.distributed
def test_it_trains_as_a_program_of_two_actors(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(ROOT / "examples")
    run = str(tmp_path / "run")
    start = ["retrax", "launch", "rainbow:AGENT", "--environment", "catch", "--num-actors", "2"]
    run_command([*start, "--plain", "--run-directory", run, *OPTIONS])
    capfd.readouterr()
    run_command(["retrax", "evaluate", run, "--episodes", "8", "--json"])
    assert json.loads(capfd.readouterr().out)["steps"] >= 400
