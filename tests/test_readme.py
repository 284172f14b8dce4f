"""Every command and every piece of Python in the documents does what it is there for."""

import os
import pathlib
import re
import shlex
import subprocess
import sys
import sysconfig

import pytest

ROOT = pathlib.Path(__file__).parents[1]
PAGES = ("README.md", "CONTRIBUTING.md", "docs/guide.md", "docs/programs.md")


def blocks(language, page="README.md"):
    text = (ROOT / page).read_text()
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


def of_all_pages(language, skipped=0):
    """The blocks of all pages; the README's first are skipped."""
    return [
        pytest.param(page, block, id=f"{page}-{number}")
        for page in PAGES
        for number, block in enumerate(blocks(language, page))
        if page != PAGES[0] or number >= skipped
    ]


def test_set_up_is_what_we_promise():
    set_up, core, *_ = blocks("bash")
    assert set_up.splitlines() == [
        "python3.10 -m venv .venv && . .venv/bin/activate",
        "pip install -r requirements.txt",
        "retrax train reactor --environment catch",
        "pytest",
    ]
    assert "pip install -e ." in core


def test_the_readme_is_short_and_shows_a_learning_curve():
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) <= 120
    assert re.search(r"!\[[^]]+\]\(docs/results/\S+\.png\)", text[:1000])


def test_continuous_integration_runs_the_set_up_blocks():
    script = (ROOT / ".ci" / "run").read_text()
    assert script.count("readme 0") == 3
    assert script.count("readme 1") == 1
    for number, block in enumerate(blocks("bash")[:2]):
        command = [sys.executable, str(ROOT / ".ci" / "readme_commands.py"), str(number)]
        assert subprocess.run(command, capture_output=True, text=True).stdout == block


def write_modules(page, directory):
    """Python blocks whose first line names a file are files of the commands' directory."""
    for block in blocks("python", page):
        if name := re.match(r"# (\w+\.py)\n", block):
            (directory / name[1]).write_text(block)


def run(block, directory):
    """Runs every line in a directory, compiled as users compile it: the runs take longer."""
    scripts = sysconfig.get_path("scripts")
    python = pathlib.Path(sys.executable).parent
    path = os.pathsep.join([scripts, str(python), os.environ["PATH"]])
    environment = {**os.environ, "PATH": path}
    environment.pop("JAX_DISABLE_MOST_OPTIMIZATIONS", None)
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


@pytest.mark.parametrize(("page", "block"), of_all_pages("bash", skipped=2))
def test_commands(page, block, tmp_path):
    write_modules(page, tmp_path)
    run(block, tmp_path)
    for name in re.findall(r"--(?:output|video) (\S+)", block):
        start = {".png": b"\x89PNG", ".gif": b"GIF8"}[pathlib.Path(name).suffix]
        assert (tmp_path / name).read_bytes().startswith(start)


@pytest.mark.distributed
@pytest.mark.parametrize(("page", "block"), of_all_pages("bash distributed"))
def test_distributed_commands(page, block, tmp_path):
    pytest.importorskip("launchpad", reason="needs the distributed tier (Python 3.10, Linux)")
    run(block, tmp_path)


@pytest.mark.parametrize(("page", "block"), of_all_pages("python"))
def test_python(page, block, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(compile(block, page, "exec"), {"__name__": "example"})


def test_links_lead_somewhere():
    pages = [*ROOT.glob("*.md"), *ROOT.glob("*/README.md"), *ROOT.glob("agents/*/README.md")]
    for page in [*pages, *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md")]:
        for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
            assert (page.parent / link).exists(), f"{page.relative_to(ROOT)}: {link}"
