"""Plain data as bytes: what environments' states are made of. Nothing in them is ever executed.

Plain data are None, bool, int, float, str, bytes, NumPy arrays and scalars without objects, NumPy's
generators, and lists, tuples, deques and dictionaries of these, of exactly these types (not sets,
whose order has no copy). What occurs in two places (a generator that two attributes share) occurs
in two places again. Arrays keep their order in memory.

The bytes are the length of a JSON text, the text, and the contents of the arrays one after another.
In the text, lists and dictionaries with other contents stand as `{"kind": ..., ...}`.
"""

import collections
import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

_LENGTH = 8  # bytes of the length of the text
_AS_THEY_ARE = (type(None), bool, int, float, str)
_CONTAINERS = (list, tuple, collections.deque)
_BIT_GENERATORS = ("PCG64", "PCG64DXSM", "MT19937", "Philox", "SFC64")
_RANDOM_STATE = "RandomState"  # NumPy's older generator, which dm_control uses


class NotPlainError(ValueError):
    """Something is not plain data; the message names it."""


def pack(value: Any) -> bytes:
    """Bytes of plain data.

    Raises:
      NotPlainError: names what is not plain data, or that two arrays share a part of their memory.
    """
    packer = _Packer()
    text = json.dumps(packer.encode(value, "the state")).encode()
    return b"".join([len(text).to_bytes(_LENGTH, "little"), text, *packer.contents])


def unpack(data: bytes) -> Any:
    """The plain data of `pack`: new arrays, generators and containers.

    Raises:
      ValueError: the bytes are damaged.
    """
    try:
        end = _LENGTH + int.from_bytes(data[:_LENGTH], "little")
        return _Unpacker(memoryview(data)[end:]).decode(json.loads(data[_LENGTH:end]))
    except Exception as error:  # JSON and NumPy raise many types
        raise ValueError(f"the state is damaged ({error})") from error


class _Packer:
    def __init__(self) -> None:
        self.contents: list[bytes] = []
        self._numbers: dict[int, int] = {}  # by id, of what has been encoded
        self._kept: list[Any] = []  # alive, so that no id is used twice
        self._arrays: list[np.ndarray] = []
        self._views: list[np.ndarray] = []

    def encode(self, value: Any, name: str) -> Any:
        kind = type(value)
        if kind in _AS_THEY_ARE:
            return value
        if id(value) in self._numbers:
            return {"kind": "again", "number": self._numbers[id(value)]}
        self._numbers[id(value)] = len(self._kept)
        self._kept.append(value)
        if kind is bytes:
            self.contents.append(value)
            return {"kind": "bytes", "size": len(value)}
        if kind is np.ndarray:
            self._check_memory(value, name)
            return self._array(value, name)
        if isinstance(value, np.generic):
            return {**self._array(np.asarray(value), name), "kind": "scalar"}
        if kind is np.random.Generator and type(value.bit_generator).__name__ in _BIT_GENERATORS:
            return {"kind": "generator", "state": self.encode(value.bit_generator.state, name)}
        if kind.__name__ == _RANDOM_STATE and isinstance(value, getattr(np.random, _RANDOM_STATE)):
            state = value.get_state(legacy=False)
            return {"kind": _RANDOM_STATE, "state": self.encode(state, name)}
        if kind is dict:
            pairs = [[self.encode(k, name), self.encode(v, str(k))] for k, v in value.items()]
            return {"kind": "dict", "items": pairs}
        if kind in _CONTAINERS:
            items = [self.encode(item, name) for item in value]
            described = {"kind": kind.__name__, "items": items}
            return described | ({"maxlen": value.maxlen} if kind is collections.deque else {})
        raise NotPlainError(f"{name} is a {kind.__module__}.{kind.__qualname__}")

    def _array(self, value: np.ndarray, name: str) -> dict[str, Any]:
        if value.dtype.hasobject or value.dtype.kind == "V":
            raise NotPlainError(f"{name} is an array of {value.dtype}")
        self.contents.append(value.tobytes())
        size = len(self.contents[-1])
        described = {"kind": "array", "type": value.dtype.str, "shape": value.shape, "size": size}
        # The order in memory is also that of sums, whose last bits depend on it.
        return described if value.flags.c_contiguous else {**described, "strides": value.strides}

    def _check_memory(self, array: np.ndarray, name: str) -> None:
        """Refuses an array that changes when another one, or a library, is written to."""
        base = array.base
        while isinstance(base, np.ndarray):
            base = base.base
        others = self._views if array.base is None else self._arrays
        if not isinstance(base, bytes | None) or any(
            np.may_share_memory(array, other) for other in others
        ):
            raise NotPlainError(f"{name} is an array that shares its memory")
        self._arrays.append(array)
        if array.base is not None:
            self._views.append(array)


class _Unpacker:
    def __init__(self, contents: memoryview) -> None:
        self._contents = contents
        self._position = 0
        self._made: list[Any] = []

    def decode(self, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        if value["kind"] == "again":
            return self._made[value["number"]]
        place = len(self._made)  # in the order in which the packer saw them
        self._made.append(None)
        self._made[place] = made = self._make(value["kind"], value, place)
        return made

    def _make(self, kind: str, value: dict[str, Any], place: int) -> Any:
        if kind == "bytes":
            return self._take(value["size"])
        if kind in ("array", "scalar"):
            content = self._take(value["size"])
            array: Any = np.ndarray(value["shape"], np.dtype(value["type"]), content).copy()
            if "strides" in value:
                array = _with_strides(array, value["strides"])
            return array if kind == "array" else array[()]
        if kind in ("generator", _RANDOM_STATE):
            return _generator(kind, self.decode(value["state"]))
        if kind == "dict":
            pairs: dict[Any, Any] = {}
            self._made[place] = pairs
            for key, item in value["items"]:
                key = self.decode(key)
                pairs[key] = self.decode(item)
            return pairs
        items = map(self.decode, value["items"])
        if kind == "tuple":
            return tuple(items)
        growing: Any = collections.deque(maxlen=value["maxlen"]) if kind == "deque" else []
        self._made[place] = growing
        growing.extend(items)
        return growing

    def _take(self, size: int) -> bytes:
        content = bytes(self._contents[self._position : self._position + size])
        if len(content) != size:
            raise ValueError("it ends too early")
        self._position += size
        return content


def _with_strides(array: np.ndarray, strides: Sequence[int]) -> np.ndarray:
    """A copy that lies in memory as `strides` say."""
    ends = [stride * (count - 1) for stride, count in zip(strides, array.shape, strict=True)]
    before, behind = -sum(min(end, 0) for end in ends), sum(max(end, 0) for end in ends)
    memory = np.zeros(before + behind + array.itemsize, np.uint8)
    placed: np.ndarray = np.ndarray(array.shape, array.dtype, memory, before, tuple(strides))
    placed[...] = array
    return placed


def _generator(kind: str, state: dict[str, Any]) -> Any:
    name = state["bit_generator"]
    if name not in _BIT_GENERATORS:
        raise ValueError(f"there is no generator {name}")
    make: Callable[[], Any] = getattr(np.random, name)
    if kind == _RANDOM_STATE:
        made = getattr(np.random, _RANDOM_STATE)(make())
        made.set_state(state)
        return made
    bits = make()
    bits.state = state
    return np.random.Generator(bits)
