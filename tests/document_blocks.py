"""Code blocks of documents: read and executed in one way for all pages."""

import os
import re
import shlex
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import NamedTuple

from retrax.command.main import main

ROOT = Path(__file__).parents[1]
FENCE = re.compile(r"^```(\w[\w ]*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
EXECUTED = ("bash", "bash distributed", "python")  # languages of blocks that tests execute
# The first bytes of what `--output` and `--video` write.
STARTS = {".png": b"\x89PNG", ".gif": b"GIF8"}

PAGES = (
    *("README.md", "docs/environments.md", "docs/run_directories.md", "docs/programs.md"),
    *sorted(f"docs/how_to/{path.name}" for path in (ROOT / "docs" / "how_to").glob("*.md")),
)
TUTORIALS = sorted(
    f"docs/tutorials/{path.name}"
    for path in (ROOT / "docs" / "tutorials").glob("*.md")
    if path.name != "README.md"
)


class Block(NamedTuple):
    """A code block.

    Attributes:
      language: what stands behind the fence.
      text: its lines.
      line: how many lines of the page stand above its first one.
    """

    language: str
    text: str
    line: int

    @property
    def module(self):
        """The file that a block of Python is the contents of, where its first line names one."""
        name = re.match(r"# (\w+\.py)\n", self.text)
        return name[1] if name and self.language == "python" else None


def read(page):
    """The text of a page, whose path is relative to the repository."""
    return (ROOT / page).read_text(encoding="utf-8")


def blocks(text):
    return [
        Block(found[1], found[2], text.count("\n", 0, found.start(2)))
        for found in FENCE.finditer(text)
    ]


def command_lines(text):
    """The words of each command line."""
    lines = text.replace("\\\n", " ").splitlines()
    return [words for line in lines if (words := shlex.split(line, comments=True))]


def run_command(words, as_process=False):
    """Runs a command line in the current directory.

    Commands of retrax run in this process, which saves the imports, unless it is asked otherwise.
    `launch` always has a process of its own, since it leaves the network.
    """
    if words[0] == "retrax" and words[1] != "launch" and not as_process:
        assert main(words[1:]) == 0, shlex.join(words)
        return
    folders = (sysconfig.get_path("scripts"), str(Path(sys.executable).parent), os.environ["PATH"])
    done = subprocess.run(
        words,
        env={**os.environ, "PATH": os.pathsep.join(folders)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, f"{shlex.join(words)}\n{done.stdout}{done.stderr}"


def run_block(page, block, names=None, processes=()):
    """Does in the current directory what a reader does with a block.

    Args:
      page: the name of its page.
      block: commands are run, a module is written to its file, other Python is executed, with
        tracebacks that name the lines of the page.
      names: global names of Python; by default new ones.
      processes: command lines of retrax to run as processes of their own.
    """
    if block.module:
        Path(block.module).write_text(block.text)
    elif block.language == "python":
        code = compile("\n" * block.line + block.text, str(ROOT / page), "exec")
        exec(code, {"__name__": "example"} if names is None else names)
    else:
        for words in command_lines(block.text):
            run_command(words, as_process=words in processes)
        for name in re.findall(r"--(?:output|video) (\S+)", block.text):
            path = Path(name)
            assert path.exists(), name
            if path.suffix in STARTS:
                assert path.read_bytes().startswith(STARTS[path.suffix]), name
