"""Figures in the tables of docs/results are those that the files beside them give."""

import types

import pytest
import result_tables

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


@pytest.mark.parametrize("page", ["minatar"])
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
