"""OpenGL for MuJoCo without a screen: choice of the backend, and errors where there is none.

MuJoCo, dm_control and Gymnasium read the variable MUJOCO_GL: `glfw` opens a window, `egl` draws on
a GPU or in Mesa's software, `osmesa` in software. Without it they try a window first.
"""

import contextlib
import ctypes
import os
import sys
from collections.abc import Iterator

from ..basics.sentences import first_line

_VARIABLE = "MUJOCO_GL"
_SCREENS = ("DISPLAY", "WAYLAND_DISPLAY")
_LIBRARIES = (("egl", "libEGL.so.1"), ("osmesa", "libOSMesa.so.8"), ("osmesa", "libOSMesa.so.6"))


def choose_backend() -> None:
    """Sets MUJOCO_GL if it is unset, on Linux without a screen; call it before the imports.

    It becomes `egl` or `osmesa`, whichever library can be loaded first, or `disable`: then
    everything except drawing works.
    """
    if sys.platform != "linux" or any(map(os.environ.get, (_VARIABLE, *_SCREENS))):
        return
    os.environ[_VARIABLE] = next((name for name, file in _LIBRARIES if _loads(file)), "disable")


@contextlib.contextmanager
def drawing() -> Iterator[None]:
    """Replaces any error of the block by one sentence.

    Raises:
      ImportError: the block failed; the message gives the reason and what drawing needs.
    """
    try:
        yield
    except Exception as error:  # mujoco, PyOpenGL and ctypes have many, and no common one
        raise ImportError(
            f"MuJoCo cannot draw with {_VARIABLE}={os.environ.get(_VARIABLE, '')} "
            f"({first_line(error)}): without a screen it needs {_VARIABLE}=egl before Python "
            "starts, and the libraries of `apt-get install libegl1 libgl1`."
        ) from error


def _loads(library: str) -> bool:
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True
