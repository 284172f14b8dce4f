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
      keys: int64 `[3, B]`, as of `LocalReplay`.
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

    def read(self, data: np.ndarray) -> PackedDraw:
        """The arrays of a buffer.

        Raises:
          ValueError: the buffer has another size than its header says.
        """
        return self._views(data, int(data[:8].view(np.int64)[0]))

    def sample(self, draw: PackedDraw) -> Sample:
        """The sample: its arrays are views of the buffer, but the mask and stacks of frames."""
        rows, mask = self._packing.unpack(draw.parts)
        return Sample(rows, draw.weights, mask)

    def _views(self, data: np.ndarray | None, batch: int) -> PackedDraw:
        shapes: list[tuple[tuple[int, ...], type]] = [
            ((_HEADER,), np.int64),
            ((3, batch), np.int64),
            ((batch,), np.float32),
            *((shape, np.uint8) for shape in self._packing.shapes(batch)),
        ]
        sizes = [math.prod(shape) * np.dtype(dtype).itemsize for shape, dtype in shapes]
        begins = [0]
        for size in sizes:
            begins.append(begins[-1] + -(-size // _ALIGNMENT) * _ALIGNMENT)
        total = begins.pop()
        if data is None:
            data = np.empty(total, np.uint8)
        if data.shape != (total,):
            raise ValueError(
                f"A draw of {batch} sequences has {total} bytes, got {len(data)}: learner and "
                "replay need the same agent, environment and config."
            )
        arrays: list[np.ndarray] = [
            data[begin : begin + size].view(dtype).reshape(shape)
            for begin, size, (shape, dtype) in zip(begins, sizes, shapes, strict=True)
        ]
        header, keys, weights, *parts = arrays
        return PackedDraw(data, header, keys, weights, parts)
