"""The tutorials: the Python blocks of a page are one program, and each page asserts its results."""

import re
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "docs" / "tutorials"
PAGES = sorted(path.name for path in FOLDER.glob("*.md") if path.name != "README.md")
DISTRIBUTED = ("program.md",)  # launch programs


def program(page):
    """The blocks of a page with the page's line numbers, so that a traceback names the line."""
    parts = re.split(r"^```python\n(.*?)^```$", page, flags=re.DOTALL | re.MULTILINE)
    parts[::2] = ["\n" * part.count("\n") for part in parts[::2]]
    parts[1::2] = ["\n" + block for block in parts[1::2]]  # the line of the fence
    return "".join(parts)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.distributed] if name in DISTRIBUTED else [])
        for name in PAGES
    ],
)
def test_a_tutorial_runs(name, tmp_path, monkeypatch):
    if name in DISTRIBUTED:
        pytest.importorskip("launchpad", reason="needs the distributed tier (Python 3.10, Linux)")
    monkeypatch.chdir(tmp_path)
    text = (FOLDER / name).read_text(encoding="utf-8")
    code = program(text)
    assert "assert " in code
    exec(compile(code, FOLDER / name, "exec"), {"__name__": "tutorial"})


@pytest.mark.parametrize("name", PAGES)
def test_the_list_of_tutorials_has_it(name):
    assert f"]({name})" in (FOLDER / "README.md").read_text(encoding="utf-8")


def test_a_program_keeps_the_lines_of_its_page():
    page = "text\n\n```python\nx = 1\n```\n\ntext\n\n```python\nassert x == 2\n```\n"
    with pytest.raises(AssertionError) as caught:
        exec(compile(program(page), "page", "exec"), {})
    line = caught.tb.tb_next.tb_lineno if caught.tb.tb_next else caught.tb.tb_lineno
    assert page.splitlines()[line - 1] == "assert x == 2"
