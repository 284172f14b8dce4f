"""`retrax benchmark` and `retrax report`: a grid of real runs, and what stops it."""

import json
import os
import shutil
import signal
import sys
import threading
import time

import numpy as np
import pytest
from fresh_python import start_retrax
from html_page import Page

from retrax.command import benchmark, grid
from retrax.command.main import main
from retrax.evaluation import atari57, bsuite
from retrax.evaluation.report import read_results
from retrax.evaluation.suites import find_suite, read_rows, suites
from retrax.training.run_config import RunConfig

STEPS = 240
AGENT = "noisy_agent:NOISY"
GRID = ["--tasks", "cart-pole", "--steps", str(STEPS), "--episodes", "2", "--num-envs", "4"]


@pytest.fixture(scope="session")
def done(here, tmp_path_factory):
    """A benchmark of two seeds; tests must not change it."""
    directory = tmp_path_factory.mktemp("benchmark") / "here"
    arguments = ["benchmark", "classic", AGENT, *GRID, "--seeds", "2", "--jobs", "2"]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(here)
        assert main([*arguments, "--directory", str(directory)]) == 0
    return directory


def test_tables(done):
    found = read_rows(done / benchmark.SCORES)
    assert [(row["agent"], row["preset"], row["task"], row["seed"]) for row in found] == [
        (AGENT, "default", "cart-pole", "0"),
        (AGENT, "default", "cart-pole", "1"),
    ]
    (task,) = find_suite("classic").choose(("cart-pole",))
    for seed, row in enumerate(found):
        run = done / "runs" / f"noisy_agent-NOISY-cart-pole-{seed}"
        assert f"Run in {run}" in (done / "logs" / f"{run.name}.txt").read_text()
        score = json.loads((run / "evaluation.json").read_text())["mean_return"]
        assert float(row["score"]) == score
        assert float(row["normalised"]) == (score - task.low) / (task.high - task.low)
        assert (row["steps"], row["episodes"]) == (str(STEPS), "2")
        metrics = read_rows(run / "metrics.csv")
        assert row["updates"] == str(int(float(metrics[-1]["updates"])))
        curve = [x for x in read_rows(done / benchmark.CURVES) if x["seed"] == str(seed)]
        assert [(x["steps"], float(x["episode_return"])) for x in curve] == [
            (x["steps"], float(x["episode_return"])) for x in metrics if x["episode_return"]
        ]


def test_complete_runs_are_not_repeated(done, monkeypatch, capsys):
    monkeypatch.setattr(grid, "_spawn", None)
    monkeypatch.setattr(benchmark, "spec_of", None)  # nor is the task made to be checked again
    before = (done / benchmark.SCORES).read_text()
    arguments = ["benchmark", "classic", AGENT, *GRID, "--seeds", "1", "--directory", str(done)]
    assert main(arguments) == 0
    assert "1 of 1 runs are complete" in capsys.readouterr().out
    assert (done / benchmark.SCORES).read_text() == before  # with the other seed


def test_the_report_shows_it_and_loads_nothing(done, tmp_path, capsys):
    output = tmp_path / "page.html"
    assert main(["report", str(done), "--output", str(output)]) == 0
    assert capsys.readouterr().out == f"{output}\n"
    page = Page(output.read_text())
    results = read_results(done)
    scores = list(results.scores[AGENT, "cart-pole"].values())
    mean = f"{np.mean(scores):.4g} ({min(scores):.4g} to {max(scores):.4g})"
    assert page.rows[1] == ["cart-pole", mean, "500", "498.6"]
    assert page.rows[0][:2] == ["task", AGENT]
    assert any(row[:2] == [AGENT, "2"] for row in page.rows)
    assert len(page.sources) == 2
    assert all(source.startswith("data:image/png;base64,") for source in page.sources)
    assert page.open == []


def test_a_directory_of_other_runs_is_refused(refused, done, tmp_path):
    renamed, preset = tmp_path / "preset", "was run with preset other, not default: choose another"
    shutil.copytree(done, renamed)
    for path in renamed.glob("runs/*/config.json"):
        path.write_text(path.read_text().replace('"preset": "default"', '"preset": "other"'))
    grid_of = ["benchmark", "classic", AGENT, *GRID, "--directory", done]
    other = ["benchmark", "atari5", "acer", "--tasks", "qbert", "--directory", done]
    for words, sentence in (
        ([*grid_of, "--steps", "300"], "was run with steps 240, not 300: choose another"),
        ([*grid_of, "--episodes", "3"], "evaluation.json has 2 episodes, not 3: remove it first."),
        (["benchmark", "classic", AGENT, *GRID, "--seeds", "4", "--directory", renamed], preset),
        (other, f"{done} has runs of the suite classic: choose another"),
        ([*grid_of[:2], "acer", *grid_of[3:], "--on-device"], "with on_device False, not True"),
        (["report", done / "runs"], "has no results of retrax benchmark"),
        (["report", done, "--output", "a.pdf"], "a.pdf must end in .html: no other format is"),
    ):
        assert sentence in refused(*words)


@pytest.mark.parametrize(
    ("name", "command"),
    [
        *(("suite.json", command) for command in ("benchmark", "report")),
        *((name, "report") for name in ("scores.csv", "curves.csv")),
        ("runs/noisy_agent-NOISY-cart-pole-0/evaluation.json", "benchmark"),
    ],
)
@pytest.mark.parametrize("cut", [0, 0.6, -3])
def test_results_that_were_cut_short_are_named(
    refused, done, here, tmp_path, monkeypatch, name, command, cut
):
    monkeypatch.chdir(here)
    directory = shutil.copytree(done, tmp_path / "here")
    text = (directory / name).read_text()
    (directory / name).write_text(text[: cut if cut < 0 else int(cut * len(text))])
    words = ["classic", AGENT, *GRID, "--seeds", 2, "--directory"] * (command == "benchmark")
    assert f"{directory / name} is damaged (" in refused(command, *words, directory)


def test_a_suite_whose_package_is_missing_names_the_extra(monkeypatch, refused):
    monkeypatch.setitem(sys.modules, "bsuite", None)
    err = refused("benchmark", "bsuite", "acer")
    assert err.endswith('the module bsuite, which is not installed: pip install "retrax[bsuite]"\n')


def test_on_a_device_tasks_have_the_form_that_is_written_in_jax(monkeypatch, tmp_path, capsys):
    """Those that have none are skipped."""
    taken, end = [], (grid.GridState({}, {}, None), False)
    monkeypatch.setattr(benchmark, "run_shown", lambda cells, **_: taken.extend(cells) or end)
    for suite, *tasks in (("classic", "cart-pole", "acrobot"), ("minatar", "space-invaders")):
        words = [suite, "acer", "--tasks", *tasks, "--on-device", "--seeds", "1", "--directory"]
        assert main(["benchmark", *words, str(tmp_path / suite)]) == 0
    assert "acrobot is skipped: Acrobot-v1 is not an environment written" in capsys.readouterr().err
    found = [cell.config.environment for cell in taken]
    assert found == ["CartPole-v1", "pgx:minatar-space_invaders"]
    assert all("--on-device" in cell.next_stage() for cell in taken)


@pytest.fixture
def cells(tmp_path):
    """Three cells that nothing was done for."""
    configs = [
        RunConfig(agent="acer", environment="CartPole-v1", steps=100, seed=seed, num_envs=2)
        for seed in range(3)
    ]
    return [grid.Cell(config, tmp_path / "runs" / f"run-{config.seed}", 2) for config in configs]


@pytest.mark.parametrize(("jobs", "cores"), [(1, "all"), (2, "3")])
def test_a_run_that_fails_leaves_the_others_alone(cells, tmp_path, monkeypatch, jobs, cores):
    program = "os.environ.get('NPROC', 'all')) if '1' in sys.argv else print('{}')"
    monkeypatch.setattr(grid, "_PROGRAM", f"import os, sys; sys.exit({program}")
    monkeypatch.setattr(os, "cpu_count", lambda: 7)
    monkeypatch.delenv("NPROC", raising=False)
    monkeypatch.setattr(grid.Cell, "score", property(lambda self: None))
    for cell in cells:
        cell.directory.mkdir(parents=True)
    begun = []

    def next_stage(self):
        begun.append(self.name)
        return ["evaluate" if begun.count(self.name) > 1 else "train", str(self.config.seed)]

    monkeypatch.setattr(grid.Cell, "next_stage", next_stage)
    shown = []
    end = grid.run_grid(cells, jobs, tmp_path / "logs", threading.Event(), shown.append)
    assert end.states == {"run-0": "complete", "run-1": cores, "run-2": "complete"}
    assert end.failed == ["run-1"]
    states = [list(progress.states.values()) for progress in shown]
    assert all(now.count("training") + now.count("evaluating") <= jobs for now in states)
    assert [progress.complete for progress in (shown[0], end)] == [0, 2]


def test_progress_has_the_steps_of_metrics_each_read_once(cells, tmp_path, monkeypatch):
    """One cell is complete, one has trained a part; what left takes as long as what was done."""
    for cell, steps in zip(cells, (100, 20), strict=False):
        cell.directory.mkdir(parents=True)
        (cell.directory / "metrics.csv").write_text(f"steps\n{steps}\n")
    (cells[0].directory / "evaluation.json").write_text('{"mean_return": 1.0}')
    seen = tmp_path / "seen"  # the first progress
    program = f"""
import pathlib, sys, time
while not pathlib.Path({str(seen)!r}).exists():
    time.sleep(0.01)
run = pathlib.Path(sys.argv[sys.argv.index("--run-directory") + 1])
run.mkdir(parents=True, exist_ok=True)
(run / "metrics.csv").write_text("steps\\n60\\n")
time.sleep(0.7)
sys.exit(1)
"""
    monkeypatch.setattr(grid, "_PROGRAM", program)
    read, read_metrics = [], grid.read_metrics
    monkeypatch.setattr(grid, "read_metrics", lambda path: read.append(path) or read_metrics(path))
    polls = []

    def show(progress):
        polls.append((progress, sorted(path.name for path in read)))
        read.clear()
        seen.touch()

    end = grid.run_grid(cells[:2], 1, tmp_path / "logs", threading.Event(), show)
    first, names = polls[0]
    assert (first.complete, first.steps, first.eta) == (1, {"run-0": 100, "run-1": 20}, None)
    assert names == ["run-0", "run-1", "run-1"]  # once before the first, and once in it
    assert all(names == ["run-1"] for _, names in polls[1:])
    assert end.steps == {"run-0": 100, "run-1": 60}
    left = [progress.eta for progress, _ in polls if progress.states["run-1"] == "training"][-1]
    assert left > 0.4  # 40 steps are done and 40 left, after 0.5 s


@pytest.mark.once
def test_ctrl_c_leaves_a_grid_that_goes_on(tmp_path, here, retrax, monkeypatch):
    """A real one: stopped in the first run, and continued to its end."""
    monkeypatch.chdir(here)
    options = [*GRID, "--steps", "1000", "--seeds", "1", "--directory", str(tmp_path / "here")]
    process = start_retrax("benchmark", "classic", AGENT, *options)
    metrics = tmp_path / "here" / "runs" / "noisy_agent-NOISY-cart-pole-0" / "metrics.csv"
    while process.poll() is None and (not metrics.is_file() or metrics.read_text().count("\n") < 3):
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert (process.returncode, "The same command continues." in err) == (0, True), err
    assert "0 of 1 runs are complete" in out
    status, out, _ = retrax("benchmark", "classic", AGENT, *options)
    assert (status, "1 of 1 runs are complete" in out) == (0, True)
    assert int(read_rows(metrics)[-1]["steps"]) >= 1000


def test_suites_are_as_published():
    assert {name: len(suite.tasks) for name, suite in suites().items()} == {
        "atari": 3,
        "atari5": 5,
        "bsuite": 30,
        "classic": 6,
        "control": 18,
        "minatar": 5,
    }
    for suite in suites().values():
        for task in suite.tasks:
            assert task.low < task.high
            assert bool(task.published) == (suite.name != "bsuite")  # which scores experiments
            assert task.steps >= 10_000


@pytest.mark.parametrize("suite", ["atari", "atari5"])
def test_atari_has_the_scores_of_the_table_of_57(suite):
    table = atari57.load_scores("noop")
    for task in find_suite(suite).tasks:
        index = atari57.GAMES.index(task.name)
        assert (task.low, task.high) == (table["random"][index], table["human"][index])


def test_bsuites_scores_of_a_short_run(tmp_path):
    """Nine steps make an episode of catch; the last episode of the budget is recorded."""
    pytest.importorskip("bsuite")
    run, agent = tmp_path / "runs" / "0", "average_agent:ENTRY"
    config = RunConfig(agent=agent, environment="bsuite:catch/0", steps=9 * 18, num_envs=1)
    assert main(grid.Cell(config, run, 2).next_stage()) == 0
    other = shutil.copytree(run, tmp_path / "runs" / "1") / "config.json"  # not evaluated yet
    other.write_text(other.read_text().replace('"seed": 0', '"seed": 1'))
    (run / "evaluation.json").write_text(json.dumps({"mean_return": 0.0}))
    benchmark.write_bsuite(tmp_path, benchmark.complete_runs(tmp_path))
    found = read_rows(tmp_path / bsuite.SCORES)
    assert [(row["agent"], row["seed"], row["kind"], row["name"]) for row in found] == [
        (agent, "0", "experiment", "catch"),
        (agent, "0", "tag", "basic"),
        (agent, "0", "tag", "credit_assignment"),
    ]
    states = benchmark.Start.at(benchmark.Snapshots(run)).environment_states
    [[record]] = [state["records"] for state in states]
    assert [row["episode"] for row in record] == [*range(1, 11), 12, 14, 17]
    assert record[-1]["steps"] == 9 * 17
    assert record[-1]["total_regret"] == 17 - record[-1]["total_return"]
    regret = record[-1]["total_regret"] / 17
    for row in found:
        assert float(row["score"]) == pytest.approx(max(0.0, (1.6 - regret) / 1.6))
        assert (row["ids"], row["finished"]) == ("1", "False")
