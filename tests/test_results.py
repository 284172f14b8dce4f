"""Figures in the tables of docs/results are those that the files beside them give."""

import types

import gymnasium
import pytest
import result_tables
from benchmark_modules import load
from result_files import threshold

from retrax.evaluation.suites import find_suite, read_rows

CLASSIC = find_suite("classic").tasks

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
    text = (result_tables.FOLDER / page / "README.md").read_text(encoding="utf-8")
    written = result_tables.filled(text, result_tables.find_report(page))
    assert written == text, "run python docs/results/result_tables.py"


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


@pytest.mark.parametrize("task", CLASSIC, ids=lambda task: task.name)
def test_a_task_has_one_threshold(task):
    registered = gymnasium.spec(task.environment).reward_threshold
    assert registered is not None or task.name == "pendulum"
    assert task.high == (-200 if registered is None else registered) == threshold(task.environment)


def test_the_thresholds_beside_other_libraries_are_the_same():
    for task in load("peers").TASKS.values():
        assert task.threshold == threshold(task.environment)


def test_tasks_without_a_threshold():
    assert threshold("Walker2d-v5") is None


@pytest.mark.parametrize(
    "path", sorted(result_tables.FOLDER.glob("*/scores.csv")), ids=lambda path: path.parent.name
)
def test_normalised_scores_are_those_of_the_suite(path):
    tasks = {task.name: task for task in find_suite(path.parent.name).tasks}
    for row in read_rows(path):
        task = tasks[row["task"]]
        normalised = (float(row["score"]) - task.low) / (task.high - task.low)
        assert float(row["normalised"]) == pytest.approx(normalised, rel=1e-9)
