"""Plain data as bytes: what environments' states are made of. Nothing in them is ever executed.

Plain data are None, bool, int, float, str, bytes, NumPy arrays and scalars without objects, NumPy's
generators, and lists, tuples, deques and dictionaries of these, of exactly these types (not sets,
whose order has no copy). What occurs in two places (a generator that two attributes share) occurs
in two places again. Arrays keep their order in memory.

The bytes are a pickle that names nothing but the types and functions listed here.
"""

import collections
import io
import pickle
from collections.abc import Sequence
from typing import Any

import numpy as np

_PROTOCOL = 3  # later ones write sets without naming their type
_GENERATORS = "numpy.random."
_ALLOWED = {
    "collections.deque",
    "numpy.dtype",
    "numpy.ndarray",
    "numpy.core.multiarray._reconstruct",
    "numpy.core.multiarray.scalar",
    *(f"{_GENERATORS}_{name.lower()}.{name}" for name in ("PCG64", "MT19937", "Philox", "SFC64")),
    f"{_GENERATORS}_pcg64.PCG64DXSM",
    f"{_GENERATORS}_generator.Generator",
    f"{_GENERATORS}mtrand.RandomState",  # NumPy's older generator, which dm_control uses
    f"{_GENERATORS}bit_generator.SeedSequence",
    f"{_GENERATORS}bit_generator.__pyx_unpickle_SeedSequence",
    *(f"{_GENERATORS}_pickle.__{name}_ctor" for name in ("bit_generator", "generator")),
    f"{_GENERATORS}_pickle.__randomstate_ctor",
    f"{__name__}._with_strides",
}


class NotPlainError(ValueError):
    """Something is not plain data; the message names it."""


def pack(value: Any, name: str = "the state") -> bytes:
    """Bytes of plain data.

    Args:
      value: the data.
      name: of the data, for errors.

    Raises:
      NotPlainError: names what is not plain data, or that two arrays share a part of their memory.
    """
    file = io.BytesIO()
    try:
        _Pickler(file, _PROTOCOL).dump(value)
    except NotPlainError as error:
        items = value.items() if type(value) is dict else ()
        parts = value if type(value) in (list, tuple, collections.deque) else ()
        for key, part in [*items, *((name, part) for part in parts)]:
            pack(part, str(key))  # names the innermost key
        raise NotPlainError(f"{name} is {error}") from None
    return file.getvalue()


def unpack(data: bytes) -> Any:
    """The plain data of `pack`: new arrays, generators and containers.

    Raises:
      ValueError: the bytes are damaged, or not plain data.
    """
    try:
        return _Unpickler(io.BytesIO(data)).load()
    except Exception as error:  # pickle and NumPy raise many types
        raise ValueError(f"the state is damaged ({error})") from error


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if not _is_allowed(module, name):
            raise pickle.UnpicklingError(f"{module}.{name} is no plain data")
        return super().find_class(module, name)


class _Pickler(pickle.Pickler):
    def __init__(self, file: io.BytesIO, protocol: int) -> None:
        super().__init__(file, protocol)
        self._arrays: list[np.ndarray] = []
        self._views: list[np.ndarray] = []

    def reducer_override(self, value: Any) -> Any:
        """Called with all but Python's own data: with objects, and with what a pickle names."""
        kind = type(value)
        if isinstance(value, np.dtype):
            if value.hasobject or value.kind == "V":
                raise NotPlainError(f"an array of {value}")
        elif kind is np.ndarray:
            self._check_memory(value)
            if not (value.flags.c_contiguous or value.flags.f_contiguous):
                return _with_strides, (np.ascontiguousarray(value), value.strides)
        elif not isinstance(value, np.generic):
            named = value if hasattr(value, "__qualname__") else kind
            if not _is_allowed(named.__module__, named.__qualname__):
                shown = value if isinstance(value, type) else kind
                raise NotPlainError(f"a {shown.__module__}.{shown.__qualname__}")
        return NotImplemented

    def _check_memory(self, array: np.ndarray) -> None:
        """Refuses an array that changes when another one, or a library, is written to."""
        base = array.base
        while isinstance(base, np.ndarray):
            base = base.base
        others = self._views if array.base is None else self._arrays
        if not isinstance(base, bytes | None) or any(
            np.may_share_memory(array, other) for other in others
        ):
            raise NotPlainError("an array that shares its memory")
        self._arrays.append(array)
        if array.base is not None:
            self._views.append(array)


def _is_allowed(module: str, name: str) -> bool:
    # NumPy 2 has renamed its core.
    return f"{module}.{name}".replace("numpy._core.", "numpy.core.") in _ALLOWED


def _with_strides(array: np.ndarray, strides: Sequence[int]) -> np.ndarray:
    """A copy that lies in memory as `strides` say: the last bits of sums depend on it."""
    ends = [stride * (count - 1) for stride, count in zip(strides, array.shape, strict=True)]
    before, behind = -sum(min(end, 0) for end in ends), sum(max(end, 0) for end in ends)
    memory = np.zeros(before + behind + array.itemsize, np.uint8)
    placed: np.ndarray = np.ndarray(array.shape, array.dtype, memory, before, tuple(strides))
    placed[...] = array
    return placed
