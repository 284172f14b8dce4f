"""The doctor's report, on this machine and on made-up ones."""

import io
import os
import subprocess
import sys
from importlib import metadata

import pytest
from rich.console import Console

import retrax
from retrax.basics import subprocess_probe
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


@pytest.fixture
def required(monkeypatch, no_jax_process):
    """What retrax requires; to be filled by the test."""
    lines = []
    monkeypatch.setattr(doctor.metadata, "requires", lambda _: lines)
    return lines


def find(report, name):
    (check,) = [check for check in report if check.name == name]
    return check


def print_to_text(found, width=80):
    console = Console(file=io.StringIO(), width=width, color_system=None)
    status = doctor.print_report(console, found)
    return status, console.file.getvalue()


def status_of(found):
    return print_to_text(found)[0]


def test_this_machine_is_well():
    """The tests run where the core is installed, JAX included."""
    found = doctor.report()
    assert status_of(found) == 0
    names = [check.name for check in found]
    assert names == ["Python", "core", "JAX", *(f"{tier} tier" for tier in TIERS)]
    assert all(find(found, name).works for name in ("Python", "core", "JAX"))
    assert ":0 " in find(found, "JAX").detail


def test_lists_what_pyproject_requires_and_jaxlib(no_jax_process):
    found = doctor.report()
    core = find(found, "core").detail.split(", ")
    for name in ("jax", "jaxlib", "dm-haiku", "optax", "rlax", "chex", "numpy", "gymnasium"):
        assert core.count(f"{name} {metadata.version(name)}") == 1
    tiers = {name: find(found, f"{name} tier").detail for name in ("mujoco", "video")}
    assert "mujoco" in tiers["mujoco"]
    assert "imageio-ffmpeg" in tiers["video"]
    assert not any("pytest" in check.detail for check in found)  # developers' tools are no tier
    can_be_had = sys.version_info < (3, 11) and sys.platform == "linux"
    assert find(found, "distributed tier").detail.startswith("not available") != can_be_had


def test_missing_core_package(installed):
    installed["optax"] = None
    found = doctor.report()
    assert status_of(found) == 1
    assert find(found, "core") == ("core", False, "optax is missing", "pip install retrax")


def test_outdated_core_package(installed):
    installed["jax"] = "0.4.1"
    found = doctor.report()
    assert status_of(found) == 1
    assert find(found, "core").detail == "jax 0.4.1 is not >=0.6.2"


def test_development_versions_are_new_enough(installed):
    installed["jax"] = "0.99.0.dev20300101"
    assert status_of(doctor.report()) == 0


def test_missing_extras_are_no_failure(installed):
    installed.update({"mujoco": None, "dm-control": None, "imageio-ffmpeg": None})
    found = doctor.report()
    assert status_of(found) == 0
    assert find(found, "mujoco tier").detail == "dm-control is missing; mujoco is missing"
    assert find(found, "mujoco tier").mend == 'pip install "retrax[mujoco]"'
    assert find(found, "video tier").mend == 'pip install "retrax[video]"'


def test_distributed_tier_with_its_mend(required):
    required.extend(["jax", "no-such-reverb==0.7.0; extra == 'distributed'"])
    check = find(doctor.report(), "distributed tier")
    assert check.detail == "no-such-reverb is missing"
    assert check.mend == "pip install -r requirements.txt"


def test_ray_of_another_version_is_named(required, installed):
    required.extend(["jax", "ray>=2.48; extra == 'cluster'"])
    installed["ray"] = "2.47.1"
    check = find(doctor.report(), "cluster tier")
    assert (check.works, check.detail) == (False, "ray 2.47.1 is not >=2.48")
    assert check.mend == 'pip install "retrax[cluster]"'


def test_distributed_tier_that_cannot_be_had(required):
    required.extend(["jax", "dm-reverb; python_version < '3' and extra == 'distributed'"])
    found = doctor.report()
    check = find(found, "distributed tier")
    assert not check.works
    assert check.mend is None
    assert check.detail == "not available here: it needs Linux and Python 3.10"
    assert status_of(found) == 0


def test_retrax_not_installed(monkeypatch, no_jax_process):
    def requires(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(doctor.metadata, "requires", requires)
    found = doctor.report()
    assert status_of(found) == 1
    assert find(found, "core").mend == "pip install -e ."
    assert print_to_text(found)[0] == 1


def test_survives_a_missing_module(monkeypatch, no_jax_process):
    monkeypatch.setitem(sys.modules, "packaging.requirements", None)
    found = doctor.report()
    assert status_of(found) == 1
    assert find(found, "core").mend == "pip install -e ."


def test_python_without_docstrings_is_named():
    program = "from retrax.command import doctor; print(doctor._python())"
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
        ("pass", 60.0, "does not answer: "),
        ("import time; time.sleep(60)", 0.1, "does not answer: "),
    ],
)
def test_jax_that_does_not_start(monkeypatch, program, seconds, detail):
    monkeypatch.setattr(subprocess_probe, "_DEVICES", program)
    monkeypatch.setattr(subprocess_probe, "SECONDS", seconds)
    found = doctor.report()
    check = find(found, "JAX")
    assert (check.works, check.mend) == (False, "pip install --upgrade jax")
    assert check.detail.startswith(detail)
    assert status_of(found) == 1


def test_prints_within_80_columns(installed):
    installed.update({"mujoco": None, "imageio": "1.0", "optax": None})
    status, text = print_to_text(doctor.report())
    assert status == 1
    assert max(map(len, text.splitlines())) <= 80
    for word in (
        "optax is missing",
        "imageio 1.0 is not",
        f"retrax {retrax.__version__}",
    ):
        assert word in text
    assert 'To fix mujoco tier:  pip install "retrax[mujoco]"' in text.splitlines()
    assert "To fix core:  pip install retrax" in text.splitlines()


def test_commands_are_never_broken_into_lines(no_jax_process):
    mend = "pip install " + "x" * 100
    found = [doctor.Check("core", False, "[red]odd[/red]", mend)]
    status, text = print_to_text(found)
    assert status == 1
    assert f"To fix core:  {mend}" in text.splitlines()
    assert "[red]odd[/red]" in text


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
