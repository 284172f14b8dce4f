"""MuJoCo: the complete state of a simulation, and OpenGL without a screen.

The variable MUJOCO_GL says how to draw: `glfw` in a window (tried first without it), `egl` on a GPU
or in Mesa's software, `osmesa` in software, `disable` not at all.
"""

import contextlib
import ctypes
import hashlib
import os
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ..basics.sentences import first_line

_LARGE = 65_536  # bytes of an array of the model that is kept only if it has changed


class MujocoState:
    """All arrays of a simulation's data, and what changed in its model since this was made.

    `mj_getState` leaves out what follows from the state (`xpos`, sensors), which tasks read before
    it is computed again. Some tasks change their model; of its large arrays, changed ones are kept.
    """

    def __init__(self, model: Any, data: Any) -> None:
        import mujoco  # where a simulation is, it has been imported

        self._forward = mujoco.mj_forward
        self._model, self._data = model, data
        large = {name: array for name, array in _arrays(model).items() if array.nbytes > _LARGE}
        self._digests = {name: _digest(array) for name, array in large.items()}
        # Arrays of contacts and constraints have another size at each step, and none here.
        found = _arrays(mujoco.MjData(model))
        self._shapes = {name: array.shape for name, array in found.items() if array.size}

    def state(self) -> dict[str, Any]:
        """See `Resumable`."""
        unchanged, data, model = self._unchanged(), _arrays(self._data), _arrays(self._model)
        return {
            "time": float(self._data.time),
            "data": {name: data[name].copy() for name in self._shapes},
            "model": {name: x.copy() for name, x in model.items() if name not in unchanged},
            "unchanged": unchanged,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """See `Resumable`."""
        model, unchanged = _arrays(self._model), self._unchanged()
        if (
            self._shapes != {name: array.shape for name, array in state["data"].items()}
            or model.keys() != state["model"].keys() | state["unchanged"].keys()
            or any(model[name].shape != array.shape for name, array in state["model"].items())
            or any(unchanged.get(name) != found for name, found in state["unchanged"].items())
        ):
            raise ValueError("the physics model is a different one")
        for name, array in state["model"].items():
            model[name][:] = array
        self._write(state)
        self._forward(self._model, self._data)  # contacts and constraints
        self._write(state)

    def _unchanged(self) -> dict[str, str]:
        """Digests of large arrays of the model that are as they were."""
        arrays = _arrays(self._model)
        return {name: x for name, x in self._digests.items() if _digest(arrays[name]) == x}

    def _write(self, state: Mapping[str, Any]) -> None:
        self._data.time = state["time"]
        for name, array in state["data"].items():
            getattr(self._data, name)[:] = array


def _arrays(struct: Any) -> dict[str, np.ndarray]:
    """All arrays of a model or of data, by name; views."""
    named = ((name, getattr(struct, name)) for name in dir(struct) if name[0] != "_")
    return {name: value for name, value in named if isinstance(value, np.ndarray)}


def _digest(array: np.ndarray) -> str:
    return hashlib.blake2b(array.tobytes(), digest_size=16).hexdigest()


_VARIABLE = "MUJOCO_GL"
_SCREENS = ("DISPLAY", "WAYLAND_DISPLAY")
_LIBRARIES = (("egl", "libEGL.so.1"), ("osmesa", "libOSMesa.so.8"), ("osmesa", "libOSMesa.so.6"))


def choose_backend() -> None:
    """Sets MUJOCO_GL if it is unset, on Linux without a screen; call it before the imports."""
    if sys.platform != "linux" or any(map(os.environ.get, (_VARIABLE, *_SCREENS))):
        return
    os.environ[_VARIABLE] = next((name for name, file in _LIBRARIES if _loads(file)), "disable")


@contextlib.contextmanager
def drawing() -> Iterator[None]:
    """Replaces any error of the block by an ImportError: the reason, and what drawing needs."""
    try:
        yield
    except Exception as error:  # mujoco, PyOpenGL and ctypes have many, and no common one
        raise ImportError(
            f"MuJoCo cannot draw with {_VARIABLE}={os.environ.get(_VARIABLE, '')} "
            f"({first_line(error)}): without a screen it needs {_VARIABLE}=egl before Python "
            "starts, and the libraries of `apt-get install libegl1 libgl1`."
        ) from error


def _loads(library: str) -> bool:
    with contextlib.suppress(OSError):
        ctypes.CDLL(library)
        return True
    return False
