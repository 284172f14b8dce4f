"""The doctor's report, on this machine and on made-up ones."""

import builtins
import io
import os
import subprocess
import sys
from importlib import metadata

import ale_py.roms
import pytest
from rich.console import Console

import retrax
from retrax.basics import subprocess_probe as subprocess_probe
from retrax.experiments import doctor

CHECKS = [
    "Python",
    "core",
    "JAX",
    "distributed tier",
    "cluster tier",
    "mujoco tier",
    "minatar tier",
    "bsuite tier",
    "video tier",
    "programs",
    "Atari ROMs",
]
PICTURES = "MuJoCo rendering"
REAL_DEVICES, REAL_ASK = doctor.devices, doctor.ask


@pytest.fixture
def no_jax_process(monkeypatch):
    """Takes JAX's and MuJoCo's answers for granted: the processes take seconds."""
    monkeypatch.setattr(doctor, "devices", lambda: ["cpu:0 cpu"])
    monkeypatch.setattr(doctor, "ask", lambda program: "egl")
    monkeypatch.setattr(doctor.shutil, "which", lambda _: None)


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


def hide(monkeypatch, name):
    """Makes `import name` fail, as if it were not installed."""
    original = builtins.__import__

    def refuse(module, *args, **kwargs):
        if module.split(".")[0] == name:
            raise ModuleNotFoundError(f"No module named {name!r}")
        return original(module, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", refuse)


def test_this_machine_is_well():
    """The tests run where the core is installed, JAX included."""
    found = doctor.report()
    assert status_of(found) == 0
    depends = ("GPU", PICTURES)  # on the machine, on the extra
    names = [check.name for check in found if check.name not in depends]
    assert names == [*CHECKS, "free memory"]
    assert all(find(found, name).works for name in ("Python", "core", "JAX", "Atari ROMs"))
    assert ":0 " in find(found, "JAX").detail
    assert find(found, "Atari ROMs").detail == f"{len(ale_py.roms.get_all_rom_ids())} games"
    assert find(found, "free memory").detail.endswith(" GiB")
    if find(found, "mujoco tier").works:
        pictures = find(found, PICTURES)
        assert pictures.works or "it needs MUJOCO_GL=egl" in pictures.detail


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


@pytest.mark.parametrize(
    ("reverb", "ray", "expected"),
    [
        ("0.7.0", "2.48.0", (True, "Launchpad (default), Ray", None)),
        ("0.7.0", None, (True, "Launchpad (default)", None)),
        (None, "2.60.0", (True, "Ray (default)", None)),
        (None, "2.47.1", (False, "neither Launchpad nor Ray", 'pip install "retrax[cluster]"')),
    ],
)
def test_engines_of_programs_are_named(required, installed, reverb, ray, expected):
    tiers = ["dm-reverb==0.7.0; extra == 'distributed'", "ray>=2.48; extra == 'cluster'"]
    required.extend(["jax", *tiers])
    installed.update({"dm-reverb": reverb, "ray": ray})
    assert find(doctor.report(), "programs") == ("programs", *expected)


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


@pytest.mark.parametrize("name", ["packaging", "psutil", "ale_py"])
def test_survives_a_missing_module(monkeypatch, no_jax_process, name):
    hide(monkeypatch, name)
    found = doctor.report()
    assert status_of(found) == int(name == "packaging")
    assert any(not check.works and check.mend for check in found)


def test_wrong_python(monkeypatch, no_jax_process):
    monkeypatch.setattr(doctor.sys, "version_info", (3, 9, 1))
    check = doctor._python()
    assert not check.works
    assert check.detail.endswith("retrax needs 3.10 or newer")


def test_python_without_docstrings_is_named():
    program = "from retrax.experiments import doctor; print(doctor._python())"
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
    monkeypatch.setattr(doctor, "ask", lambda program: "egl")
    check = find(doctor.report(), "JAX")
    assert not check.works
    assert check.detail.startswith(detail)
    assert check.mend


def test_broken_jax_is_a_failure(monkeypatch, no_jax_process):
    monkeypatch.setattr(subprocess_probe, "_DEVICES", "import no_such_jax")
    monkeypatch.setattr(doctor, "devices", REAL_DEVICES)
    found = doctor.report()
    assert status_of(found) == 1
    assert "No module named 'no_such_jax'" in find(found, "JAX").detail
    assert find(found, "JAX").mend == "pip install --upgrade jax"


def test_gpu_that_jax_does_not_see(monkeypatch, installed):
    installed["jax"] = "0.6.2"
    monkeypatch.setattr(doctor.shutil, "which", lambda name: f"/bin/{name}")
    found = doctor.report()
    assert find(found, "GPU").mend == 'pip install "jax[cuda12]==0.6.2"'
    assert status_of(found) == 0
    assert doctor._idle_gpu(doctor.Check("JAX", True, "gpu:0 NVIDIA H200")) == []


def pictures(monkeypatch, program, backend=None):
    """What the doctor says of MuJoCo's pictures when its program is another."""
    original = metadata.version
    monkeypatch.setattr(
        doctor.metadata, "version", lambda name: "3.17.0" if name == "mujoco" else original(name)
    )
    monkeypatch.setattr(doctor, "_MUJOCO_PROGRAM", program)
    monkeypatch.setattr(doctor, "ask", REAL_ASK)
    monkeypatch.delenv("MUJOCO_GL", raising=False)
    if backend:
        monkeypatch.setenv("MUJOCO_GL", backend)
    return find(doctor.report(), PICTURES)


def test_mujoco_that_draws(monkeypatch, no_jax_process):
    check = pictures(monkeypatch, "print('\"egl\"')")
    assert check == (PICTURES, True, "drawn by egl", None)


@pytest.mark.parametrize(
    ("backend", "mend"), [(None, "apt-get install libegl1 libgl1"), ("glfw", "unset MUJOCO_GL")]
)
def test_mujoco_that_cannot_draw(monkeypatch, no_jax_process, backend, mend):
    check = pictures(monkeypatch, "raise ImportError('MuJoCo cannot draw')", backend)
    detail = "does not start: ImportError: MuJoCo cannot draw"
    assert check == (PICTURES, False, detail, mend)


def test_without_mujoco_nothing_is_drawn(installed):
    installed["mujoco"] = None
    assert PICTURES not in [check.name for check in doctor.report()]


def test_no_roms(monkeypatch, tmp_path, no_jax_process):
    monkeypatch.setenv("ALE_ROMS_DIR", str(tmp_path))
    found = doctor.report()
    assert find(found, "Atari ROMs") == ("Atari ROMs", False, "none found", "unset ALE_ROMS_DIR")
    assert status_of(found) == 0


def test_rom_search_is_silent(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("ALE_ROMS_DIR", str(tmp_path))
    with pytest.raises(FileNotFoundError, match="none found"):
        doctor._roms()
    assert capsys.readouterr() == ("", "")


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
from retrax.experiments.commands.main import main
status = main(["doctor"])
loaded = {"tensorflow", "reverb", "acme", "launchpad", "jax", "matplotlib"} & set(sys.modules)
assert not loaded, loaded
sys.exit(status)
"""
    command = [sys.executable, "-W", "error", "-c", program]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=180)
    assert (answer.returncode, answer.stderr) == (0, ""), answer
    assert "Atari ROMs" in answer.stdout
