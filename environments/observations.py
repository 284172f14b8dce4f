"""Observations of other libraries: compared with their space at every step, put into one array.

A space (of Gymnasium, or a spec of dm_env) becomes a tree: a `Part` is one array, a `Group` a
dictionary or a tuple of parts. Keys, shapes, kinds and limits of integers are checked, floats later
and all together. `check_environment` reads strictly: it asks the library, which knows bounds.
"""

import warnings
from collections.abc import Callable, Hashable, Mapping
from typing import Any, TypeAlias

import numpy as np
from dm_env import specs

_WHITE = 255
_SIDE = 16  # pixels of an image whose channels may come first
_SHOWN = 80  # characters of a wrong value in an error
_NUMBERS, _INTEGERS = "biuf", "biu"  # NumPy's letters of kinds

Limits: TypeAlias = tuple[Any, Any]


class MisfitError(ValueError):
    """`what` came at a place (`where`, as in `['arm'][2]`), and what its space says."""

    def __init__(self, what: str, where: str = "") -> None:
        super().__init__(f"observation{where} {what}.")
        self.what, self.where = what, where


class Part:
    """One array of an observation, which becomes `size` numbers (as many as it has if None).

    `write` puts values into their place; integers (with `limits`) as distances from the least. One
    category (the first is given) of the usual types is read without making an array of it.
    """

    def __init__(
        self,
        space: Any,
        write: Callable[[np.ndarray, np.ndarray], None],
        *,
        size: int | None = None,
        limits: Limits | None = None,
        category: int | None = None,
    ) -> None:
        self._space, self._write = space, write
        self._shape, self._dtype = tuple(space.shape), np.dtype(space.dtype)
        self._limits, self._category = limits, category
        self.size = int(np.prod(self._shape)) if size is None else size
        if limits is not None:
            self._low, self._span = _low_and_span(limits)
            largest = {"b": 1, "u": 2 ** (8 * self._dtype.itemsize) - 1}.get(self._dtype.kind)
            self._fits_always = not self._low.any() and bool((self._span == largest).all())

    def read(self, value: Any, out: np.ndarray, *, strict: bool = False) -> None:
        """Checks a value and writes it into `out`; a MisfitError says what does not fit."""
        first, is_plain = self._category, type(value) in (int, np.int64) and not strict
        if first is not None and is_plain and 0 <= value - first < self.size:
            out[...] = 0.0
            out[value - first] = 1.0
            return
        try:
            array = np.asarray(value)
        except Exception as error:  # lists of several lengths, and whatever `__array__` raises
            raise MisfitError(f"is not an array, as {_shown(self._space)} requires") from error
        if array.shape != self._shape:
            shown = f"{_shown(self._space)} has shape {self._shape}"
            raise MisfitError(f"has shape {array.shape}, but {shown}")
        if array.dtype.kind not in (_NUMBERS if self._limits is None else _INTEGERS):
            kind = array.dtype if array.dtype.kind in "fc" else type(value).__name__
            raise MisfitError(f"is of type {kind}, which {_shown(self._space)} does not accept")
        if self._limits is not None and not (self._fits_always and array.dtype == self._dtype):
            # As uint64, differences are exact, and huge for values below low.
            flat = array.ravel()
            array = flat.astype(np.uint64) - self._low
            outside = array > self._span
            if outside.any():
                index = int(outside.argmax())
                low, high = (int(np.broadcast_to(x, self._shape).flat[index]) for x in self._limits)
                what = f"is {flat[index]}, but {_shown(self._space)} allows {low} to {high}"
                raise MisfitError(what, self.name(index))
        self._write(array, out)
        if strict and not _contains(self._space, value):
            found = " ".join(repr(value).split())[:_SHOWN]
            kind = getattr(value, "dtype", type(value).__name__)
            raise MisfitError(f"is {found} ({kind}), which is not in {_shown(self._space)}")

    def name(self, index: int) -> str:
        """Indices of a number of the array."""
        return place(self._shape, index)


class Group:
    """A dictionary of parts, or a tuple of them, flattened in their order."""

    def __init__(
        self, space: Any, parts: "Mapping[Hashable, Part | Group] | list[Part | Group]"
    ) -> None:
        self._space = space
        self._keys = parts.keys() if isinstance(parts, Mapping) else None
        items = parts.items() if isinstance(parts, Mapping) else enumerate(parts)
        self._parts: list[tuple[Hashable, Part | Group, slice]] = []
        self.size = 0
        for key, part in items:
            self._parts.append((key, part, slice(self.size, self.size + part.size)))
            self.size += part.size

    def read(self, value: Any, out: np.ndarray, *, strict: bool = False) -> None:
        """See `Part`."""
        if self._keys is None:
            if not isinstance(value, tuple | list) or len(value) != len(self._parts):
                count = f" of {len(value)}" if isinstance(value, tuple | list) else ""
                self._refuse(f"is a {type(value).__name__}{count}")
        elif not isinstance(value, dict | Mapping):  # dict first: the other takes longer to ask
            self._refuse(f"is of type {type(value).__name__}")
        elif value.keys() != self._keys:
            self._refuse(f"has the keys {[*value]}")
        for key, part, place in self._parts:
            try:
                part.read(value[key], out[place], strict=strict)
            except MisfitError as error:
                raise MisfitError(error.what, f"[{key!r}]{error.where}") from error

    def name(self, index: int) -> str:
        """Keys and indices of a number of the flattened observation."""
        key, part, place = next(each for each in self._parts if index < each[2].stop)
        return f"[{key!r}]{part.name(index - place.start)}"

    def _refuse(self, what: str) -> None:
        has = f"{len(self._parts)} entries" if self._keys is None else f"the keys {[*self._keys]}"
        raise MisfitError(f"{what}, but {_shown(self._space)} has {has}")


def place(shape: tuple[int, ...], index: int) -> str:
    """Indices of a number of an array, in brackets; nothing for a scalar."""
    return f"{[int(i) for i in np.unravel_index(index, shape)]}" if shape else ""


def floats(space: Any) -> Part:
    """Floats, as float32."""

    def write(array: np.ndarray, out: np.ndarray) -> None:
        with np.errstate(over="ignore"):  # refused later, with its place
            out[...] = array if array.shape == out.shape else array.ravel()

    return Part(space, write)


def scaled(space: Any, limits: Limits) -> Part:
    """Integers or bools, scaled from their limits to [0, 1]."""
    divisor = np.maximum(_low_and_span(limits)[1], 1).astype(np.float64)

    def write(distances: np.ndarray, out: np.ndarray) -> None:
        out[...] = distances.ravel() / divisor

    return Part(space, write, limits=limits)


def one_hot(space: Any, limits: Limits) -> Part:
    """Categories: each has as many numbers as values, of which one is 1."""
    low, high = (np.broadcast_to(limit, space.shape).ravel() for limit in limits)
    counts = [int(last) - int(least) + 1 for least, last in zip(low, high, strict=True)]
    first = np.cumsum(counts, dtype=np.int64) - counts

    def write(distances: np.ndarray, out: np.ndarray) -> None:
        out[...] = 0.0
        out[distances.ravel().astype(np.int64) + first] = 1.0

    category = None if space.shape else int(low[0])
    return Part(space, write, size=sum(counts), limits=limits, category=category)


def image(space: Any, limits: Limits) -> tuple[specs.Array, Part, str]:
    """Integers or bools as pixels: their spec, what reads them, and `EnvironmentSpec.note`."""
    shape, notes = (*space.shape, 1)[:3], []
    channels_first = len(space.shape) == 3 and min(shape[1:]) >= max(_SIDE, 4 * shape[0])
    if channels_first:
        shape = (*shape[1:], shape[0])
        notes.append(f"have their channels first, {space.shape}, and are transposed to {shape}")
    low, high = limits
    if space.dtype != np.bool_ and not (np.all(low == 0) and np.all(high == _WHITE)):
        notes.append(f"have values from {np.min(low)} to {np.max(high)}, which become 0 to 255")
    span = np.maximum(_low_and_span(limits)[1], 1)
    factor = None if (_WHITE % span).any() else (_WHITE // span).astype(np.uint8)

    def write(distances: np.ndarray, out: np.ndarray) -> None:
        flat = distances.ravel()  # bytes and bools stay bytes where the scale is a whole number
        pixels = np.rint(flat * float(_WHITE) / span) if factor is None else flat * factor
        if channels_first:
            pixels = np.moveaxis(pixels.reshape(space.shape), 0, -1)
        out[...] = pixels.reshape(out.shape)

    spec = specs.BoundedArray(shape, np.uint8, 0, _WHITE, "observation")
    note = f"The environment's images {' and '.join(notes)}." if notes else ""
    return spec, Part(space, write, limits=limits), note


def _contains(space: Any, value: Any) -> bool:
    if not isinstance(space, specs.Array):
        with warnings.catch_warnings():  # Gymnasium warns of lists
            warnings.simplefilter("ignore")
            return space.contains(value)
    try:
        space.validate(value)
    except ValueError:
        return False
    return True


def _low_and_span(limits: Limits) -> tuple[np.ndarray, np.ndarray]:
    """The least values, and the distances of the largest: uint64, `[size]` or `[1]`."""
    low, high = (np.atleast_1d(np.asarray(x)).ravel() for x in limits)
    if (low == low[:1]).all() and (high == high[:1]).all():
        low, high = low[:1], high[:1]
    low = low.astype(np.uint64)
    return low, high.astype(np.uint64) - low


def _shown(space: Any) -> str:
    return " ".join(str(space).split())
