"""A whole program of processes, on catch: it learns, is looked at, interrupted, and resumed."""

import csv
import importlib.util
import pathlib
import random
import re
import socket
import subprocess
import sys
import time

import psutil
import pytest

pytest.importorskip("launchpad", reason="needs the distributed tier (Python 3.10, Linux)")

from retrax.experiments.config import RunConfig, preset_config
from retrax.launchpad_programs import network
from retrax.launchpad_programs.config import ProgramConfig
from retrax.launchpad_programs.lifecycle import Threads
from retrax.launchpad_programs.program import environments, make_program

pytestmark = pytest.mark.distributed

ROOT = pathlib.Path(__file__).parents[2]


def load(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


life_cycle = load(ROOT / "benchmarks" / "life_cycle.py")


def make_config(directory, num_actors=3, **options):
    run = RunConfig(
        agent="reactor",
        environment="catch",
        preset="small",
        steps=1000,
        seed=0,
        num_envs=num_actors,
        snapshot_every=500,
        log_every=100,
        agent_config=preset_config("reactor", "small"),
    )
    return ProgramConfig(run=run, directory=directory, **options)


def read_rows(directory):
    with open(directory / "metrics.csv", newline="") as file:
        return list(csv.DictReader(file))


def test_make_program_only_wires(tmp_path):
    program = make_program(make_config(tmp_path), Threads())
    sizes = {label: len(nodes) for label, nodes in program.groups.items()}
    assert sizes == {"replay": 1, "counter": 1, "learner": 1, "actor": 3, "evaluator": 1}
    assert not list(tmp_path.iterdir())


def test_only_the_learner_may_take_the_accelerator(tmp_path):
    variables = environments(make_config(tmp_path))
    assert "JAX_PLATFORMS" not in variables["learner"]
    for label in ("replay", "counter", "actor", "evaluator"):
        assert variables[label]["JAX_PLATFORMS"] == "cpu"
        assert variables[label]["CUDA_VISIBLE_DEVICES"] == ""
        assert variables[label]["NPROC"] == "1"


def test_nodes_have_their_own_episodes(tmp_path):
    first, resumed = (make_config(tmp_path, resumed_at=at) for at in (None, 500))
    seeds = [config.seed("actor", i) for config in (first, resumed) for i in range(3)]
    seeds += [first.seed("evaluator"), resumed.seed("evaluator")]
    assert len(set(seeds)) == len(seeds)


@pytest.mark.timeout(300)
def test_a_program_is_interrupted_and_resumed(tmp_path):
    directory = tmp_path / "run"
    small = ["--agent.replay.min-rows", 200, "--agent.replay.batch-size", 4]
    program = life_cycle.Program(
        directory,
        *["--environment", "catch", "--num-actors", 2, "--steps", 10**6],
        *["--run-directory", directory, "--log-every", 100, *small],
    )
    try:
        program.wait_for("learning")
        nodes = program.nodes()
        labels = sorted(name.partition("/")[0] for name in nodes)
        assert labels == ["actor", "actor", "counter", "evaluator", "learner", "replay"]
        check_network(program, nodes)
        assert nodes["actor/1"].nice() - nodes["learner/0"].nice() == 10
    finally:
        life_cycle.interrupt(program, None)
        output, _ = program.process.communicate(timeout=60)
    assert program.process.returncode == 0, output
    steps = int(re.search(r"Stopped by you. Snapshot at (\d+) steps.", output)[1])

    options = ["--resume", directory, "--steps", steps + 500]
    resumed = life_cycle.Program(directory, *options)
    output, _ = resumed.process.communicate(timeout=120)
    assert resumed.process.returncode == 0, output
    rows = read_rows(directory)
    for name in ("steps", "episodes", "updates"):
        counts = [int(row[name]) for row in rows]
        assert counts == sorted(counts)
    assert int(rows[-1]["steps"]) == steps + 500
    assert int(rows[-1]["updates"]) > 0
    assert rows[-1]["evaluator_return"] != ""


def check_network(program, nodes):
    """Reverb and Courier listen, but nobody outside of the program sees it."""
    listening = network.listening_ports(nodes["replay/0"].pid)
    assert len(listening) >= 3
    if "no private network namespace" in (program.directory / "log.txt").read_text():
        return
    assert not listening & network.listening_ports()
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("localhost", min(listening)), timeout=5)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("selector", ["contextual", "proportional"])
def test_catch_is_learned(tmp_path, selector):
    directory = tmp_path / "run"
    options = ["--environment", "catch", "--num-actors", 2, "--run-directory", directory]
    program = life_cycle.Program(directory, *options, "--agent.replay.selector", selector)
    output, _ = program.process.communicate(timeout=900)
    assert program.process.returncode == 0, output
    assert float(read_rows(directory)[-1]["evaluator_return"]) >= 0.95


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_killed_at_random_moments_and_resumed_catch_is_learned_all_the_same(tmp_path):
    directory = tmp_path / "run"
    new = ["--environment", "catch", "--num-actors", 2, "--steps", 30_000]
    new += ["--run-directory", directory, "--snapshot-every", 1000]
    rng = random.Random(0)
    for number in range(6):
        options = new if number == 0 else ["--resume", directory]
        program = life_cycle.Program(directory, *options)
        if number < 5:
            program.wait_for("learning")
            time.sleep(rng.uniform(1, 10))
            nodes = program.nodes()
            name = rng.choice([*sorted(nodes), "main"])
            (program.process if name == "main" else nodes[name]).kill()
        program.process.communicate(timeout=600)
        psutil.wait_procs(nodes.values(), timeout=60)
    assert program.process.returncode == 0
    rows = read_rows(directory)
    assert [int(r["steps"]) for r in rows] == sorted(int(r["steps"]) for r in rows)
    assert float(rows[-1]["evaluator_return"]) >= 0.95


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    ("arguments", "printed"),
    [
        (
            "life_cycle.py --interrupts 1 --terminations 0 --nodes 1 --mains 1",
            ["| SIGINT | 1 | 0 x 1 |", "| kill -9 of a node | 1 | 1 x 1 |", "| kill -9 of main |"],
        ),
        (
            "distributed.py --environment catch --steps 3000 --log-every 100",
            ["program / one process", "time spent waiting", "parameter age", "kB/s"],
        ),
    ],
)
def test_benchmark_of_programs_runs(arguments, printed):
    name, *rest = arguments.split()
    command = [sys.executable, ROOT / "benchmarks" / name, *rest]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    for part in printed:
        assert part in output
