"""The doctor's report, on this machine and on made-up ones."""

import io
import os
import subprocess
import sys
from importlib import metadata

import pytest
from fresh_python import run_python
from rich.console import Console

import retrax
from retrax.basics import machine
from retrax.command import doctor

VERSION = metadata.version
TIERS = ("distributed", "cluster", "mujoco", "minatar", "bsuite", "box2d", "envpool")
OTHERS = ("video", "brax", "craftax", "gymnax", "jumanji", "pgx", "xminigrid")


def printed(found, width=300):
    """The exit status, and each line that is printed, without its frame."""
    console = Console(file=io.StringIO(), width=width, color_system=None)
    status = doctor.print_report(console, found)
    lines = console.file.getvalue().replace("│", " ").splitlines()
    return status, [" ".join(line.split()) for line in lines]


def test_this_machine_is_well():
    """The tests run where the core is installed, JAX included; it lists what pyproject requires."""
    checks = doctor.report()
    assert printed(checks)[0] == 0
    found = {check.name: check for check in checks}
    assert list(found) == ["Python", "core", "JAX", *(f"{tier} tier" for tier in TIERS + OTHERS)]
    assert all(found[name].works for name in ("Python", "core", "JAX"))
    assert ":0 " in found["JAX"].detail
    core = found["core"].detail.split(", ")
    for name in ("jax", "jaxlib", "dm-haiku", "optax", "chex", "numpy", "gymnasium"):
        assert core.count(f"{name} {VERSION(name)}") == 1
    assert "mujoco" in found["mujoco tier"].detail
    assert "imageio-ffmpeg" in found["video tier"].detail
    assert not any("pytest" in check.detail for check in checks)  # developers' tools are no tier
    can_be_had = sys.version_info < (3, 11) and sys.platform == "linux"
    assert found["distributed tier"].detail.startswith("not available") != can_be_had


NEWER = {"jax": "0.99.0.dev20300101"}
NO_SUCH = ["jax", "no-such==0.7.0; extra == 'distributed'"]
OLD_RAY = ["jax", "ray>=2.48; extra == 'cluster'"]
NEVER = ["dm-reverb; python_version < '3' and extra == 'distributed'"]
CORE = "To fix core: pip install retrax"


@pytest.mark.parametrize(
    ("versions", "requires", "line", "mend", "status"),
    [
        ({"optax": None}, None, "core no optax is missing", CORE, 1),
        ({"jax": "0.4.1"}, None, "core no jax 0.4.1 is not >=0.6.2", CORE, 1),
        (NEWER, ["jax"], f"core yes jax {NEWER['jax']}, jaxlib {VERSION('jaxlib')}", "", 0),
        (
            *({"mujoco": None, "dm-control": None}, None),
            "mujoco tier no dm-control is missing; mujoco is missing",
            *('To add the mujoco tier: pip install "retrax[mujoco]"', 0),
        ),
        (
            *({}, NO_SUCH, "distributed tier no no-such is missing"),
            *("To add the distributed tier: pip install -r requirements.txt", 0),
        ),
        (
            *({"ray": "2.47.1"}, OLD_RAY, "cluster tier no ray 2.47.1 is not >=2.48"),
            *('To add the cluster tier: pip install "retrax[cluster]"', 0),
        ),
        (*({}, NEVER, "distributed tier no not available for this Python and system"), *("", 0)),
        (
            *({}, metadata.PackageNotFoundError, "core no retrax is not installed"),
            *("To fix core: pip install -e .", 1),
        ),
    ],
)
def test_what_is_missing_or_old(monkeypatch, versions, requires, line, mend, status):
    """From a package's name to its made-up version (None: missing); others are as they are."""

    def version(name):
        if versions.get(name, "") is None:
            raise metadata.PackageNotFoundError(name)
        return versions.get(name) or VERSION(name)

    def requirements(name):
        if isinstance(requires, list):
            return requires
        raise requires(name)

    monkeypatch.setattr(doctor, "devices", lambda: ["cpu:0 cpu"])  # the process takes seconds
    monkeypatch.setattr(doctor.metadata, "version", version)
    if requires is not None:
        monkeypatch.setattr(doctor.metadata, "requires", requirements)
    found, lines = printed(doctor.report())
    assert (found, line in lines) == (status, True), lines
    name = line.partition(" no ")[0]
    assert [x for x in lines if f" {name}: " in x] == ([mend] if mend else [])


def test_python_without_docstrings_is_named():
    program = "from retrax.command import doctor; doctor.devices = list; print(doctor.report()[0])"
    environment = {**os.environ, "PYTHONOPTIMIZE": "2"}
    out = run_python("-c", program, env=environment)
    assert "works=False" in out
    assert "without docstrings, which libraries need (PYTHONOPTIMIZE or -OO)" in out
    assert "mend='unset PYTHONOPTIMIZE'" in out


@pytest.mark.parametrize(
    ("program", "seconds", "line"),
    [
        ("raise ImportError('is old')", 60.0, "JAX no JAX does not start: ImportError: is old"),
        ("import os; os._exit(3)", 60.0, "JAX no JAX does not start: exit status 3"),
        ("print('no JSON')", 60.0, "JAX no JAX does not answer: "),
        ("import time; time.sleep(60)", 0.1, "JAX no JAX does not answer: "),
    ],
)
def test_jax_that_does_not_start(monkeypatch, program, seconds, line):
    monkeypatch.setattr(machine, "_DEVICES", program)
    monkeypatch.setattr(machine, "SECONDS", seconds)
    status, lines = printed(doctor.report())
    assert status == 1
    assert any(found.startswith(line) for found in lines)
    assert "To fix JAX: pip install --upgrade jax" in lines


def test_prints_within_80_columns_and_breaks_no_command():
    long = "pip install " + "x" * 100
    checks = [doctor.Check("odd", False, "[red]odd[/red]" + " x" * 100, long)]
    status, lines = printed(checks, width=80)
    assert (status, lines[-1]) == (0, f"To add the odd: {long}")
    assert max(map(len, lines[:-1])) <= 80
    assert f"retrax {retrax.__version__}" in lines
    assert any("[red]odd[/red]" in line for line in lines)


@pytest.mark.parametrize("words", [["--no-cache", "doctor"], ["doctor"]])
def test_the_command_imports_none_of_what_it_looks_at(tmp_path, words):
    """And JAX learns where programs are kept before it is imported."""
    program = f"""
import sys
from retrax.basics import machine
from retrax.command.main import main
machine._DEVICES = "print([])"  # JAX in its process takes seconds
status = main({words})
loaded = {{"tensorflow", "reverb", "acme", "launchpad", "jax", "matplotlib"}} & set(sys.modules)
assert not loaded, loaded
sys.exit(status)
"""
    command = [sys.executable, "-W", "error", "-c", program]
    env = {name: value for name, value in os.environ.items() if "_CACHE" not in name}
    env["XDG_CACHE_HOME"], keeps = str(tmp_path), len(words) == 1
    answer = subprocess.run(command, capture_output=True, text=True, timeout=180, env=env)
    assert answer.returncode == 0, answer
    kept = f"Compiled programs are cached in {tmp_path}/retrax/"
    assert (answer.stderr[: len(kept)], (tmp_path / "retrax").is_dir()) == (kept * keeps, keeps)
    assert "distributed tier" in answer.stdout
