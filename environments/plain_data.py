"""States of environments: plain data as bytes, and objects that are their attributes.

Plain data are None, bool, int, float, str, bytes, NumPy arrays and scalars without objects, NumPy's
generators, and lists, tuples, deques and dictionaries of these, of exactly these types (not sets,
whose order has no copy). What two attributes share they share again. The bytes are a pickle that
names nothing but the types and functions listed here.
"""

import collections
import enum
import io
import logging
import pathlib
import pickle
import re
import types
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

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
    """Bytes of plain data; a NotPlainError names what is none, or arrays that share memory."""
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
    """The plain data of `pack`, new ones; a ValueError if the bytes are damaged or others."""
    try:
        return _Unpickler(io.BytesIO(data)).load()
    except Exception as error:  # pickle and NumPy raise many types
        raise ValueError(f"the state is damaged ({error})") from error


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if not _is_allowed(module, name):
            raise pickle.UnpicklingError(f"{module}.{name} is not plain data")
        return super().find_class(module, name)


class _Pickler(pickle.Pickler):
    def __init__(self, file: io.BytesIO, protocol: int) -> None:
        super().__init__(file, protocol)
        self._arrays: list[np.ndarray] = []

    def reducer_override(self, value: Any) -> Any:
        """Called with all but Python's own data: with objects, and with what a pickle names."""
        kind = type(value)
        if isinstance(value, np.dtype):
            if value.hasobject or value.kind == "V":
                raise NotPlainError(f"an array of {value}")
        elif kind is np.ndarray:
            base = value.base  # an array that changes when another one, or a library, is written to
            while isinstance(base, np.ndarray):
                base = base.base
            owns = value.base is None  # two that own theirs share none
            others = [x for x in self._arrays if not (owns and x.base is None)]
            if not isinstance(base, bytes | None) or any(
                np.may_share_memory(value, other) for other in others
            ):
                raise NotPlainError("an array that shares its memory")
            self._arrays.append(value)
            if not (value.flags.c_contiguous or value.flags.f_contiguous):
                return _with_strides, (np.ascontiguousarray(value), value.strides)
        elif not isinstance(value, np.generic):
            named = value if hasattr(value, "__qualname__") else kind
            if not _is_allowed(named.__module__, named.__qualname__):
                shown = value if isinstance(value, type) else kind
                raise NotPlainError(f"a {shown.__module__}.{shown.__qualname__}")
        return NotImplemented


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


_LARGEST = object.__basicsize__ + 16  # a dictionary and a list of weak references
_IMMUTABLE: tuple[Any, ...] = (type(None), bool, int, float, complex, str, bytes, range)
_IMMUTABLE += (np.generic, np.dtype, enum.Enum, re.Pattern, pathlib.PurePath, logging.Logger)
_WITHOUT_DATA = ("builtins", "abc", "typing", "typing_extensions")  # modules of base classes


class Attributes(NamedTuple):
    """The state of one object: its attributes, without those that are `skipped`.

    They must be plain data, named tuples of them, Gymnasium's spaces (with their generators), or
    constants: functions without a closure, classes, modules. All else may hide a state. Of its
    classes' data, what can be written in place is kept, and all else must be the same.
    """

    thing: Any
    skipped: Collection[str] = ()

    def state(self) -> dict[str, Any]:
        """Values as they are, not copied (`pack` checks them), and descriptions of constants."""
        kind = type(self.thing)
        slots = any(getattr(base, "__slots__", ()) for base in kind.__mro__)
        if slots or kind.__basicsize__ > _LARGEST or not hasattr(self.thing, "__dict__"):
            raise NotPlainError(f"{kind.__qualname__} is not a plain Python class")
        values: dict[str, Any] = {}
        constants: dict[str, str] = {}
        for name, owner, value in self._data():
            described = _constant(value)
            if described is None and owner is not self.thing:
                described = _unwritten(value)
                constants[name] = type(value).__qualname__
            if described is not None:
                constants[name] = described
            elif _is_space(value):
                constants[name] = repr(value)
                values[name] = [space._np_random for space in _spaces(value)]
            elif _is_named_tuple(value):
                constants[name], values[name] = type(value).__qualname__, tuple(value)
            else:
                values[name] = value
        return {"class": kind.__qualname__, "values": values, "constants": constants}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Gives the object the attributes of another one, made in the same way, and no others."""
        here, own = self.state(), vars(self.thing)
        if here.keys() != state.keys():
            raise ValueError("the state is of another version")
        if here["class"] != state["class"]:
            raise ValueError(f"class {here['class']} instead of {state['class']}")
        ours, theirs, values = here["constants"], state["constants"], dict(state["values"])
        if ours != theirs:
            differ = [n for n in {**ours, **theirs} if ours.get(n) != theirs.get(n)]
            found = [{n: x[n] for n in differ if n in x} for x in (ours, theirs)]
            raise ValueError(f"constants {found[0]} instead of {found[1]}")
        for name, owner, value in list(self._data()):
            if name in values and _is_space(value):
                for space, generator in zip(_spaces(value), values.pop(name), strict=True):
                    space._np_random = generator
            elif name in values and owner is not self.thing:
                setattr(owner, name.rpartition(".")[2], values.pop(name))
            elif name in values:
                kept = values.pop(name)
                own[name] = type(value)(*kept) if _is_named_tuple(value) else kept
            elif name in here["values"] and owner is self.thing:
                del own[name]
        own.update(values)

    def _data(self) -> Iterator[tuple[str, Any, Any]]:
        """Data of the object and of its classes, no methods: the name, whose it is, the value."""
        for name, value in vars(self.thing).items():
            if name not in self.skipped:
                yield name, self.thing, value
        for owner in type(self.thing).__mro__:
            if owner.__module__ in _WITHOUT_DATA:
                continue
            for name, value in vars(owner).items():
                if not name.startswith(("__", "_abc_")) and not hasattr(type(value), "__get__"):
                    yield f"{owner.__module__}.{owner.__qualname__}.{name}", owner, value


def _constant(value: Any) -> str | None:
    """A description of a constant, the same in every process; None for other values."""
    if isinstance(value, types.ModuleType):
        return value.__name__
    if isinstance(value, type) or (isinstance(value, types.FunctionType) and not value.__closure__):
        return f"{value.__module__}.{value.__qualname__}"
    return None


def _unwritten(value: Any) -> str | None:
    """A description of data of a class that nobody writes in place, or that cannot be copied."""
    if isinstance(value, _IMMUTABLE) or type(value).__module__ == "typing":
        return repr(value)
    if isinstance(value, tuple | set | frozenset):
        parts = [str(_constant(part) or _unwritten(part) or "") for part in value]
        if all(parts):
            return f"{type(value).__name__} {parts if isinstance(value, tuple) else sorted(parts)}"
    return None


def _is_named_tuple(value: Any) -> bool:
    return isinstance(value, tuple) and hasattr(value, "_fields")


def _is_space(value: Any) -> bool:
    return type(value).__module__.startswith("gymnasium.spaces")


def _spaces(space: Any) -> Iterator[Any]:
    yield space
    parts = getattr(space, "spaces", ())
    for part in parts.values() if isinstance(parts, dict) else parts:
        yield from _spaces(part)
