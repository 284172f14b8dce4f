"""A program in one thread: the same every time, and all its nodes by hand."""

import csv

import jax
import numpy as np
import pytest

pytest.importorskip("launchpad", reason="needs the distributed tier (Python 3.10, Linux)")

from retrax.experiments.command import main
from retrax.experiments.training import WALL_CLOCK_COLUMNS
from retrax.launchpad_programs.reports import read_status

pytestmark = pytest.mark.distributed

STEPS = 400
SMALL = ["--agent.replay.min-rows", "100", "--agent.replay.batch-size", "4"]
SMALL += ["--agent.sequence-length", "6", "--agent.memory-size", "8", "--agent.shared-size", "8"]
# These depend on the clock, and the idle share on it too.
CLOCK = {*WALL_CLOCK_COLUMNS, "learner_idle_share"}


def launch(directory, *options):
    command = ["launch", "reactor", "--environment", "catch", "--num-actors", "2", "--plain"]
    command += ["--launch", "sync", "--listen-everywhere", "--steps", str(STEPS), *SMALL]
    return main([*command, "--run-directory", str(directory), *options])


def read_rows(directory):
    with open(directory / "metrics.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    return [{k: v for k, v in row.items() if k not in CLOCK} for row in rows]


@pytest.fixture(scope="module", autouse=True)
def compiled_once(tmp_path_factory):
    """All runs compile the same functions."""
    settings = {
        "jax_compilation_cache_dir": str(tmp_path_factory.mktemp("cache")),
        "jax_persistent_cache_min_compile_time_secs": 0,
        "jax_persistent_cache_min_entry_size_bytes": -1,
    }
    before = {name: getattr(jax.config, name) for name in settings}
    for name, value in settings.items():
        jax.config.update(name, value)
    yield
    for name, value in before.items():
        jax.config.update(name, value)


@pytest.fixture(scope="module")
def run(tmp_path_factory, compiled_once):
    directory = tmp_path_factory.mktemp("first")
    assert launch(directory) == 0
    return directory


def test_it_ends_at_its_last_step(run):
    last = read_rows(run)[-1]
    assert (int(last["steps"]), read_status(run)["phase"]) == (STEPS, "finished")
    assert last["evaluator_return"] != ""
    assert (run / "snapshots" / str(STEPS)).is_dir()
    acted = STEPS - int(last["learning_since"])
    assert int(last["updates"]) == pytest.approx(acted / 5, abs=2)


def test_the_same_seed_gives_the_same_run_and_it_goes_on_where_it_was_saved(run, tmp_path):
    assert launch(tmp_path) == 0
    assert read_rows(tmp_path) == read_rows(run)
    resume = ["launch", "--resume", str(tmp_path), "--launch", "sync", "--plain"]
    assert main([*resume, "--listen-everywhere", "--steps", str(STEPS + 100)]) == 0
    rows = read_rows(tmp_path)
    for name in ("steps", "episodes", "updates"):
        counts = [int(row[name]) for row in rows]
        assert counts == sorted(counts)
    assert int(rows[-1]["steps"]) == STEPS + 100


def test_actors_of_two_environments_keep_their_states_for_a_resumed_run(tmp_path):
    assert launch(tmp_path, "--environments-per-actor", "2") == 0
    # Every actor may take one step too many.
    assert STEPS <= int(read_rows(tmp_path)[-1]["steps"]) <= STEPS + 2
    files = [tmp_path / "actors" / f"{index}.npz" for index in range(2)]
    before = [keys_of(path) for path in files]
    resume = ["launch", "--resume", str(tmp_path), "--launch", "sync", "--plain"]
    assert main([*resume, "--listen-everywhere", "--steps", str(STEPS + 100)]) == 0
    for path, keys in zip(files, before, strict=True):
        assert keys.shape == (2, 2)
        drawn = steps_until(keys[0], keys_of(path)[0])
        assert 20 <= drawn <= 35  # of the 100 steps, and first time steps: it did not begin anew


def keys_of(path):
    with np.load(path) as arrays:
        return arrays["arr_0"]


def steps_until(before, after, at_most=200):
    """How often an actor of Reactor has split its key."""
    key = jax.random.wrap_key_data(before)
    for count in range(at_most):
        if np.array_equal(jax.random.key_data(key), after):
            return count
        key, _ = jax.random.split(key)
    raise AssertionError("the second key does not follow from the first")


def test_a_program_is_not_resumed_in_one_process(run, capsys):
    assert main(["train", "--resume", str(run)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "program of many processes, whose actors keep their own states: go on with" in line
    assert line.endswith(f"retrax launch --resume {run}")


@pytest.mark.slow
def test_the_seed_and_the_selector_matter(run, tmp_path):
    options = {
        "seed": ["--seed", "1"],
        "proportional": ["--agent.replay.selector", "proportional"],
        "again": ["--agent.replay.selector", "proportional"],
    }
    rows = {"run": read_rows(run)}
    for name, more in options.items():
        assert launch(tmp_path / name, *more) == 0
        rows[name] = read_rows(tmp_path / name)
    assert rows["run"] != rows["seed"]
    assert rows["run"] != rows["proportional"]
    assert rows["proportional"] == rows["again"]


def test_d4pg_runs_as_a_program(tmp_path):
    """Continuous actions, a key in the learner's state, one sigma for each actor."""
    command = ["launch", "d4pg", "--environment", "Pendulum-v1", "--num-actors", "2", "--plain"]
    command += ["--launch", "sync", "--steps", "300", "--run-directory", str(tmp_path / "run")]
    command += ["--agent.replay.min-rows", "100", "--agent.replay.batch-size", "4"]
    command += ["--agent.policy-sizes", "4", "--agent.critic-sizes", "4", "4"]
    assert main(command) == 0
    last = read_rows(tmp_path / "run")[-1]
    assert int(last["steps"]) == 300
    assert int(last["updates"]) > 10
