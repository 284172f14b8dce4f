"""Programs, whole: they are inspected, interrupted and resumed, and one runs in threads."""

import dataclasses
import pathlib
import re
import shutil
import socket

import psutil
import pytest
from fresh_python import run_python

pytest.importorskip("launchpad", reason="needs the distributed tier (Python 3.10, Linux)")

import average_agent
from benchmark_modules import load
from listening import listening_ports
from program_configs import make_config, make_run, make_workers

import retrax
from retrax.evaluation.suites import read_rows
from retrax.launchpad_programs.engines.launchpad import make_program

pytestmark = [pytest.mark.distributed, pytest.mark.timeout(600)]

ROOT = pathlib.Path(__file__).parents[2]
TESTS = ROOT / "tests"

life_cycle = load("life_cycle")


@pytest.mark.parametrize("workers", [False, True])
def test_make_program_only_wires(tmp_path, workers):
    run = make_workers(num_envs=6) if workers else make_run(num_envs=6, num_actors=3)
    program = make_program(make_config(tmp_path, run=run), launcher=0)
    sizes = {label: len(nodes) for label, nodes in program.groups.items()}
    acting = {"replay": 1, "learner": 1, "actor": 3}
    if workers:
        acting = {"parameter_server": 1, "worker": 2}
    assert sizes == {"counter": 1, "evaluator": 1, **acting}
    assert not list(tmp_path.iterdir())


ACTORS = ["--num-actors", 2, "--agent.replay.selector", "contextual"]
WORKERS = ["--num-workers", 2, "--max-staleness", 50]
DECOUPLED = ["--decoupled", "--gradients-per-fetch", 2]
LABELS = {
    "actors": ["actor", "actor", "counter", "evaluator", "learner", "replay"],
    "workers": ["counter", "evaluator", "parameter_server", "worker", "worker"],
}


def Program(directory, *options):  # noqa: N802 - it makes one
    """A program of the agent that NumPy can follow, on catch."""
    return life_cycle.Program(directory, *options, agent="average_agent:ENTRY", folder=TESTS)


@pytest.mark.parametrize(
    ("acting", "options"), [("actors", ACTORS), ("workers", [*WORKERS, *DECOUPLED])]
)
def test_a_program_is_interrupted_and_resumed(acting, options, tmp_path, monkeypatch):
    directory, temporary = tmp_path / "run", tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")  # where nobody listens
    new = ["--environment", "catch", "--run-directory", directory, "--log-every", 100]
    new += ["--num-envs", 2]  # else they may take a few steps more
    program = Program(directory, *new, *options, "--steps", 10**7)
    try:
        program.wait_for("learning")
        nodes = program.nodes()
        assert sorted(name.partition("/")[0] for name in nodes) == LABELS[acting]
        for name, node in nodes.items():
            learns = name == "learner/0"
            assert (node.environ().get("JAX_PLATFORMS") == "cpu") != learns, name
        check_network(program, nodes["counter/0"].pid)
        if acting == "actors":
            assert nodes["actor/1"].nice() - nodes["learner/0"].nice() == 10
            assert not listening_ports(nodes["replay/0"].pid) & listening_ports()
    finally:
        life_cycle.interrupt(program, None)
        output = program.end()
    _, left = psutil.wait_procs(nodes.values(), timeout=15)
    assert not left
    assert not list(temporary.iterdir())
    steps = int(re.search(r"Stopped by you. Snapshot at (\d+) steps.", output)[1])
    # What actors and workers were granted, and may have taken and not reported.
    held = sum(granted for _, _, granted in program.status()["leases"].values())
    own = [int(path.stem) for path in directory.glob("workers/*/snapshots/*.npz")]
    assert len(own) == LABELS[acting].count("worker")
    if own:
        assert abs(sum(own) - steps) <= held

    # In threads: a process imports everything, once.
    resumed = ["--resume", directory, "--steps", steps + 500, "--engine", "threads"]
    Program(directory, *resumed).end()
    rows = read_rows(directory / "metrics.csv")
    for name in ("steps", "episodes", "updates"):
        counts = [int(row[name]) for row in rows]
        assert counts == sorted(counts)
    last = rows[-1]
    assert int(last["steps"]) == steps + 500
    assert last["evaluator_return"] != ""
    # One in three steps; some are on their way to an update, and some were not reported.
    assert (steps + 500 - 300) // 3 < int(last["updates"]) <= (steps + 500 + held) // 3
    if own:
        assert float(last["worker_waiting_share"]) <= 1.0
        assert last["gradient_staleness"] != ""


def check_network(program, pid):
    """Reverb and Courier listen, but nobody outside of the program sees it."""
    listening = listening_ports(pid)
    assert len(listening) >= 2
    jobs = program.directory / "logs" / "jobs"
    assert jobs.stat().st_mode & 0o777 == 0o700
    assert not listening & listening_ports()
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("localhost", min(listening)), timeout=5)


def readme_example():
    """Acme's loggers and observers of a user: the module, and the command."""
    readme = (ROOT / "launchpad_programs/README.md").read_text()
    return (
        re.search(r"^```python\n(.*?)^```$", readme, re.DOTALL | re.MULTILINE)[1],
        re.search(r"^```bash\nretrax (launch .*?)\n```$", readme, re.MULTILINE)[1],
    )


def check_acme_logs(folder, steps, first_actions):
    found = 0
    for index in range(2):
        episodes = read_rows(folder / "acme_logs" / "logs" / f"actor_{index}" / "logs.csv")
        assert {episode["episode_length"] for episode in episodes} == {"9"}
        assert {int(episode["first_action"]) for episode in episodes} <= first_actions
        found += sum(int(episode["episode_length"]) for episode in episodes)
    assert steps - 2 * 9 <= found <= steps
    losses = read_rows(folder / "acme_logs" / "logs" / "learner_0" / "logs.csv")
    assert int(losses[-1]["updates"]) > 0


def test_a_program_of_threads_from_python(tmp_path, monkeypatch):
    """With Acme's loops."""
    (tmp_path / "my_acme.py").write_text(readme_example()[0])
    shutil.copy(average_agent.__file__, tmp_path)
    monkeypatch.chdir(tmp_path)
    replay = average_agent.Config().replay
    run = make_run(
        agent="average_agent:ENTRY",
        agent_config=average_agent.Config(
            replay=dataclasses.replace(replay, selector="proportional")
        ),
        preset="default",
        actor_update_period=None,
        search_path=str(tmp_path),
    )
    options = retrax.EngineOptions(engine="threads", acme="my_acme:OPTIONS")
    summary = retrax.launch(run, tmp_path / "run", engine=options)
    assert (summary.finished, summary.failed, summary.steps) == (True, False, 1000)
    assert summary.updates > 0
    directory = summary.directory
    assert retrax.evaluate(directory, episodes=3).steps == 1000
    assert (directory / "snapshots" / "1000.npz").is_file()
    assert (directory / "replay" / "snapshots" / "1000.npz").is_file()
    assert not (directory / "reverb").exists()
    assert '"acme": "my_acme:OPTIONS"' in (directory / "program.json").read_text()
    check_acme_logs(tmp_path, 1000, set(range(20)))  # the two actors share an observer
    with pytest.raises(ValueError, match=f"{directory} holds this run already"):
        retrax.launch(run, directory)


@pytest.mark.documents
def test_the_example_of_the_readme(tmp_path):
    """As it stands there, but of few steps, and with a table that Reverb draws from."""
    example, command = readme_example()
    (tmp_path / "my_acme.py").write_text(example)
    # So many that an actor which starts late still takes some of them.
    options = "--steps 2000 --plain --agent.replay.min-rows 200 --agent.replay.batch-size 4"
    options += " --agent.replay.selector proportional"
    main = "import sys; from retrax.command.main import main; sys.exit(main())"
    words = [*command.split(), *options.split(), "--run-directory", "run"]
    run_python("-c", main, *words, cwd=tmp_path)
    assert int(read_rows(tmp_path / "run" / "metrics.csv")[-1]["steps"]) == 2000
    assert len(list((tmp_path / "run" / "reverb" / "2000").glob("*/DONE"))) == 1
    check_acme_logs(tmp_path, 2000, set(range(10)))


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_catch_is_learned(tmp_path):
    """With Reverb's tables; below, with a replay's node."""
    directory = tmp_path / "run"
    options = ["--environment", "catch", "--num-actors", 2, "--run-directory", directory]
    program = life_cycle.Program(directory, *options, "--agent.replay.selector", "proportional")
    program.end(900)
    assert float(read_rows(directory / "metrics.csv")[-1]["evaluator_return"]) >= 0.95


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    ("arguments", "printed"),
    [
        (
            "life_cycle.py --interrupts 1 --terminations 1 --nodes 1 --mains 1",
            [  # exit status; snapshots; no orphans
                r"SIGINT \| 1 \| 0 x 1 \| [\d.]+ \| 1 \| 0 \|",
                r"SIGTERM \| 1 \| 0 x 1 \| [\d.]+ \| 1 \| 0 \|",
                r"kill -9 of a node \| 1 \| 1 x 1 \| [\d.]+ \| \d \| 0 \|",
                r"kill -9 of main \| 1 \| -9 x 1 \| [\d.]+ \| 1 \| 0 \|",
            ],
        ),
        (
            "distributed.py reactor --steps 3000 --repeats 1",
            ["program / one process", "time spent waiting", "parameter age", "kB/s", "limit"],
        ),
    ],
)
def test_benchmark_of_programs_runs(arguments, printed):
    name, *rest = arguments.split()
    output = run_python(ROOT / "benchmarks" / name, *rest)
    for part in printed:
        assert re.search(part, output), part
