"""Hygiene of imports: no module loads a library of an engine, or more than it needs."""

from pathlib import Path

import pytest
from fresh_python import run_python

import retrax

ROOT = Path(retrax.__file__).parent
FOLDERS = "basics losses networks agents replay environments training device evaluation command"
DISTRIBUTED = ("tensorflow", "reverb", "acme", "launchpad")
HEAVY = (*DISTRIBUTED, "courier", "ray")

# Imports each module given, and prints what it should not load.
IMPORT_EACH = f"""
import importlib, sys

for name in sys.argv[1:]:
    importlib.import_module(name)
    if loaded := {set(HEAVY)} & set(sys.modules):
        print(name, "loads", *loaded)
"""
# After the help of programs.
IMPORT_EACH_AND_HELP = IMPORT_EACH.replace(
    "for name in sys",
    """main = importlib.import_module("retrax.command.main").main
assert main(["launch", "reactor", "--help"]) == 0
print()
for name in sys""",
)


def core_modules():
    folders = [ROOT / name for name in FOLDERS.split()]
    return modules([*ROOT.glob("*.py"), *(path for x in folders for path in x.rglob("*.py"))])


def modules(paths):
    names = []
    for path in sorted(paths):
        if path.parent == ROOT / "replay" / "reverb":
            continue
        parts = ["retrax", *path.relative_to(ROOT).with_suffix("").parts]
        names.append(".".join(parts[:-1] if parts[-1] == "__init__" else parts))
    return names


def run(code, *arguments, options=()):
    return run_python(*options, "-c", code, *arguments).split("\n")[:-1]


def test_no_module_loads_a_library_of_an_engine_or_warns_while_it_is_imported():
    """Nor does the help of programs, or a module of programs beside those of the engines."""
    names = core_modules()
    assert {"retrax", "retrax.losses", "retrax.command.main"} <= set(names)
    assert not [name for name in names if "reverb" in name or "launchpad" in name]
    nodes = {*modules((ROOT / "launchpad_programs").glob("*.py"))}
    nodes -= {f"retrax.launchpad_programs.{name}" for name in ("__main__", "acme_adapters")}
    nodes |= {f"retrax.launchpad_programs.engines.{name}" for name in ("options", "threads")}
    names += sorted(nodes)
    assert run(IMPORT_EACH_AND_HELP, *names, options=["-W", "error"])[-1] == ""


@pytest.fixture
def here(tmp_path):
    """Code that makes empty modules of these names the ones that are found."""
    for name in DISTRIBUTED:
        (tmp_path / f"{name}.py").touch()
    return f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"


@pytest.mark.parametrize("name", ["retrax.losses", "retrax.agents.reactor"])
def test_a_module_alone_loads_nothing_of_the_distributed_tier(here, name):
    """In a process of its own: what another module loads first could hide what this one lacks."""
    assert run(here + IMPORT_EACH, name) == []


JAX = {"jax", "haiku", "numpy", "optax", *DISTRIBUTED}


@pytest.mark.parametrize(
    ("name", "others"),
    [
        ("retrax.command.main", JAX),
        ("retrax.launchpad_programs.launch_command", JAX),  # before NumPy's threads: `isolation`
        ("retrax.environments", {"gymnasium", "ale_py", "dm_control", "mujoco"}),
        ("retrax.launchpad_programs.engines.launchpad", {"tensorflow", "reverb"}),
    ],
)
def test_what_must_be_quick_loads_little(name, others):
    if name.endswith("launchpad"):
        pytest.importorskip("courier")
    assert run(f"import sys, {name}\nprint(*{others} & set(sys.modules))") == [""]
