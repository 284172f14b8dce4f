"""bsuite.csv of real runs."""

import csv
import json

import pytest

from retrax.command import benchmark
from retrax.command.grid import Cell
from retrax.command.main import main
from retrax.evaluation import bsuite
from retrax.evaluation.suites import find_suite
from retrax.training.run_config import RunConfig

EPISODES = 18


def test_scores_of_a_short_run(tmp_path):
    """Nine steps make an episode of catch; the last episode of the budget is recorded."""
    pytest.importorskip("bsuite")
    (task,) = find_suite("bsuite").choose(("catch-0",))
    cells = []
    for seed in range(2):
        run = tmp_path / "runs" / str(seed)
        config = RunConfig(
            agent="acer", environment=task.environment, steps=9 * EPISODES, seed=seed, num_envs=1
        )
        cells.append(Cell(task, config, run, 2))
        if seed == 0:  # the other one has not begun
            assert main(cells[0].next_stage()) == 0
            (run / "evaluation.json").write_text(json.dumps({"mean_return": 0.0}))
    benchmark.write_bsuite(tmp_path, cells)
    with (tmp_path / bsuite.SCORES).open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["agent"], row["seed"], row["kind"], row["name"]) for row in rows] == [
        ("acer", "0", "experiment", "catch"),
        ("acer", "0", "tag", "basic"),
        ("acer", "0", "tag", "credit_assignment"),
    ]
    record = benchmark.record_of(cells[0].directory)
    assert [row["episode"] for row in record] == [*range(1, 11), 12, 14, 17]
    assert record[-1]["steps"] == 9 * 17
    assert record[-1]["total_regret"] == 17 - record[-1]["total_return"]
    regret = record[-1]["total_regret"] / 17
    for row in rows:
        assert float(row["score"]) == pytest.approx(max(0.0, (1.6 - regret) / 1.6))
        assert (row["ids"], row["finished"]) == ("1", "False")
