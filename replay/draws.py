"""The sequences of one call of updates in one buffer, which another process can read in place.

`B` denotes the batch, `T + 1` the rows of a sequence.
"""

import math
from typing import NamedTuple

import numpy as np

from ..datatypes import Sample
from .packing import SequencePacking

_HEADER = 8  # numbers, some of them reserved
_ALIGNMENT = 64  # of arrays in a buffer, as in shared memory


class PackedDraw(NamedTuple):
    """Views of one buffer.

    Attributes:
      data: the buffer, uint8 `[n]`.
      header: int64: B, updates in the call, whether the sequences are the newest; the rest is for
        those who carry it.
      keys: int64 `[3, B]` (see `LocalReplay`).
      weights: float32 `[B]`.
      parts: packed sequences, for `SequencePacking.unpack`.
    """

    data: np.ndarray
    header: np.ndarray
    keys: np.ndarray
    weights: np.ndarray
    parts: list[np.ndarray]

    @property
    def updates(self) -> int:
        """Updates in the call."""
        return int(self.header[1])

    @property
    def newest(self) -> bool:
        """Whether these are the newest sequences, and not replayed ones."""
        return bool(self.header[2])


class _Place(NamedTuple):
    """Of an array in a buffer: bytes from `start` to `stop`, of which it takes `size`."""

    start: int
    stop: int
    size: int
    shape: tuple[int, ...]
    dtype: type


class DrawPacking:
    """Where the arrays of a draw lie in its buffer."""

    def __init__(self, packing: SequencePacking):
        """Takes the packing of the sequences."""
        self._packing = packing

    def empty(self, batch: int) -> PackedDraw:
        """A new buffer for B sequences; 0 makes one that has only a header."""
        draw = self._views(None, batch)
        draw.header[:] = 0
        draw.header[0] = batch
        return draw

    def num_bytes(self, batch: int) -> int:
        """Bytes of a draw of B sequences."""
        return self._places(batch)[-1].stop

    def read(self, data: np.ndarray) -> list[PackedDraw]:
        """The draws in a buffer, which has one or more.

        Raises:
          ValueError: the buffer has another size than the headers say.
        """
        draws = []
        while len(data):
            batch = int(data[:8].view(np.int64)[0])
            size = self.num_bytes(batch)
            draws.append(self._views(data[:size], batch))
            data = data[size:]
        return draws

    def sample(self, draw: PackedDraw) -> Sample:
        """The sample: its arrays are views of the buffer, but the mask and stacks of frames."""
        rows, mask = self._packing.unpack(draw.parts)
        return Sample(rows, draw.weights, mask)

    def _views(self, data: np.ndarray | None, batch: int) -> PackedDraw:
        places = self._places(batch)
        if data is None:
            data = np.empty(places[-1].stop, np.uint8)
        if len(data) != places[-1].stop:
            raise ValueError(
                f"A draw of {batch} sequences has {places[-1].stop} bytes, got {len(data)}: "
                "learner and replay need the same agent, environment and config."
            )
        arrays: list[np.ndarray] = [
            data[place.start : place.start + place.size].view(place.dtype).reshape(place.shape)
            for place in places
        ]
        header, keys, weights, *parts = arrays
        return PackedDraw(data, header, keys, weights, parts)

    def _places(self, batch: int) -> list[_Place]:
        shapes: list[tuple[tuple[int, ...], type]] = [
            ((_HEADER,), np.int64),
            ((3, batch), np.int64),
            ((batch,), np.float32),
            *((shape, np.uint8) for shape in self._packing.shapes(batch)),
        ]
        places, start = [], 0
        for shape, dtype in shapes:
            size = math.prod(shape) * np.dtype(dtype).itemsize
            stop = start + -(-size // _ALIGNMENT) * _ALIGNMENT
            places.append(_Place(start, stop, size, shape, dtype))
            start = stop
        return places
