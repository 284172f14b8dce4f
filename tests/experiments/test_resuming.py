"""A resumed run is the run that was never stopped, bit for bit."""

import csv
import importlib.util
import os
import pathlib
import shutil
import signal
import sys

import jax
import numpy as np
import orbax.checkpoint as ocp
import pytest

from retrax._checksums import write_manifest
from retrax.experiments.commands.main import main
from retrax.experiments.evaluations import PeriodicEvaluation
from retrax.experiments.loop import Loop
from retrax.runtime.metrics_writer import WALL_CLOCK_COLUMNS
from retrax.runtime.run_directory import read_config

# Cheap to compile, with random numbers in its actors and its learner, and with priorities. What it
# learns depends on all that its actors saw, and on their parameters.
AGENT = """
import dataclasses
import jax
import jax.numpy as jnp
from retrax.agents import Agent, Decision, Update
from retrax.agents.entry import AgentEntry
from retrax.datatypes import ReplayConfig, SequenceSpec


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config:
    replay: ReplayConfig = ReplayConfig(
        capacity=80, min_rows=20, batch_size=2, acting_steps_per_update=3.0,
        selector="proportional",
    )


def make_agent(spec, config):
    def act(params, state, timestep):
        key, action_key = jax.random.split(state)
        noise = jax.random.normal(action_key, (spec.actions.num_values,))
        action = jnp.argmax(noise + params["scores"]).astype(jnp.int32)
        return Decision(action, {"score": params["scores"][0]}, key)

    def gradients(learner, sample):
        rows = sample.rows
        actions = jax.nn.one_hot(rows.action[:, :-1], spec.actions.num_values)
        weights = jnp.linspace(-1.0, 1.0, rows.observation.shape[-1])
        seen = rows.observation[:, :-1] @ weights + rows.extras["score"][:, :-1]
        gradient = jnp.mean(actions * (rows.reward[:, 1:] - seen)[..., None], axis=(0, 1))
        noise = jax.random.normal(learner["key"], gradient.shape)
        update = Update(jnp.abs(rows.reward).sum(axis=1) + 0.1, {"score": learner["scores"][0]})
        return gradient + 0.1 * noise, update

    def apply(learner, gradients):
        key = jax.random.split(learner["key"])[0]
        return {"key": key, "scores": learner["scores"] + 0.01 * gradients}

    return Agent(
        init=lambda key: {"key": key, "scores": jnp.zeros(spec.actions.num_values)},
        acting_params=lambda learner: {"scores": learner["scores"]},
        begin=lambda key, actor_id, num_actors: key,
        explore=act,
        exploit=act,
        gradients=gradients,
        apply=apply,
        sequence=SequenceSpec(
            length=4,
            crosses_episodes=False,
            extras={"score": jax.ShapeDtypeStruct((), jnp.float32)},
        ),
    )


NOISY = AgentEntry(
    name="noisy", make_agent=make_agent, Config=Config, presets={"default": Config},
    default_steps=lambda environment, preset: 240,
)
"""
FLAGS = ["--steps", "240", "--snapshot-every", "80", "--log-every", "40"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Where the agent can be imported."""
    folder = tmp_path_factory.mktemp("agents")
    (folder / "noisy_agent.py").write_text(AGENT)
    return folder


@pytest.fixture(scope="module")
def whole(folder, tmp_path_factory):
    """A run of the cheap agent on catch that was never stopped; tests must not change it."""
    directory = tmp_path_factory.mktemp("whole") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        words = ["noisy_agent:NOISY", "--environment", "catch", *FLAGS, "--num-envs", "4"]
        assert main(["train", *words, "--run-directory", str(directory)]) == 0
    return directory


@pytest.fixture
def train(folder, tmp_path, monkeypatch, retrax):
    """Runs `retrax train` of the cheap agent, by default on catch, into a folder of a name."""
    monkeypatch.chdir(folder)

    def call(name, *flags, environment="catch", command="train"):
        words = ["noisy_agent:NOISY", "--environment", environment, *FLAGS, *flags]
        if command == "train":
            words += ["--num-envs", "4"]
        status, _, err = retrax(command, *words, "--run-directory", tmp_path / name)
        assert status == 0, err
        return tmp_path / name

    return call


@pytest.fixture
def resume(retrax):
    def call(directory, steps=240):
        status, _, err = retrax("train", "--resume", directory, "--steps", steps)
        assert status == 0, err
        return directory

    return call


def plain(x):
    """NumPy has no PRNG keys."""
    return jax.random.key_data(x) if jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key) else x


def rows(directory):
    """metrics.csv without the columns that tell the time."""
    with (directory / "metrics.csv").open() as file:
        return [
            {name: cell for name, cell in row.items() if name not in WALL_CLOCK_COLUMNS}
            for row in csv.DictReader(file)
        ]


def newest(directory):
    """Everything in the newest snapshot, by path: bytes of arrays."""
    steps = max(int(path.name) for path in (directory / "snapshots").iterdir())
    folder, found = directory / "snapshots" / str(steps), {}
    for part in ("learner", "replay", "actors", "unfinished"):
        tree = ocp.StandardCheckpointer().restore(folder / part)
        leaves = jax.tree_util.tree_flatten_with_path(jax.tree.map(plain, tree))[0]
        found |= {part + jax.tree_util.keystr(path): np.asarray(x).tobytes() for path, x in leaves}
    return steps, found


def check_equal(one, other):
    assert rows(one) == rows(other)
    steps, arrays = newest(one)
    other_steps, other_arrays = newest(other)
    assert (steps, arrays.keys()) == (other_steps, other_arrays.keys())
    assert [name for name in arrays if arrays[name] != other_arrays[name]] == []


def interrupt(monkeypatch, at):
    """Ctrl-C once the loop has come to `at` steps."""
    advance = Loop.advance

    def interrupted(self):
        advance(self)
        if self.counters.steps == at:
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(Loop, "advance", interrupted)


def test_parts_are_one_run(whole, train, resume):
    """They end between two rows of metrics.csv and at one."""
    parts = train("parts", "--steps", "100")
    assert rows(parts)[-1]["steps"] == "100"
    resume(resume(parts, 120))
    check_equal(parts, whole)
    log = (parts / "log.txt").read_text()
    assert "Resumed at 100 steps.\n" in log
    assert "new episodes" not in log


def test_a_stopped_run_is_one_run(whole, train, resume, monkeypatch):
    with monkeypatch.context() as patch:
        interrupt(patch, at=120)
        parts = train("parts")
    assert newest(parts)[0] == 120
    check_equal(resume(parts), whole)


def test_a_run_of_an_agent_of_ours_that_lost_its_newest_snapshot_is_one_run(run, finished, resume):
    shutil.rmtree(run / "snapshots" / "240")
    check_equal(resume(run), finished)


def test_evaluations_and_their_interruption(train, resume, monkeypatch):
    """The evaluation at 120 steps is interrupted; those at the ends of the parts are extra."""
    flags = ["--evaluate-every", "60", "--evaluation-episodes", "2"]
    one, parts = train("one", *flags), train("parts", *flags, "--steps", "80")
    assert rows(parts)[-1]["evaluation_return"]
    run = PeriodicEvaluation.run

    def interrupted(self, steps, *arguments):
        if steps == 120:
            os.kill(os.getpid(), signal.SIGINT)
        return run(self, steps, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(PeriodicEvaluation, "run", interrupted)
        resume(parts)
    assert newest(parts)[0] == 120
    check_equal(resume(parts), one)


def test_actors_in_one_thread_are_one_run(train, resume):
    """Their order and the age of their parameters continue too."""
    flags = ["--launch", "sync", "--environments-per-actor", "2", "--actor-update-period", "7"]
    one, parts = (
        train(name, *flags, "--steps", steps, environment="CartPole-v1", command="launch")
        for name, steps in (("one", 240), ("parts", 100))
    )
    check_equal(resume(parts), one)


def resumed_line(directory):
    (line,) = [x for x in (directory / "log.txt").read_text().splitlines() if "Resumed at" in x]
    return line.partition("Resumed at ")[2]


def test_a_snapshot_without_environments_is_resumed_with_new_episodes(whole, resume, tmp_path):
    run = shutil.copytree(whole, tmp_path / "run")
    shutil.rmtree(run / "snapshots" / "240" / "unfinished")
    write_manifest(run / "snapshots" / "240")
    assert resumed_line(resume(run, 320)) == (
        "240 steps. The environments begin new episodes: the snapshot has no state of them."
    )
    assert [int(row["steps"]) for row in rows(run)] == [*range(40, 321, 40)]


MODULE = """
import gymnasium, numpy as np

class Walk(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-9, 9, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self):
        self.place, self.hidden = 0, SECRET

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.place += 1
        return np.full(1, self.place, np.float32), 1.0, self.place == 5, False, {}
"""


@pytest.mark.parametrize(
    ("secret", "later", "reason"),
    [
        ("object()", "object()", "hidden is a builtins.object"),
        ("3", "Walk", "they cannot continue (constants {'hidden': 'hiding.Walk'} instead of {})"),
    ],
)
def test_environments_that_cannot_continue_begin_new_episodes(
    train, resume, folder, monkeypatch, secret, later, reason
):
    def write(value):
        (folder / "hiding.py").write_text(MODULE.replace("SECRET", value))
        monkeypatch.delitem(sys.modules, "hiding", raising=False)
        importlib.invalidate_caches()
        shutil.rmtree(folder / "__pycache__", ignore_errors=True)

    write(secret)
    run = train("run", "--steps", "100", environment="hiding:Walk")
    write(later)
    new = f"The environments begin new episodes: {reason}."
    assert resumed_line(resume(run, 200)) == f"100 steps. {new}"
    assert [row["steps"] for row in rows(run)] == ["40", "80", "120", "160", "200"]


@pytest.fixture
def exact_resume(folder, monkeypatch):
    """benchmarks/exact_resume.py, whose `main` takes arguments."""
    monkeypatch.chdir(folder)
    path = pathlib.Path(__file__).parents[2] / "benchmarks" / "exact_resume.py"
    spec = importlib.util.spec_from_file_location("exact_resume", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    main = module.main

    def with_arguments(*words):
        monkeypatch.setattr(
            sys, "argv", ["exact_resume.py", *words, "--agents", "noisy_agent:NOISY"]
        )
        return main()

    module.main = with_arguments
    return module


def test_the_table_of_equal_runs(exact_resume, capsys):
    assert exact_resume.main("resume", "--steps", "60", "--environments", "catch") == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "stopped at" in line]
    assert line.endswith("equal")


def test_the_table_shows_what_differs(exact_resume, whole, tmp_path, capsys):
    config, other = read_config(whole), shutil.copytree(whole, tmp_path / "other")
    assert not exact_resume.differs(config, whole, other, "copied")
    metrics = (other / "metrics.csv").read_text().splitlines()
    (other / "metrics.csv").write_text("\n".join(metrics[:-1]) + "\n")
    assert exact_resume.differs(config, whole, other, "cut")
    assert capsys.readouterr().out.splitlines()[-1].split()[2:5] == ["cut", "1", "of"]


@pytest.mark.slow
def test_a_run_that_is_killed_again_and_again_is_one_run(exact_resume):
    assert exact_resume.main("kills", "--environments", "catch", "CartPole-v1") == 0
