"""Evaluations during a run: what they measure, and that training does not depend on them."""

import contextlib
import json
import os
import shutil
import signal
import threading
from dataclasses import replace
from types import SimpleNamespace

import average_agent
import chex
import gymnasium
import jax
import jax.numpy as jnp
import noisy_agent
import numpy as np
import pytest
from node_fakes import acting_agent
from PIL import Image
from run_files import newest, rows, snapshots, write_untrained_run

from retrax.agents.base import Decision
from retrax.command.main import main
from retrax.command.trained import evaluate, load_agent
from retrax.environments import from_gymnasium_vector, make
from retrax.evaluation import Evaluation, Scores, evaluations, run_episodes
from retrax.evaluation.evaluations import PeriodicEvaluation, begin_states
from retrax.training.run_config import Purpose, RunConfig, derive_seed, next_multiple
from retrax.training.snapshots import BestParameters, read_state

EPISODES = 5


@pytest.fixture(scope="session")
def evaluated(tiny, tmp_path_factory):
    """The run of `finished`, with evaluations at 100, 200 and 240 steps."""
    directory = tmp_path_factory.mktemp("evaluated") / "run"
    options = ["--evaluate-every", "100", "--evaluation-episodes", str(EPISODES)]
    assert main([*tiny, *options, "--run-directory", str(directory)]) == 0
    return directory


@pytest.fixture(scope="module")
def arms(tmp_path_factory):
    """A run of an agent with a policy for each of its arms."""
    directory = tmp_path_factory.mktemp("arms") / "run"
    train = ["train", "noisy_agent:ARMS", "--environment", "catch", "--steps", "60"]
    assert main([*train, "--run-directory", str(directory)]) == 0
    return directory


def rows_of(directory):
    """Rows of metrics.csv: the evaluation's columns, and the others."""

    def part(row, told):
        return {name: row[name] for name in row if name.startswith("evaluation_") == told}

    return [[part(row, told) for row in rows(directory)] for told in (True, False)]


def expected(directory, which):
    """An evaluation during a run by hand, from what it left."""
    trained = load_agent(directory, which)
    config, entry = trained.config, trained.config.entry
    seed = derive_seed(config.seed, Purpose.PERIODIC_EVALUATION, trained.steps)
    environment = config.make_environment(seed=seed, num_envs=EPISODES)
    states = begin_states(trained.agent, jax.random.key(seed), EPISODES)
    if entry.warm_start is not None:
        states = jax.vmap(entry.warm_start, in_axes=(0, None))(states, trained.actors)
    with contextlib.closing(environment):
        results = run_episodes(
            trained.agent,
            trained.params,
            environment,
            key=jax.random.key(7),
            num_episodes=EPISODES,
            states=states,
            modes=entry.evaluation_modes,
        )
    found = {"evaluation_return": results.returns, "evaluation_length": results.lengths}
    for name, chosen in results.modes.items():
        found[f"evaluation_return_{name}"] = results.returns[chosen]
    return {name: np.float32(np.mean(x)) if len(x) else None for name, x in found.items()}


def numbers(row):
    return {name: np.float32(cell) if cell else None for name, cell in row.items()}


def test_rows_tell_the_newest_evaluation(evaluated):
    evaluations, others = rows_of(evaluated)
    steps = [int(row["steps"]) for row in others]
    told = [step for step, row in zip(steps, evaluations, strict=True) if row["evaluation_return"]]
    assert told == [120, 200, 240]
    names = ["return", "length", "return_warm", "return_lucky"]
    assert list(evaluations[0]) == [f"evaluation_{name}" for name in names]
    for row in evaluations:
        assert bool(row["evaluation_return_warm"]) == bool(row["evaluation_return"])
    assert evaluations[-1]["evaluation_length"] == "9.0"
    log = (evaluated / "log.txt").read_text()
    found = [float(row["evaluation_return"]) for row in evaluations if row["evaluation_return"]]
    for at, value in zip((100, 200, 240), found, strict=True):
        assert f"Evaluation at {at} steps: return {value:.3g} over 5 episodes" in log


def test_training_is_the_same_with_and_without_evaluations(finished, evaluated):
    assert all(part == {} for part in rows_of(finished)[0])
    assert rows_of(evaluated)[1] == rows_of(finished)[1]
    one, other = (newest(run)[1] for run in (finished, evaluated))
    kept = [name for name in one if name.startswith(("['learner']", "['actors']"))]
    assert len(kept) > 4
    assert [one[name] for name in kept] == [other[name] for name in kept]


@pytest.mark.parametrize("which", ["newest", "best"])
def test_an_evaluation_is_that_of_the_snapshot_of_its_moment(evaluated, which):
    evaluations, others = rows_of(evaluated)
    steps = load_agent(evaluated, which).steps
    row = next(i for i, other in enumerate(others) if int(other["steps"]) >= steps)
    assert numbers(evaluations[row]) == expected(evaluated, which)
    returns = [float(evaluation["evaluation_return"] or "nan") for evaluation in evaluations]
    assert which == "newest" or returns[row] == np.nanmax(returns)
    assert "actors" in read_state(evaluated / "best.npz")


def test_by_default_the_end_is_evaluated(tiny, finished, retrax, tmp_path):
    status, _, err = retrax(*tiny[:-2], "--run-directory", tmp_path / "run")
    evaluations, others = rows_of(tmp_path / "run")
    found = [row["evaluation_return"] for row in evaluations]
    assert (status, list(map(bool, found))) == (0, [*[False] * 5, True])
    assert others == rows_of(finished)[1]
    assert f" (exploring), {float(found[-1]):.3g} (greedy).\n" in err


def test_evaluations_by_default_take_a_tenth_of_the_steps_and_may_fail(monkeypatch, caplog):
    """3 time steps of 5 environments are 15: the next one comes after at least 150."""
    script, now = [], [0.0]

    def run(self, *arguments):
        for seconds in script.pop():
            now[0] += seconds
            self._before_step(None)
        return Scores(0.5, 0.0, 1.0, 5, 0, 9.0, {}, {})

    monkeypatch.setattr(Evaluation, "run", run)
    monkeypatch.setattr(evaluations, "time", SimpleNamespace(monotonic=lambda: now[0]))
    fields = {"steps": 1000, "log_every": 10, "snapshot_every": 10, "evaluation_episodes": 5}
    config = RunConfig(agent="reactor", environment="catch", **fields)
    evaluation, wrong = PeriodicEvaluation(config, None, start=0), (1 // x for x in [0])
    for steps, seconds, following in (
        (100, [9] * 3, 300),
        (300, [9] * 5, 600),
        (600, [0] * 21, 1000),  # 20 were allowed,
        (1000, [0.9] * 21, 2100),  # but at the end
        (1000, [1] * 21, 1000),
        (1000, [50] * 21, 1000),
        (1000, [5] * 21, 2100),  # a tenth of 1161 seconds
        (1000, wrong, 0),
    ):
        assert evaluation.is_due(steps)
        script.append(seconds)
        found = evaluation.run(steps, None, None, threading.Event())
        assert (bool(found), evaluation.next) == (following not in (0, 1000), following)
    assert not evaluation.is_due(1000)
    _, long, last = (record.getMessage() for record in caplog.records)
    assert long.endswith("1000 steps has no result: not all episodes ended within 20 time steps")
    assert last.startswith("The evaluation at 1000 steps has no result: integer")
    asked = PeriodicEvaluation(replace(config, evaluate_every=100), None, start=0)
    script.append(1 // x for x in [0])
    with pytest.raises(ZeroDivisionError):
        asked.run(100, None, None, threading.Event())


def test_an_evaluation_starts_from_what_the_actors_have_learned(monkeypatch):
    agent = acting_agent(
        lambda params, state, _: Decision(jnp.int32(1), {"seven": state == 7}, state)
    )
    entry = replace(average_agent.ENTRY, evaluation_modes=("seven",))
    warm = replace(entry, warm_start=lambda fresh, actors: fresh + jnp.sum(actors))
    found, config = [], RunConfig(agent="a", environment="catch")
    with contextlib.closing(make("catch", seed=0, num_envs=2)) as catch:
        for each in (entry, warm):
            monkeypatch.setattr(RunConfig, "entry", each)
            evaluation = Evaluation(config, agent, catch, seed=0, episodes=3)
            scores = evaluation.run(None, jnp.array([3, 4]), steps=5)
            found.append((scores.steps, scores.modes["seven"]["episodes"]))
    assert found == [(5, 0), (5, 3)]


def test_an_arm_is_evaluated_on_request(arms, finished, retrax, refused):
    status, out, _ = retrax("evaluate", arms, "--episodes", 2, "--arm", 2, "--json")
    assert (status, json.loads(out)["metrics"]["arm"]) == (0, 2)
    for run, arm, message in (
        (arms, 3, "arm must be at most 2, got 3."),
        (finished, 0, "has no arms, so arm 0 cannot be evaluated."),
    ):
        assert message in refused("evaluate", run, "--episodes", 1, "--arm", arm)


def test_a_resumed_run_continues_its_evaluations(evaluated, retrax, tmp_path, monkeypatch):
    run = shutil.copytree(evaluated, tmp_path / "run")
    made, make = [], RunConfig.make_environment

    def watched(self, *, seed, num_envs, evaluation=False, **options):
        made.append((seed, num_envs, evaluation))
        return make(self, seed=seed, num_envs=num_envs, evaluation=evaluation, **options)

    monkeypatch.setattr(RunConfig, "make_environment", watched)
    assert retrax("train", "--resume", run, "--steps", 420)[0] == 0
    seeds = [derive_seed(0, Purpose.PERIODIC_EVALUATION, steps) for steps in (300, 400, 420)]
    assert made[1:] == [(seed, EPISODES, True) for seed in seeds]
    assert not made[0][2]  # of training


def test_a_signal_ends_an_evaluation(tiny, retrax, tmp_path, monkeypatch):
    """The last line has the return of the one before."""
    run = PeriodicEvaluation.run

    def interrupted(self, steps, *arguments):
        if steps == 200:
            os.kill(os.getpid(), signal.SIGINT)
        return run(self, steps, *arguments)

    monkeypatch.setattr(PeriodicEvaluation, "run", interrupted)
    directory = tmp_path / "run"
    status, _, err = retrax(*tiny, "--evaluate-every", 100, "--run-directory", directory)
    assert (status, "Stopped at 200 steps" in err) == (0, True)
    assert err.count("Evaluation") == err.count(" (greedy).\n") == 1
    assert snapshots(directory)[-1] == 200


@pytest.fixture
def scripted(monkeypatch):
    """Sets the returns of the evaluations to come; None: one has no result."""

    def script(*returns):
        coming = list(returns)

        def run(self, steps, *arguments):
            self.next = next_multiple(steps, self._config.evaluate_every)
            value = coming.pop(0)
            return {} if value is None else {"evaluation_return": value, "evaluation_length": 9.0}

        monkeypatch.setattr(PeriodicEvaluation, "run", run)

    return script


def test_the_best_parameters_are_kept_over_a_resume_and_evaluated(
    tiny, retrax, refused, tmp_path, scripted
):
    """Evaluations at 40, 80, ..., 240 steps; snapshots at 80, 160 and the end."""
    scripted(0.1, 0.5, 0.5, 0.25, 0.3, 0.125)
    options = ["--evaluate-every", 40, "--snapshot-every", 80, "--keep-snapshots", 3]
    status, _, err = retrax(*tiny, *options, "--run-directory", tmp_path / "run")
    assert status == 0
    assert "Evaluation at 120 steps: return 0.5 over 20 episodes, the best so far." in err
    assert "Evaluation at 160 steps: return 0.25 over 20 episodes." in err
    run = tmp_path / "run"
    assert snapshots(run) == [80, 160, 240]
    best = ("best", 120, ", the best snapshot")
    for which, steps, said in (best, ("newest", 240, ""), (160, 160, "")):
        _, out, _ = retrax("evaluate", run, "--episodes", 1, "--snapshot", which)
        assert out.partition("after ")[2].startswith(f"{steps} steps of training{said}\n")
        assert load_agent(run, which).steps == steps
    err = refused("evaluate", run, "--episodes", 1, "--snapshot", 200)
    assert err.endswith("holds no snapshot 200: allowed are newest, best, 80, 160, 240.\n")

    scripted(0.4, None)
    status, _, err = retrax("train", "--resume", run, "--steps", 320)
    assert (status, " (exploring).\n" in err) == (0, True)  # the last line, without "(greedy)"
    assert (snapshots(run), load_agent(run, "best").steps) == ([160, 240, 320], 120)
    scripted(0.75)
    assert retrax("train", "--resume", run, "--steps", 360)[0] == 0
    assert (snapshots(run), load_agent(run, "best").steps) == ([240, 320, 360], 360)


def test_the_best_parameters_of_a_program(run, retrax, monkeypatch):
    """An evaluator of a program keeps parameters, not a snapshot."""
    cold = replace(noisy_agent.NOISY, warm_start=None)  # there are no actors' states
    monkeypatch.setattr(noisy_agent, "NOISY", cold)
    older = load_agent(run, 160)
    BestParameters(run).offer(older.params, mean_return=0.5, steps=155)
    found = load_agent(run, "best")
    assert (found.steps, load_agent(run).steps) == (155, 240)
    chex.assert_trees_all_equal(found.params, older.params)
    outputs = [
        retrax("evaluate", run, "--episodes", 5, "--snapshot", which)[1] for which in ("best", 160)
    ]
    assert outputs[0].replace("155", "160").replace(", the best snapshot", "") == outputs[1]


def test_when_evaluations_are_due():
    fields = {"steps": 95, "log_every": 10, "snapshot_every": 10, "evaluate_every": 30}
    config = RunConfig(agent="reactor", environment="catch", **fields)
    due = PeriodicEvaluation(config, None, start=31).is_due
    assert [steps for steps in (32, 59, 60, 64, 94, 95, 97) if due(steps)] == [60, 64, 94, 95, 97]
    due = PeriodicEvaluation(config, None, start=90).is_due
    assert [steps for steps in (91, 94, 95, 97) if due(steps)] == [95, 97]
    for change, expected in ({"evaluate_every": 0}, 0), ({"evaluate_every": None}, 9):
        assert PeriodicEvaluation(replace(config, **change), None, start=0).next == expected


def test_an_evaluation_says_that_running_statistics_start_again(own_modules, caplog):
    (own_modules / "normalised_envs.py").write_text(
        "import gymnasium\n"
        "def make_one():\n"
        "    cart = gymnasium.make('CartPole-v1')\n"
        "    return gymnasium.wrappers.NormalizeObservation(cart)\n"
    )
    fields = {"agent": "average_agent:ENTRY", "preset": "default", "steps": 10, "num_envs": 1}
    config = average_agent.Config()
    for environment, told in (("normalised_envs:make_one", 1), ("CartPole-v1", 0)):
        run = RunConfig(**fields, environment=environment, agent_config=config)
        caplog.clear()
        evaluate(write_untrained_run(own_modules / environment, run), episodes=2)
        found = [record.getMessage() for record in caplog.records]
        assert len([line for line in found if "of NormalizeObservation: a" in line]) == told


@pytest.mark.parametrize(("environment", "milliseconds"), [("FrozenLake-v1", 250), ("catch", 200)])
def test_videos_are_as_fast_as_the_environment(tmp_path, environment, milliseconds):
    """FrozenLake says 4 frames a second, catch nothing; its frames are small."""
    fields = {"agent": "average_agent:ENTRY", "environment": environment, "preset": "default"}
    run = RunConfig(**fields, steps=10, num_envs=1, agent_config=average_agent.Config())
    video = tmp_path / "video.gif"
    evaluate(write_untrained_run(tmp_path / "run", run), episodes=1, video=video)
    with Image.open(video) as reader:
        assert reader.info["duration"] == milliseconds


def test_environments_say_how_fast_they_are():
    assert make("CartPole-v1").frames_per_second == 50
    assert make("ALE/Pong-v5").frames_per_second == 15  # of 60, every fourth
    assert from_gymnasium_vector(gymnasium.make_vec("CartPole-v1", 2)).frames_per_second == 50
    if pytest.importorskip("dm_control"):
        assert make("dm_control:cartpole/swingup").frames_per_second == pytest.approx(100)
