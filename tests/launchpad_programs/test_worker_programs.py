"""Whole programs of workers around a parameter server: they end, are interrupted, and resumed."""

import csv
import os
import pathlib
import re
import subprocess
import sys

import pytest

pytest.importorskip("launchpad", reason="needs the distributed tier (Python 3.10, Linux)")

from benchmark_modules import load

pytestmark = [pytest.mark.distributed, pytest.mark.timeout(600)]

TESTS = pathlib.Path(__file__).parents[1]
OPTIONS = [
    "--environment",
    "catch",
    "--topology",
    "parameter_server",
    "--num-workers",
    "2",
    "--plain",
]

life_cycle = load("life_cycle")


class Program(life_cycle.Program):
    """A program of the agent that NumPy can follow."""

    def __init__(self, directory, *arguments):
        self.directory = directory
        main = "import sys; from retrax.experiments.commands.main import main; sys.exit(main())"
        self.process = subprocess.Popen(
            [sys.executable, "-c", main, "launch", *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": f"{TESTS}:{os.environ.get('PYTHONPATH', '')}"},
            cwd=TESTS,
        )

    def output(self, seconds):
        try:
            return self.process.communicate(timeout=seconds)[0]
        finally:
            self.process.kill()


def last_row(directory):
    with open(directory / "metrics.csv", newline="") as file:
        return list(csv.DictReader(file))[-1]


def test_a_program_of_workers_is_interrupted_and_resumed(tmp_path):
    run = ["average_agent:ENTRY", *OPTIONS, "--run-directory", tmp_path, "--log-every", 100]
    program = Program(tmp_path, *run, "--steps", 10**7, "--max-staleness", 50)
    try:
        program.wait_for("learning")
        nodes = program.nodes()
        assert sorted(name.partition("/")[0] for name in nodes) == [
            *("counter", "evaluator", "parameter_server", "worker", "worker")
        ]
        life_cycle.interrupt(program, None)
    finally:
        output = program.output(90)
    assert program.process.returncode == 0, output
    steps = int(re.search(r"Stopped by you. Snapshot at (\d+) steps.", output)[1])
    workers = [int(p.name) for p in tmp_path.glob("workers/*/snapshots/*") if p.name.isdigit()]
    assert len(workers) == 2
    assert abs(sum(workers) - steps) <= 100  # what they were granted and had not reported

    resumed = Program(tmp_path, "--resume", tmp_path, "--steps", steps + 600, "--plain")
    output = resumed.output(200)
    assert resumed.process.returncode == 0, output
    last = last_row(tmp_path)
    assert int(last["steps"]) == steps + 600
    updates = int(last["updates"])
    assert updates > (steps + 600 - 300) // 3  # a step of each worker is on its way to an update
    assert float(last["worker_waiting_share"]) <= 1.0
    assert last["gradient_staleness"] != ""
    assert last["evaluator_return"] != ""


@pytest.mark.parametrize("options", [[], ["--decoupled"]])
def test_a_program_of_workers_in_threads(options, tmp_path):
    run = ["average_agent:ENTRY", *OPTIONS, "--run-directory", tmp_path, "--launch", "local_mt"]
    program = Program(tmp_path, *run, "--steps", 400, "--gradients-per-fetch", 2, *options)
    output = program.output(200)
    assert program.process.returncode == 0, output
    last = last_row(tmp_path)
    assert int(last["steps"]) == 400
    assert 50 < int(last["updates"]) <= 400 // 3
    assert (tmp_path / "snapshots" / last["steps"]).is_dir()
