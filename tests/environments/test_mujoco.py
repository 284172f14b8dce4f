import os
import sys

import pytest

from retrax.environments import mujoco


@pytest.mark.parametrize(
    ("libraries", "platform", "variables", "backend"),
    [
        (["libEGL.so.1"], "linux", {}, "egl"),
        (["libOSMesa.so.6"], "linux", {}, "osmesa"),
        (["libOSMesa.so.8", "libEGL.so.1"], "linux", {}, "egl"),
        ([], "linux", {}, "disable"),
        ([], "linux", {"DISPLAY": ":0"}, None),
        ([], "linux", {"WAYLAND_DISPLAY": ":0"}, None),
        (["libEGL.so.1"], "linux", {"MUJOCO_GL": "osmesa"}, "osmesa"),
        ([], "darwin", {}, None),
    ],
)
def test_without_a_screen_the_first_library_is_taken(
    monkeypatch, libraries, platform, variables, backend
):
    for name in ("MUJOCO_GL", "DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.setattr(mujoco, "_loads", libraries.__contains__)
    mujoco.choose_backend()
    try:
        assert os.environ.get("MUJOCO_GL") == backend
    finally:
        os.environ.pop("MUJOCO_GL", None)  # what it set is not undone else


def test_libraries_are_looked_for():
    assert not mujoco._loads("libNoSuchLibrary.so.1")
    if sys.platform == "linux":
        assert mujoco._loads("libc.so.6")


@pytest.mark.parametrize(
    ("error", "why"), [(ValueError("one\ntwo"), r"\(one\)"), (KeyError(), r"\(KeyError\)")]
)
def test_a_failure_is_one_sentence(monkeypatch, error, why):
    monkeypatch.setenv("MUJOCO_GL", "egl")
    sentence = rf"MUJOCO_GL=egl {why}: without a screen .*libegl1"
    with pytest.raises(ImportError, match=sentence) as told, mujoco.drawing():
        raise error
    assert "\n" not in str(told.value)
    assert told.value.__cause__ is error
