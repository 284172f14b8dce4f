"""The how-to pages: the blocks of a page run in turn, in one directory."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from retrax.experiments.commands.main import main

FOLDER = Path(__file__).parents[1] / "docs" / "how_to"
PAGES = sorted(path.name for path in FOLDER.glob("*.md"))
BLOCK = re.compile(r"^```(bash|python)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def run_line(line):
    """A command line; those of retrax in this process, which has compiled more."""
    words = shlex.split(line, comments=True)
    if words[0] == "retrax":
        assert main(words[1:]) == 0, line
        return
    assert words[0] == "python", line
    command = [sys.executable, *words[1:]]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, f"{line}\n{done.stderr}"


def run_python(page, block):
    """Writes a block whose first line names a file, and executes another."""
    if name := re.match(r"# (\w+\.py)\n", block):
        Path(name[1]).write_text(block)
    else:
        exec(compile(block, page, "exec"), {"__name__": "example"})


@pytest.mark.parametrize("name", PAGES)
def test_a_page_does_what_it_says(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    text = (FOLDER / name).read_text(encoding="utf-8")
    blocks = BLOCK.findall(text)
    assert blocks
    for language, block in blocks:
        if language == "python":
            run_python(name, block)
            continue
        for line in block.splitlines():
            run_line(line)
        for output in re.findall(r"--(?:output|video) (\S+)", block):
            assert os.path.exists(output), output


def test_the_site_has_every_page():
    site = (FOLDER.parents[1] / "mkdocs.yml").read_text(encoding="utf-8")
    assert [name for name in PAGES if f"docs/how_to/{name}" not in site] == []


def test_a_command_that_fails_is_found(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(AssertionError):
        run_line("retrax evaluate nothing")
    with pytest.raises(AssertionError):
        run_line("python nothing.py")
