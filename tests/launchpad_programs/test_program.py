"""A whole program of processes, on catch: it learns, is inspected, interrupted, and resumed."""

import csv
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

from benchmark_modules import load
from listening import listening_ports
from program_configs import make_config

from retrax.launchpad_programs.process import Threads
from retrax.launchpad_programs.program import make_program, process_env

pytestmark = pytest.mark.distributed

ROOT = pathlib.Path(__file__).parents[2]


life_cycle = load("life_cycle")


def read_csv(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def read_rows(directory):
    return read_csv(directory / "metrics.csv")


def test_make_program_only_wires(tmp_path):
    program = make_program(make_config(tmp_path, num_envs=6, num_actors=3), Threads())
    sizes = {label: len(nodes) for label, nodes in program.groups.items()}
    assert sizes == {"replay": 1, "counter": 1, "learner": 1, "actor": 3, "evaluator": 1}
    assert not list(tmp_path.iterdir())


def test_only_the_learner_may_take_the_accelerator(tmp_path):
    variables = process_env(make_config(tmp_path))
    assert "JAX_PLATFORMS" not in variables["learner"]
    for label in ("replay", "counter", "actor", "evaluator"):
        assert variables[label]["JAX_PLATFORMS"] == "cpu"
        assert variables[label]["CUDA_VISIBLE_DEVICES"] == ""
        assert variables[label]["NPROC"] == "1"


def test_a_compilation_cache_of_the_users_is_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", "/somewhere")
    cache = process_env(make_config(tmp_path))["actor"]["JAX_COMPILATION_CACHE_DIR"]
    assert cache == "/somewhere"
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR")
    cache = process_env(make_config(tmp_path))["actor"]["JAX_COMPILATION_CACHE_DIR"]
    assert cache == str(tmp_path / "compilation_cache")


@pytest.mark.timeout(600)
def test_a_program_is_interrupted_and_resumed(tmp_path):
    directory = tmp_path / "run"
    small = ["--agent.replay.min-rows", 200, "--agent.replay.batch-size", 4]
    program = life_cycle.Program(
        directory,
        *["--environment", "catch", "--num-actors", 2, "--steps", 10**6],
        *["--environments-per-actor", 1],  # else they may take a few steps more
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
    try:
        output, _ = resumed.process.communicate(timeout=240)
    finally:
        resumed.process.kill()
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
    listening = listening_ports(nodes["replay/0"].pid)
    assert len(listening) >= 3
    jobs = program.directory / "logs" / "jobs"
    assert jobs.stat().st_mode & 0o777 == 0o700
    assert all(p.stat().st_mode & 0o077 == 0 for p in jobs.rglob("*"))
    assert not listening & listening_ports()
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("localhost", min(listening)), timeout=5)


@pytest.mark.timeout(600)
def test_acmes_loggers_observers_and_loops_of_a_user(tmp_path):
    """The example of the README, as it stands there."""
    readme = (ROOT / "launchpad_programs" / "README.md").read_text()
    example = re.search(r"^```python\n(.*?)^```$", readme, re.DOTALL | re.MULTILINE)[1]
    command = re.search(r"^```bash\nretrax (launch .*?)\n```$", readme, re.MULTILINE)[1]
    (tmp_path / "my_acme.py").write_text(example)
    # So many that an actor which starts late still takes some of them.
    options = "--steps 2000 --plain --agent.replay.min-rows 200 --agent.replay.batch-size 4"
    main = "import sys; from retrax.experiments.commands.main import main; sys.exit(main())"
    launched = subprocess.run(
        [sys.executable, "-c", main, *command.split(), *options.split(), "--run-directory", "run"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert launched.returncode == 0, launched.stdout + launched.stderr
    assert int(read_rows(tmp_path / "run")[-1]["steps"]) == 2000
    steps = 0
    for index in range(2):
        episodes = read_csv(tmp_path / "acme_logs" / "logs" / f"actor_{index}" / "logs.csv")
        assert {episode["episode_length"] for episode in episodes} == {"9"}
        assert {int(episode["first_action"]) for episode in episodes} <= set(range(10))
        steps += sum(int(episode["episode_length"]) for episode in episodes)
    assert 2000 - 2 * 9 <= steps <= 2000
    losses = read_csv(tmp_path / "acme_logs" / "logs" / "learner_0" / "logs.csv")
    assert int(losses[-1]["updates"]) > 0
    assert '"acme": "my_acme:OPTIONS"' in (tmp_path / "run" / "program.json").read_text()


@pytest.mark.timeout(600)
def test_a_program_of_threads(tmp_path):
    """Every node in one process; any agent by the command without its name."""
    command = [sys.executable, "-m", "retrax.launchpad_programs", "d4pg", "--launch", "local_mt"]
    command += ["--environment", "Pendulum-v1", "--num-actors", 2, "--steps", 300, "--plain"]
    command += ["--agent.replay.min-rows", 100, "--agent.replay.batch-size", 4]
    command += ["--agent.policy-sizes", 4, "--agent.critic-sizes", 4, 4]
    command += ["--environments-per-actor", 2, "--run-directory", tmp_path / "run"]
    launched = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    assert launched.returncode == 0, launched.stdout + launched.stderr
    last = read_rows(tmp_path / "run")[-1]
    assert 300 <= int(last["steps"]) <= 302  # an actor may take one step too many
    assert int(last["updates"]) > 0
    assert (tmp_path / "run" / "snapshots" / last["steps"]).is_dir()


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
            "distributed.py reactor --steps 3000 --repeats 1",
            ["program / one process", "time spent waiting", "parameter age", "kB/s", "limit"],
        ),
    ],
)
def test_benchmark_of_programs_runs(arguments, printed):
    name, *rest = arguments.split()
    command = [sys.executable, ROOT / "benchmarks" / name, *rest]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    for part in printed:
        assert part in output
