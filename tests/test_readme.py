"""Every command and every piece of Python in the README does what it is there for."""

import os
import pathlib
import re
import shlex
import subprocess
import sys
import sysconfig

import pytest

ROOT = pathlib.Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)


SET_UP, CORE, *OTHERS = blocks("bash")
DISTRIBUTED = blocks("bash distributed")
PYTHON = blocks("python")


def test_set_up_is_what_we_promise():
    assert SET_UP.splitlines() == [
        "python3.10 -m venv .venv && . .venv/bin/activate",
        "pip install -r requirements.txt",
        "retrax train reactor --environment catch",
        "pytest",
    ]
    assert "pip install -e ." in CORE


def test_continuous_integration_runs_the_set_up_blocks():
    script = (ROOT / ".ci" / "run").read_text()
    assert script.count("readme 0") == 3
    assert script.count("readme 1") == 1
    for number, block in enumerate((SET_UP, CORE)):
        command = [sys.executable, str(ROOT / ".ci" / "readme_commands.py"), str(number)]
        assert subprocess.run(command, capture_output=True, text=True).stdout == block


def run(block, directory):
    """Every line, in an empty directory."""
    scripts = sysconfig.get_path("scripts")
    environment = {**os.environ, "PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}"}
    for line in block.splitlines():
        result = subprocess.run(
            shlex.split(line),
            cwd=directory,
            env=environment,
            capture_output=True,
            text=True,
            timeout=540,
        )
        assert result.returncode == 0, f"{line}\n{result.stderr}"


@pytest.mark.parametrize("block", range(len(OTHERS)))
def test_commands(block, tmp_path):
    run(OTHERS[block], tmp_path)
    for name in re.findall(r"--(?:output|video) (\S+)", OTHERS[block]):
        start = {".png": b"\x89PNG", ".gif": b"GIF8"}[pathlib.Path(name).suffix]
        assert (tmp_path / name).read_bytes().startswith(start)


@pytest.mark.distributed
@pytest.mark.parametrize("block", range(len(DISTRIBUTED)))
def test_distributed_commands(block, tmp_path):
    pytest.importorskip("launchpad", reason="needs the distributed tier (Python 3.10, Linux)")
    run(DISTRIBUTED[block], tmp_path)


@pytest.mark.parametrize("block", range(len(PYTHON)))
def test_python(block):
    exec(compile(PYTHON[block], f"README block {block}", "exec"), {})


def test_links_lead_somewhere():
    pages = [*ROOT.glob("*.md"), *ROOT.glob("*/README.md"), *ROOT.glob("agents/*/README.md")]
    for page in [*pages, *ROOT.glob("docs/**/*.md")]:
        for link in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / link).exists(), f"{page.relative_to(ROOT)}: {link}"
