"""Figures in the tables of docs/results are those that the files beside them give."""

import json
import types

import gymnasium
import numpy as np
import pytest
import result_tables
import scoreboard
from benchmark_modules import load
from collect import collect
from result_files import FOLDER, rows_of, runs, runs_of, threshold

from retrax.evaluation.suites import find_suite, read_rows, suites

PAGE = """# Page

<!-- computed: squares -->
| of | square | note * |
|---|---|---|
| `2` | **4** | 17 |
| | 4 | |
| other * | 5 | |

<!-- copied -->
| x |
|---|
| 7 |
"""


def squares(row):
    return {} if "other" in row["of"] else {"square": str(int(row["of"]) ** 2)}


REPORT = types.SimpleNamespace(squares=squares)


@pytest.mark.parametrize("page", result_tables.pages())
def test_computed_cells_are_those_of_the_page(page):
    """A page begins with a table and ends with how it was made."""
    text = (FOLDER / page / "README.md").read_text(encoding="utf-8")
    written = result_tables.filled(text, result_tables.find_report(page))
    assert written == text, "run python docs/results/result_tables.py"
    lines = text.split("\n")
    first = next(line for line in lines if line and not line.startswith("#"))
    assert first == result_tables.COPIED or result_tables.COMPUTED.fullmatch(first)
    assert lines.count('<details markdown="1">') == 1
    assert lines.count("<summary>How it was made</summary>") == 1
    assert lines[-2] == "</details>"


def test_computed_cells_replace_others_and_keep_the_emphasis_of_equal_ones():
    assert result_tables.filled(PAGE, REPORT) == PAGE
    wrong = PAGE.replace("**4**", "**5**").replace("| | 4 | |", "| | | |")
    assert result_tables.filled(wrong, REPORT) == PAGE.replace("**4**", "4")


@pytest.mark.parametrize(
    ("right", "wrong", "message"),
    [
        ("<!-- copied -->", "", "no comment says where the figures are from: '| x |'"),
        ("<!-- computed: squares -->", "Text", "no comment says where the figures are from"),
        ("other *", "other", r"nothing is computed in '\| other \| 5 \| \|'"),
        ("square |", "area |", "there is no column {'square'} in"),
    ],
)
def test_tables_that_escape_are_refused(right, wrong, message):
    with pytest.raises(ValueError, match=message):
        result_tables.filled(PAGE.replace(right, wrong), REPORT)


def test_a_task_has_one_threshold():
    """Gymnasium's, the suite's, and the one beside other libraries."""
    for task in find_suite("classic").tasks:
        registered = gymnasium.spec(task.environment).reward_threshold
        assert registered is not None or task.name == "pendulum"
        assert task.high == (-200 if registered is None else registered)
        assert task.high == threshold(task.environment)
    for task in load("peers").TASKS.values():
        assert task.threshold == threshold(task.environment)
    assert threshold("Walker2d-v5") is None


@pytest.mark.parametrize(
    "path",
    [path for path in sorted(FOLDER.glob("*/scores.csv")) if path.parent.name in suites()],
    ids=lambda path: path.parent.name,
)
def test_normalised_scores_are_those_of_the_suite(path):
    tasks = {task.name: task for task in find_suite(path.parent.name).all_tasks}
    for row in (row for row in read_rows(path) if ":" not in row["task"]):  # else of no suite
        task = tasks[row["task"]]
        normalised = (float(row["score"]) - task.low) / (task.high - task.low)
        assert float(row["normalised"]) == pytest.approx(normalised, rel=1e-9)


def run_directory(folder, seed, *, steps, score):
    """A run of three rows, as `retrax train` and `retrax evaluate` leave it, in part."""
    run = folder / "before" / f"acer-1-{seed}"
    run.mkdir(parents=True)
    config = {"agent": "acer", "preset": "small", "environment": "CartPole-v1", "seed": seed}
    config |= {"steps": steps, "search_path": "/a/b"}
    (run / "config.json").write_text(json.dumps(config))
    (run / "metrics.csv").write_text(
        "steps,episodes,updates,episode_return,loss,seconds\n"
        f"5,0,0,,1,0.2\n10,1,0,100,1,0.5\n{steps},4,3,{score},1,1.25\n"
    )
    evaluation = {"mean_return": score, "low": 1.0, "high": 2.0, "episodes": 5}
    (run / "evaluation.json").write_text(json.dumps(evaluation))
    return run


def test_runs_are_collected_and_those_of_the_same_name_replaced(tmp_path):
    """A run without an evaluation has a curve alone."""
    first, second, page = tmp_path / "first", tmp_path / "second", tmp_path / "classic"
    page.mkdir()
    for seed in (0, 1):
        run_directory(first, seed, steps=20, score=150.0 + seed)
    (run_directory(first, 2, steps=20, score=1.0) / "evaluation.json").unlink()
    run_directory(second, 1, steps=30, score=475.0)
    collect(page, first, ("loss",))
    collect(page, second, every=2)
    assert [run.seed for run in runs_of(page)["before/acer-1"]] == [0, 1, 2]
    found = runs(page, "before/acer-1")
    known = [(run.seed, run.score, run.config["steps"]) for run in found]
    assert known == [(0, 150.0, 20), (1, 475.0, 30)]
    np.testing.assert_array_equal(found[1].curve["episode_return"], [np.nan, (100 + 3 * 475) / 4])
    columns = {"steps", "episodes", "updates", "episode_return", "seconds", "loss"}
    assert set(found[0].curve) == columns
    assert list(found[0].curve["loss"]) == [1, 1, 1]
    assert found[0].config["search_path"] == "."
    assert "seed" not in found[0].config
    row = found[1].scores
    assert (row["task"], row["updates"], row["seconds"]) == ("cart-pole", "3", "1.2")
    (task,) = find_suite("classic").choose(("cart-pole",))
    assert float(row["normalised"]) == pytest.approx((475 - task.low) / (task.high - task.low))
    assert len(rows_of(page / "scores.csv")) == 2


def test_results_are_light():
    files = [path for path in FOLDER.rglob("*") if path.is_file() and path.suffix != ".pyc"]
    assert len(files) <= 200
    assert sum(path.stat().st_size for path in files) <= 5_000_000
    color_types = {path.read_bytes()[25] for path in files if path.suffix == ".png"}
    assert color_types == {3}  # of PNG: a palette, see `with_few_colors`


def test_scoreboards_are_those_of_the_runs():
    for path, text in scoreboard.pages().items():
        assert path.read_text(encoding="utf-8") == text, "run python docs/results/scoreboard.py"


def test_a_row_of_the_scoreboard_by_hand():
    """D4PG on Pendulum: three seeds of the CSV, Student's t with two degrees of freedom."""
    rows = [row for row in scoreboard.all_rows() if row.key == ("d4pg", "Pendulum-v1")]
    scores = [
        float(each["score"])
        for each in read_rows(FOLDER / "classic" / "scores.csv")
        if (each["agent"], each["task"]) == ("d4pg", "pendulum")
    ]
    low, high = np.mean(scores) + np.array([-1, 1]) * 4.302653 * np.std(scores, ddof=1) / np.sqrt(3)
    expected = f"**{np.mean(scores):.0f} (3 seeds, {low:.0f} to {high:.0f})**"
    assert [scoreboard.cells(row)["score"] for row in rows] == [expected]
    assert scoreboard.cells(rows[0])["published"] == "DDPG (SB3 zoo) -152 (20k)"
    assert scoreboard.command(rows[0]) == "retrax benchmark classic d4pg --tasks pendulum --seeds 3"


def test_the_highest_of_several_seeds_is_bold_and_an_agents_best_row_is_highest_above_published():
    rows, highest = scoreboard.all_rows(), {}
    assert [len(row.runs) == 1 for row in rows] == sorted(len(row.runs) == 1 for row in rows)
    for row in rows:
        scores = [each.score for each in row.published] if len(row.runs) > 1 else []
        cells, beaten = scoreboard.cells(row), bool(scores) and row.mean >= max(scores)
        assert cells["score"].startswith("**") == beaten
        assert ("**" in cells["published"]) == (bool(scores) and not beaten)
        if scores and len(row.scores) >= 3:
            above = (row.mean - max(scores)) / (row.task.high - row.task.low)
            highest.setdefault(row.key[0], []).append((above, row.task.name))
    best = {row.key[0]: row.task.name for row in scoreboard.best_rows(rows)}
    assert best == {agent: max(found)[1] for agent, found in highest.items()}
    assert len({row.key for row in rows}) > 50
