"""Trees of arrays as bytes: rows, sequences `[B, T + 1, ...]`, draws, parameters."""

import hashlib
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from ..datatypes import EnvironmentSpec, Row, Sample, SequenceSpec
from .rows import row_spec, split_extras, stack_frames, within_episode

_HEADER = 8  # numbers of a draw, some of them reserved
_ALIGNMENT = 64  # of the arrays of a draw, as in shared memory


class Packing:
    """Packs trees of arrays like `spec` as aligned fields of a `dtype`; `layout` is its hash."""

    def __init__(self, spec: Any):
        self._structure: Any = jax.tree.structure(spec)
        self._fields = [
            (jax.tree_util.keystr(path, simple=True, separator="."), leaf.dtype, leaf.shape)
            for path, leaf in jax.tree_util.tree_leaves_with_path(spec)
        ]
        self.dtype = np.dtype(self._fields, align=True)
        self.layout = hashlib.sha256(str(self.dtype).encode()).hexdigest()[:8]

    def pack(self, values: Any) -> np.ndarray:
        """Packs arrays `[n, ...]` as uint8 `[n, bytes]`; ValueError if they are not like `spec`."""
        leaves, structure = jax.tree.flatten(values)
        if structure != self._structure:
            raise ValueError(f"Rows must have the structure {self._structure}, got {structure}.")
        num_rows = len(leaves[0])
        packed = np.zeros(num_rows, self.dtype)
        for leaf, (name, dtype, shape) in zip(leaves, self._fields, strict=True):
            if leaf.dtype != dtype or leaf.shape != (num_rows, *shape):
                raise ValueError(
                    f"Rows must have {name} as {dtype} {(num_rows, *shape)}, got {leaf.dtype} "
                    f"{leaf.shape}."
                )
            packed[name] = leaf
        return packed.view(np.uint8).reshape(num_rows, -1)

    def fields(self, packed: np.ndarray) -> dict[str, np.ndarray]:
        """The leaves by name: views `[n, ...]` of uint8 `[n, bytes]`."""
        values = packed.view(self.dtype)[..., 0]
        return {name: values[name] for name, _, _ in self._fields}

    def unpack(self, packed: np.ndarray) -> Any:
        """The tree of these views."""
        return jax.tree.unflatten(self._structure, self.fields(packed).values())


class TreePacking:
    """Packs trees of arrays, not as pickles, which run code of whoever sends them.

    A hash of names, dtypes and shapes comes before the values: `num_bytes` together. `what` the
    trees are begins a sentence.
    """

    def __init__(self, what: str, like: Any):
        self._what = what
        self.like = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), like)
        self._packing = Packing((self.like,))  # its leaves need names
        self._layout = self._packing.layout.encode()
        self.num_bytes = len(self._layout) + self._packing.dtype.itemsize

    def pack(self, tree: Any) -> bytes:
        """Copies a tree, from its device."""
        rows = jax.tree.map(lambda x: np.asarray(x)[None], jax.device_get(tree))
        return self._layout + self._packing.pack((rows,)).tobytes()

    def unpack(self, blob: bytes) -> Any:
        """The tree, arrays in the memory of the bytes; ValueError if they are of another tree."""
        size = len(self._layout)
        if blob[:size] != self._layout or len(blob) != self.num_bytes:
            raise ValueError(
                f"{self._what} are {len(blob)} bytes of the layout {blob[:size]!r}, and "
                f"{self.num_bytes} bytes of {self._layout!r} are expected: both sides need the "
                "same agent and config."
            )
        packed = np.frombuffer(blob, np.uint8, offset=size)[None]
        return jax.tree.map(lambda x: x[0], *self._packing.unpack(packed))


class PackedDraw(NamedTuple):
    """The sequences of one call of updates: views of one buffer.

    The header, int64, has B, the updates in the call, whether the sequences are the newest, and
    room for the transport.
    """

    data: np.ndarray  # the buffer, uint8 `[n]`
    header: np.ndarray
    keys: np.ndarray  # int64 `[3, B]`, see `LocalReplay`
    weights: np.ndarray  # float32 `[B]`
    parts: list[np.ndarray]  # packed sequences, for `SequencePacking.unpack`

    @property
    def updates(self) -> int:
        """Updates in the call."""
        return int(self.header[1])

    @property
    def newest(self) -> bool:
        """Whether these are the newest sequences, and not replayed ones."""
        return bool(self.header[2])


class SequencePacking:
    """Packs rows, and apart from them the extras of a sequence's first row, if there are any.

    A draw is one buffer, which another process can read in place.

    Attributes:
      sequence, before: how sequences are cut; see `Windows.before`.
      parts: the packing of rows and, if there are any, of these extras.
      row_bytes: of a row, all extras included.
      layout: a hash of the layouts of the parts, and of how sequences are cut.
    """

    def __init__(self, environment_spec: EnvironmentSpec, sequence: SequenceSpec):
        self.sequence, self.before = sequence, sequence.frame_stack - 1
        row = row_spec(environment_spec, sequence)
        self.parts = [Packing(part) for part in self._split(row)]
        self.row_bytes = sum(part.dtype.itemsize for part in self.parts)
        cut = (sequence.length, sequence.period, sequence.crosses_episodes, sequence.frame_stack)
        layouts = [part.layout for part in self.parts]
        self.layout = hashlib.sha256(str((layouts, cut)).encode()).hexdigest()[:8]
        self._draws: dict[int, tuple[list[Any], int]] = {}  # by the batch, see `_draw`

    def pack(self, rows: Row) -> list[np.ndarray]:
        """Packs rows `[n, ...]`, all extras included; each part as `Packing.pack`."""
        pairs = zip(self.parts, self._split(rows), strict=True)
        return [packing.pack(part) for packing, part in pairs]

    def shapes(self, batch: int) -> list[tuple[int, ...]]:
        """Shapes of the parts of B sequences, as `unpack` takes them."""
        rows, *first = [part.dtype.itemsize for part in self.parts]
        length = self.before + self.sequence.length
        return [(batch, length, rows), *((batch, size) for size in first)]

    def split(self, packed: np.ndarray) -> list[np.ndarray]:
        """The parts of packed rows that are put together, `[..., row_bytes]`: views."""
        first = self.parts[0].dtype.itemsize
        return [packed[..., :first], packed[..., first:]][: len(self.parts)]

    def flags(self, packed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Views of `is_first` and `is_last`, bool `[...]`, of packed rows `[..., bytes]`."""
        rows = packed.view(self.parts[0].dtype)[..., 0]
        return rows["is_first"], rows["is_last"]

    def mask(self, packed: np.ndarray) -> np.ndarray:
        """The mask `[B, T+1]` of rows `[B, before + T+1, bytes]`: False behind ends not crossed."""
        is_last = self.flags(packed[:, self.before :])[1]
        crosses = self.sequence.crosses_episodes
        mask: np.ndarray = np.ones(is_last.shape, bool) if crosses else within_episode(is_last)
        return mask

    def unpack(self, packed: Sequence[np.ndarray]) -> tuple[Row, np.ndarray]:
        """Rows `[B, T+1, ...]`, extras of the first one `[B, ...]`, and their `mask`.

        From parts of `shapes`, as views, but for stacks of frames.
        """
        longer, *first = [x.unpack(part) for x, part in zip(self.parts, packed, strict=True)]
        rows: Row = jax.tree.map(lambda x: x[:, self.before :], longer)
        mask = self.mask(packed[0])
        if self.before:
            stacks = stack_frames(longer.observation, longer.is_first, self.before + 1)
            stacks[~mask] = 0
            rows = rows._replace(observation=stacks)
        extras = {**rows.extras, **(first[0] if first else {})}
        return rows._replace(extras=extras), mask

    def empty_draw(self, batch: int) -> PackedDraw:
        """A new buffer for B sequences; 0 makes one that has only a header."""
        draw = self._views(np.empty(self.draw_bytes(batch), np.uint8), batch)
        draw.header[:] = 0
        draw.header[0] = batch
        return draw

    def draw_bytes(self, batch: int) -> int:
        """Bytes of a draw of B sequences."""
        return self._draw(batch)[1]

    def read_draws(self, data: np.ndarray) -> list[PackedDraw]:
        """The draws in a buffer; ValueError if it has another size than their headers say."""
        draws = []
        while len(data):
            batch = int(data[:8].view(np.int64)[0])
            size = self.draw_bytes(batch)
            draws.append(self._views(data[:size], batch))
            data = data[size:]
        return draws

    def sample(self, draw: PackedDraw) -> Sample:
        """The sample of a draw: views of its buffer, but the mask and stacks of frames."""
        rows, mask = self.unpack(draw.parts)
        return Sample(rows, draw.weights, mask)

    def _views(self, data: np.ndarray, batch: int) -> PackedDraw:
        fields, size = self._draw(batch)
        if len(data) != size:
            raise ValueError(
                f"A draw of {batch} sequences has {size} bytes, got {len(data)}: learner and "
                "replay need the same agent, environment and config."
            )
        views = [data[begin:end].view(kind).reshape(shape) for begin, end, kind, shape in fields]
        header, keys, weights, *parts = views
        return PackedDraw(data, header, keys, weights, parts)

    def _draw(self, batch: int) -> tuple[list[Any], int]:
        """Places, dtypes and shapes of header, keys, weights and parts, each aligned; all bytes."""
        if batch not in self._draws:  # as one dtype, a draw could have 2 GiB at most
            fields, size = list[Any](), 0
            kinds: Any = (np.int64, (_HEADER,)), (np.int64, (3, batch)), (np.float32, (batch,))
            for kind, shape in (*kinds, *((np.uint8, shape) for shape in self.shapes(batch))):
                end = size + math.prod(shape) * np.dtype(kind).itemsize
                fields.append((size, end, kind, shape))
                size = -(-end // _ALIGNMENT) * _ALIGNMENT
            self._draws[batch] = fields, size
        return self._draws[batch]

    def _split(self, row: Row) -> list[Any]:
        rows, first = split_extras(row, self.sequence.first_row_extras)
        return [rows, first] if jax.tree.leaves(first) else [row]  # a network without memory
