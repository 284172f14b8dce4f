"""A page's blocks do what they are there for: they run in turn, in one directory."""

import importlib.util
import os
from pathlib import Path

import pytest
from document_blocks import (
    EXECUTED,
    PAGES,
    TUTORIALS,
    Block,
    blocks,
    command_lines,
    read,
    run_block,
    run_command,
)


def first_of_each_command():
    """These run as processes, as users run them; `--resume` is a command of its own."""
    found = {}
    for page in PAGES:
        for block in blocks(read(page)):
            for words in command_lines(block.text) if block.language == "bash" else ():
                found.setdefault((*words[:2], "--resume" in words), words)
    return list(found.values())


def cases():
    """The blocks of each page; those that need an engine of programs apart."""
    for page in PAGES:
        # The README's first two blocks install; `.ci/run` runs them.
        all_blocks = blocks(read(page))[2 if page == "README.md" else 0 :]
        for distributed in (False, True):
            found = [
                block
                for block in all_blocks
                if block.language in EXECUTED and ("distributed" in block.language) == distributed
            ]
            if found:
                marks = [pytest.mark.distributed] if distributed else []
                name = f"{page}-distributed" if distributed else page
                yield pytest.param(page, found, id=name, marks=marks)


# Libraries of how-tos, each in a folder of its own: modules with the functions that the pages call,
# in place of those that are not installed. They check what they get.
STAND_INS = Path(__file__).parent / "stand_ins"
NEEDED = {"ray.tune": "pyarrow"}  # what there must be, where it is another module


@pytest.fixture
def libraries(page, tmp_path, monkeypatch):
    """Makes stand-ins importable, and keeps trackers from the network."""
    here = [str(tmp_path)]
    for folder in STAND_INS.iterdir():
        is_used = f"import {folder.name.rpartition('.')[2]}\n" in read(page)
        if is_used and not importlib.util.find_spec(NEEDED.get(folder.name, folder.name)):
            here.append(str(folder))
    for folder in here:
        monkeypatch.syspath_prepend(folder)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([*here, os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))


@pytest.mark.timeout(1800)  # many commands
@pytest.mark.usefixtures("libraries")
@pytest.mark.parametrize(("page", "found"), [*cases()])
def test_a_page_does_what_it_says(page, found, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for block in found:
        run_block(page, block, processes=first_of_each_command())
    logs = [path.read_text() for path in tmp_path.rglob("log.txt")]
    assert not [log for log in logs if "A logger of metrics failed" in log]


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=[pytest.mark.distributed] if "launch(" in read(page) else [])
        for page in TUTORIALS
    ],
)
def test_a_tutorial_is_one_program(page, tmp_path, monkeypatch):
    """It asserts its results."""
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "tutorial"}
    for block in blocks(read(page)):
        run_block(page, block, names)


@pytest.mark.parametrize(
    "text", ["retrax evaluate nothing", "python nothing.py", "retrax doctor --output nothing.png"]
)
def test_a_command_that_fails_is_found(text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(AssertionError):
        run_block("page.md", Block("bash", text, 0))


def test_a_process_that_fails_is_found(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(AssertionError, match="retrax: "):
        run_command(["retrax", "evaluate", "nothing"], as_process=True)


def test_an_output_that_is_no_picture_is_found(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty.png").touch()
    with pytest.raises(AssertionError, match=r"empty\.png"):
        run_block("page.md", Block("bash", "python -c pass --output empty.png", 0))


def test_a_traceback_names_the_line_of_the_page():
    page = "text\n\n```python\nx = 1\n```\n\ntext\n\n```python\nassert x == 2\n```\n"
    names = {}
    first, second = blocks(page)
    run_block("page.md", first, names)
    with pytest.raises(AssertionError) as caught:
        run_block("page.md", second, names)
    assert page.splitlines()[caught.traceback[-1].lineno] == "assert x == 2"
