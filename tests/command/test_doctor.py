"""The doctor's report, on this machine and on made-up ones."""

import io
import os
import subprocess
import sys
from importlib import metadata

import pytest
from rich.console import Console

import retrax
from retrax.basics import machine
from retrax.command import doctor

TIERS = ("distributed", "cluster", "mujoco", "minatar", "bsuite", "video")


@pytest.fixture
def no_jax_process(monkeypatch):
    """Takes JAX's answer for granted: the process takes seconds."""
    monkeypatch.setattr(doctor, "devices", lambda: ["cpu:0 cpu"])


@pytest.fixture
def installed(monkeypatch, no_jax_process):
    """From a package's name to its made-up version (None: missing); others are as they are."""
    versions = {}
    original = metadata.version

    def version(name):
        if versions.get(name, "") is None:
            raise metadata.PackageNotFoundError(name)
        return versions.get(name) or original(name)

    monkeypatch.setattr(doctor.metadata, "version", version)
    return versions


def find(report, name):
    (check,) = [check for check in report if check.name == name]
    return check


def printed(found, width=80):
    """The exit status, and what is printed."""
    console = Console(file=io.StringIO(), width=width, color_system=None)
    status = doctor.print_report(console, found)
    return status, console.file.getvalue()


def test_this_machine_is_well():
    """The tests run where the core is installed, JAX included; it lists what pyproject requires."""
    found = doctor.report()
    assert printed(found)[0] == 0
    names = [check.name for check in found]
    assert names == ["Python", "core", "JAX", *(f"{tier} tier" for tier in TIERS)]
    assert all(find(found, name).works for name in ("Python", "core", "JAX"))
    assert ":0 " in find(found, "JAX").detail
    core = find(found, "core").detail.split(", ")
    for name in ("jax", "jaxlib", "dm-haiku", "optax", "rlax", "chex", "numpy", "gymnasium"):
        assert core.count(f"{name} {metadata.version(name)}") == 1
    assert "mujoco" in find(found, "mujoco tier").detail
    assert "imageio-ffmpeg" in find(found, "video tier").detail
    assert not any("pytest" in check.detail for check in found)  # developers' tools are no tier
    can_be_had = sys.version_info < (3, 11) and sys.platform == "linux"
    assert find(found, "distributed tier").detail.startswith("not available") != can_be_had


NO_MUJOCO = {"mujoco": None, "dm-control": None}
ABSENT = "not available here: it needs Linux and Python 3.10"


@pytest.mark.parametrize(
    ("versions", "requires", "name", "detail", "mend", "status"),
    [
        ({"optax": None}, None, "core", "optax is missing", "pip install retrax", 1),
        ({"jax": "0.4.1"}, None, "core", "jax 0.4.1 is not >=0.6.2", "pip install retrax", 1),
        ({"jax": "0.99.0.dev20300101"}, ["jax"], "core", "jax 0.99.0.dev20300101, jaxlib", None, 0),
        (
            *(NO_MUJOCO, None, "mujoco tier", "dm-control is missing; mujoco is missing"),
            *('pip install "retrax[mujoco]"', 0),
        ),
        (
            *({}, ["jax", "no-such==0.7.0; extra == 'distributed'"], "distributed tier"),
            *("no-such is missing", "pip install -r requirements.txt", 0),
        ),
        (
            *({"ray": "2.47.1"}, ["jax", "ray>=2.48; extra == 'cluster'"], "cluster tier"),
            *("ray 2.47.1 is not >=2.48", 'pip install "retrax[cluster]"', 0),
        ),
        (
            *({}, ["dm-reverb; python_version < '3' and extra == 'distributed'"]),
            *("distributed tier", ABSENT, None, 0),
        ),
    ],
)
def test_what_is_missing_or_old(
    installed, monkeypatch, versions, requires, name, detail, mend, status
):
    installed.update(versions)
    if requires is not None:
        monkeypatch.setattr(doctor.metadata, "requires", lambda _: requires)
    found = doctor.report()
    check = find(found, name)
    assert check.detail.startswith(detail)
    works = mend is None and detail != ABSENT
    assert (check.works, check.mend, printed(found)[0]) == (works, mend, status)


@pytest.mark.parametrize("is_installed", [True, False])
def test_retrax_or_its_parser_of_requirements_is_missing(monkeypatch, no_jax_process, is_installed):
    def requires(name):
        raise metadata.PackageNotFoundError(name)

    if is_installed:
        monkeypatch.setitem(sys.modules, "packaging.requirements", None)
    else:
        monkeypatch.setattr(doctor.metadata, "requires", requires)
    found = doctor.report()
    assert (printed(found)[0], find(found, "core").mend) == (1, "pip install -e .")


def test_python_without_docstrings_is_named():
    program = "from retrax.command import doctor; print(doctor.report()[0])"
    environment = {**os.environ, "PYTHONOPTIMIZE": "2"}
    out = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    ).stdout
    assert "works=False" in out
    assert "without docstrings, which libraries need (PYTHONOPTIMIZE or -OO)" in out
    assert "mend='unset PYTHONOPTIMIZE'" in out


@pytest.mark.parametrize(
    ("program", "seconds", "detail"),
    [
        ("raise ImportError('it is old')", 60.0, "does not start: ImportError: it is old"),
        ("import os; os._exit(3)", 60.0, "does not start: exit status 3"),
        ("print('no JSON')", 60.0, "does not answer: "),
        ("import time; time.sleep(60)", 0.1, "does not answer: "),
    ],
)
def test_jax_that_does_not_start(monkeypatch, program, seconds, detail):
    monkeypatch.setattr(machine, "_DEVICES", program)
    monkeypatch.setattr(machine, "SECONDS", seconds)
    found = doctor.report()
    check = find(found, "JAX")
    assert (check.works, check.mend) == (False, "pip install --upgrade jax")
    assert check.detail.startswith(detail)
    assert printed(found)[0] == 1


def test_prints_within_80_columns_and_breaks_no_command(installed):
    installed.update({"mujoco": None, "pygame": "1.0", "optax": None})
    long = "pip install " + "x" * 100
    odd = doctor.Check("odd", False, "[red]odd[/red]", long)
    status, text = printed([*doctor.report(), odd])
    assert status == 1
    lines = text.splitlines()
    assert max(map(len, lines[:-1])) <= 80
    found = ("optax is missing", "pygame 1.0 is not", f"retrax {retrax.__version__}", odd.detail)
    assert all(words in text for words in found)
    assert 'To fix mujoco tier:  pip install "retrax[mujoco]"' in lines
    assert "To fix core:  pip install retrax" in lines
    assert lines[-1] == f"To fix odd:  {long}"


def test_the_command_imports_none_of_what_it_looks_at():
    program = """
import sys
from retrax.command.main import main
status = main(["doctor"])
loaded = {"tensorflow", "reverb", "acme", "launchpad", "jax", "matplotlib"} & set(sys.modules)
assert not loaded, loaded
sys.exit(status)
"""
    command = [sys.executable, "-W", "error", "-c", program]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=180)
    assert (answer.returncode, answer.stderr) == (0, ""), answer
    assert "distributed tier" in answer.stdout
