"""Hygiene of imports: the core loads nothing of the distributed tier, whatever came before."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

import retrax
from retrax.basics import libraries

ROOT = Path(retrax.__file__).parent
FOLDERS = (
    *("basics", "losses", "networks", "agents", "replay", "environments"),
    *("training", "device", "evaluation", "command"),
)
DISTRIBUTED = ("tensorflow", "reverb", "acme", "launchpad")

# Imports each module given, and prints what it should not load.
IMPORT_EACH = f"""
import importlib, sys

def loaded():
    return {{name: sys.modules[name] for name in {DISTRIBUTED} if name in sys.modules}}

before = loaded()
for name in sys.argv[1:]:
    importlib.import_module(name)
    after = loaded()
    changed = [key for key in before | after if before.get(key) is not after.get(key)]
    if changed:
        print(name, "changes", *changed)
"""
# As if it were the first of ours.
IMPORT_EACH_FIRST = IMPORT_EACH.replace(
    "    importlib",
    """    for module in [module for module in sys.modules if module.split(".")[0] == "retrax"]:
        del sys.modules[module]
    importlib""",
)


def core_modules():
    paths = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")]
    paths += ROOT.glob("*.py")
    names = []
    for path in sorted(paths):
        if path.parent == ROOT / "replay" / "reverb":
            continue
        parts = ["retrax", *path.relative_to(ROOT).with_suffix("").parts]
        names.append(".".join(parts[:-1] if parts[-1] == "__init__" else parts))
    return names


def run(code, *arguments, options=()):
    """What a fresh Python prints; an error in it is an error of the test."""
    command = [sys.executable, *options, "-c", code, *arguments]
    result = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert result.returncode == 0, result.stderr
    return result.stdout.split("\n")[:-1]


def test_finds_the_modules():
    names = core_modules()
    assert {"retrax", "retrax.basics.libraries", "retrax.losses", "retrax.agents.reactor"} <= set(
        names
    )
    assert "retrax.command.main" in names
    assert not [name for name in names if "reverb" in name or "launchpad" in name]


def test_no_module_loads_the_distributed_tier_or_warns_while_it_is_imported():
    assert run(IMPORT_EACH_FIRST, *core_modules(), options=["-W", "error"]) == []


@pytest.mark.parametrize("name", ["retrax.losses", "retrax.agents.reactor", "retrax.command.main"])
def test_a_module_alone_loads_nothing_of_the_distributed_tier(name):
    """In a process of its own: what another module loads first could hide what this one lacks."""
    assert run(IMPORT_EACH, name) == []


def test_the_check_sees_what_is_loaded(tmp_path):
    (tmp_path / "tensorflow.py").touch()
    (tmp_path / "culprit.py").write_text("import tensorflow")
    for loop in (IMPORT_EACH, IMPORT_EACH_FIRST):
        code = f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n{loop}"
        assert run(code, "retrax.basics.validation", "culprit") == ["culprit changes tensorflow"]


def test_the_check_sees_what_one_module_hides_from_the_next(tmp_path):
    """One that is imported first as `IMPORT_EACH_FIRST` does it, not only after another."""
    (tmp_path / "tensorflow.py").touch()
    package = tmp_path / "retrax"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "hiding.py").write_text("import sys; sys.modules['retrax.loader'] = sys")
    (package / "loader.py").write_text("import tensorflow")
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
    names = ("retrax.hiding", "retrax.loader")
    assert run(code + IMPORT_EACH, *names) == []
    assert run(code + IMPORT_EACH_FIRST, *names) == ["retrax.loader changes tensorflow"]


@pytest.mark.parametrize(
    "first",
    [
        pytest.param(
            name,
            marks=pytest.mark.skipif(
                importlib.util.find_spec(name.split(".")[0]) is None,
                reason=f"{name.split('.')[0]} is not installed",
            ),
        )
        for name in ("tensorflow", "reverb", "acme", "acme.adders.reverb", "launchpad")
    ],
)
def test_imports_after_the_distributed_tier(first):
    """And leaves what was loaded as it was, TensorFlow above all."""
    code = f"import {first}\n{IMPORT_EACH}"
    assert run(code, *core_modules()) == []


def test_a_distributed_tier_that_comes_later_still_works():
    """Nothing of ours leaves `sys.modules` in a state that hides TensorFlow."""
    code = (
        "import importlib.util, sys, retrax.basics.libraries\n"
        "print('tensorflow' in sys.modules, importlib.util.find_spec('tensorflow') is not None)"
    )
    installed = importlib.util.find_spec("tensorflow") is not None
    assert run(code) == [f"False {installed}"]


def test_environments_load_no_simulator():
    code = (
        "import sys, retrax.environments\n"
        "print(*{'gymnasium', 'ale_py', 'dm_control', 'mujoco'} & set(sys.modules))"
    )
    assert run(code) == [""]


@pytest.mark.parametrize(
    "name",
    [
        "retrax",
        "retrax.basics.validation",
        "retrax.command.main",
        "retrax.launchpad_programs.launch_command",  # before NumPy's threads: see `isolation`
    ],
)
def test_what_must_be_quick_loads_no_jax(name):
    code = f"import sys, {name}\nprint(*{{'jax', 'haiku', 'numpy', 'rlax'}} & set(sys.modules))"
    assert run(code) == [""]


def test_tensorflow_is_hidden_and_put_back(monkeypatch):
    stand_in = object()
    monkeypatch.setitem(sys.modules, "tensorflow", stand_in)
    with libraries._without_tensorflow(), pytest.raises(ImportError, match="tensorflow"):
        import tensorflow  # noqa: F401
    assert sys.modules["tensorflow"] is stand_in


def test_an_absent_tensorflow_stays_absent_even_after_an_error(monkeypatch):
    monkeypatch.delitem(sys.modules, "tensorflow", raising=False)

    def fail():
        with libraries._without_tensorflow():
            raise OSError("while importing")

    with pytest.raises(OSError, match="while importing"):
        fail()
    assert "tensorflow" not in sys.modules
