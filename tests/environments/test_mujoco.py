import os
import sys

import pytest

from retrax.environments import mujoco


@pytest.fixture
def bare(monkeypatch):
    """Linux without a screen; returns the list of libraries that can be loaded, an empty one."""
    for name in ("MUJOCO_GL", "DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sys, "platform", "linux")
    libraries = []
    monkeypatch.setattr(mujoco, "_loads", libraries.__contains__)
    yield libraries
    monkeypatch.delenv("MUJOCO_GL", raising=False)  # what choose_backend set is not undone else


@pytest.mark.parametrize(
    ("libraries", "backend"),
    [
        (["libEGL.so.1"], "egl"),
        (["libOSMesa.so.6"], "osmesa"),
        (["libOSMesa.so.8"], "osmesa"),
        (["libOSMesa.so.8", "libEGL.so.1"], "egl"),
        ([], "disable"),
    ],
)
def test_without_a_screen_the_first_library_is_taken(bare, libraries, backend):
    bare.extend(libraries)
    mujoco.choose_backend()
    assert os.environ["MUJOCO_GL"] == backend


@pytest.mark.parametrize("screen", ["DISPLAY", "WAYLAND_DISPLAY"])
def test_with_a_screen_nothing_is_set(bare, monkeypatch, screen):
    monkeypatch.setenv(screen, ":0")
    mujoco.choose_backend()
    assert "MUJOCO_GL" not in os.environ


def test_the_users_choice_stays(bare, monkeypatch):
    bare.append("libEGL.so.1")
    monkeypatch.setenv("MUJOCO_GL", "osmesa")
    mujoco.choose_backend()
    assert os.environ["MUJOCO_GL"] == "osmesa"


def test_other_systems_choose_for_themselves(bare, monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    mujoco.choose_backend()
    assert "MUJOCO_GL" not in os.environ


def test_libraries_are_looked_for():
    assert not mujoco._loads("libNoSuchLibrary.so.1")
    if sys.platform == "linux":
        assert mujoco._loads("libc.so.6")


@pytest.mark.parametrize(
    ("error", "why"), [(ValueError("one\ntwo"), r"\(one\)"), (KeyError(), r"\(KeyError\)")]
)
def test_a_failure_is_one_sentence(bare, error, why):
    sentence = rf"MUJOCO_GL= {why}: without a screen .*libegl1"
    with pytest.raises(ImportError, match=sentence) as told, mujoco.drawing():
        raise error
    assert "\n" not in str(told.value)
    assert told.value.__cause__ is error
