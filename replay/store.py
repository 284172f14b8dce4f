"""The in-process replay: rows are kept once, sequences are windows onto them.

`E` denotes the environments, `C` the rows kept for each, `P` the period, `B` the batch and `T + 1`
the rows of a sequence. Everything is NumPy on the host; a sample goes to the device in one piece.
"""

import json
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
import psutil

from ..datatypes import EnvironmentSpec, ReplayConfig, Row, Sample, SequenceSpec
from .selectors import importance_weights, make_selector


def row_spec(environment_spec: EnvironmentSpec, sequence: SequenceSpec) -> Row:
    """What one row looks like: a `Row` of `jax.ShapeDtypeStruct`s."""

    def struct(spec: Any) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(spec.shape, spec.dtype)

    flag = jax.ShapeDtypeStruct((), np.bool_)
    return Row(
        observation=struct(environment_spec.observations),
        reward=struct(environment_spec.rewards),
        discount=struct(environment_spec.discounts),
        is_first=flag,
        is_last=flag,
        action=struct(environment_spec.actions),
        extras=sequence.extras,
    )


class SequenceStore:
    """Rows in one ring per environment, preallocated; overlapping sequences as windows.

    Every P-th row can start a sequence. The start at ring position k P of environment e is the
    selector's slot e (C / P) + k, so slots of one environment are in time order. A slot is present
    while the sequence is complete and no row of it has been overwritten. Where sequences must not
    cross episodes, an episode begins at a multiple of P, and a sequence that meets its end is
    complete then, padded with zeros and masked.

    Rows must come as the environments made them, each environment's in time order.
    """

    def __init__(
        self,
        environment_spec: EnvironmentSpec,
        sequence: SequenceSpec,
        config: ReplayConfig,
        *,
        num_envs: int,
        seed: int,
    ):
        """Makes an empty store.

        Args:
          environment_spec: of one environment.
          sequence: how the agent wants sequences cut.
          config: capacity, selection, batch size.
          num_envs: E >= 1.
          seed: of the draws.

        Raises:
          ValueError: the capacity is too small for one sequence per environment, or larger than
            the memory that is available.
        """
        self._sequence = sequence
        self._config = config
        self._num_rows = self._rows_per_environment(num_envs)
        self._num_starts = self._num_rows // sequence.period
        row = row_spec(environment_spec, sequence)
        first = {name: row.extras[name] for name in sequence.first_row_extras}
        rest = {name: spec for name, spec in row.extras.items() if name not in first}
        row = row._replace(extras=rest)
        per_environment = _size(row) * self._num_rows + _size(first) * self._num_starts
        self._check_memory(per_environment * num_envs, num_envs)

        def rings(length: int, specs: Any) -> Any:
            return jax.tree.map(lambda s: np.zeros((num_envs, length, *s.shape), s.dtype), specs)

        self._rows: Row = rings(self._num_rows, row)
        self._first: dict[str, Any] = rings(self._num_starts, first)
        self._selector = make_selector(
            config.selector,
            num_envs * self._num_starts,
            priority_exponent=config.priority_exponent,
            uniform_fraction=config.uniform_fraction,
        )
        self._rng = np.random.default_rng(seed)
        self._heads = np.zeros(num_envs, np.int64)  # rows ever written, skipped ones included
        self._episodes = np.zeros(num_envs, np.int64)  # the head at which the episode began

    @property
    def nbytes(self) -> int:
        """Bytes of all rings when they are full."""
        return sum(leaf.nbytes for leaf in jax.tree.leaves((self._rows, self._first)))

    @property
    def capacity(self) -> int:
        """Rows that are kept, over all environments."""
        return self._num_rows * len(self._heads)

    @property
    def num_rows(self) -> int:
        """Rows that are kept now, over all environments."""
        return int(np.minimum(self._heads, self._num_rows).sum())

    @property
    def num_sequences(self) -> int:
        """Sequences that can be drawn now."""
        return len(self._selector)

    def add(self, rows: Row, environments: np.ndarray | None = None) -> None:
        """Appends one row to every environment, or to some.

        Args:
          rows: arrays `[E, ...]`, all extras included; `[n, ...]` if `environments` are given.
          environments: integers `[n]`, distinct; None for all of them in order.

        Raises:
          ValueError: the environments are not distinct, or not all in 0 .. E - 1.
        """
        num_envs = len(self._heads)
        if environments is None:
            environments = np.arange(num_envs)
        elif len(set(environments.tolist()) & set(range(num_envs))) != len(environments):
            raise ValueError(
                f"environments must be distinct and from 0 to {num_envs - 1}, got "
                f"{environments.tolist()}."
            )
        index = self._heads[environments] % self._num_rows
        starts = index % self._sequence.period == 0
        if starts.any():
            first = {name: rows.extras[name] for name in self._first}
            first = jax.tree.map(lambda values: np.asarray(values)[starts], first)
            self._overwrite(environments[starts], index[starts], first)
        kept = rows._replace(extras={k: v for k, v in rows.extras.items() if k not in self._first})

        def write(ring: np.ndarray, values: np.ndarray) -> None:
            ring[environments, index] = values

        jax.tree.map(write, self._rows, kept)
        self._heads[environments] += 1
        self._insert(self._complete(environments, np.asarray(rows.is_last)))

    def cut(self, environment: int | None = None) -> None:
        """Ends the newest episode of every environment, or of one, as a time limit would.

        For the case that environments start anew, as after a restore: what follows in the ring is
        not what followed in time.
        """
        candidates = np.arange(len(self._heads)) if environment is None else np.array([environment])
        environments = candidates[self._heads[candidates] != self._episodes[candidates]]
        if not environments.size:
            return
        newest = (self._heads[environments] - 1) % self._num_rows
        already = self._rows.is_last[environments, newest]
        self._rows.is_last[environments, newest] = True
        if not self._sequence.crosses_episodes:
            self._insert(self._end_episodes(environments[~already]))

    def sample(self) -> tuple[np.ndarray, Sample]:
        """Draws what one call of updates needs: slots `[B]` for `set_priorities`, and sequences.

        B is the config's `draw_size`.

        Raises:
          ValueError: there is no complete sequence yet.
        """
        slots = self._selector.sample(self._rng, self._config.draw_size)
        probabilities = self._selector.probabilities(slots)
        weights = importance_weights(
            probabilities, len(self._selector), self._config.importance_exponent
        )
        rows, mask = self.read(slots)
        return slots, Sample(rows, weights.astype(np.float32), mask)

    @property
    def rounds(self) -> int:
        """Sequences that have been completed in every environment, where they may cross episodes.

        Sequences count by their period, whatever has been overwritten since.
        """
        complete = (self._heads - self._sequence.length) // self._sequence.period + 1
        return int(np.maximum(complete, 0).min())

    def newest(self) -> tuple[np.ndarray, Sample]:
        """The newest complete sequence of every environment: slots `[E]`, and the sequences.

        Raises:
          ValueError: an environment has no complete sequence yet, or sequences end with episodes.
        """
        if not self._sequence.crosses_episodes:
            raise ValueError("Only sequences that cross episodes have a newest one everywhere.")
        if not self.rounds:
            raise ValueError("Not every environment has a complete sequence yet.")
        back = (self._heads - self._sequence.length) % self._sequence.period
        starts = self._heads - self._sequence.length - back
        slots = self._slots(np.arange(len(self._heads)), starts)
        rows, mask = self.read(slots)
        return slots, Sample(rows, np.ones(slots.shape, np.float32), mask)

    def sample_shapes(self) -> list[Sample]:
        """What `sample` gives, as `jax.ShapeDtypeStruct`s; with on-policy updates, `newest` too.

        An empty store tells it too.
        """

        def shape(batch: int) -> Sample:
            rows, mask = self.read(np.zeros(batch, np.int64))
            sample = Sample(rows, np.zeros(batch, np.float32), mask)
            return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), sample)

        sizes = [self._config.draw_size]
        return [shape(size) for size in sizes + [len(self._heads)] * self._config.on_policy]

    def read(self, slots: np.ndarray) -> tuple[Row, np.ndarray]:
        """The sequences of some slots: a `Row` of arrays `[B, T+1, ...]`, and the mask `[B, T+1]`.

        Extras of the first row alone are `[B, ...]`.
        """
        environments, starts = np.divmod(np.asarray(slots), self._num_starts)
        steps = np.arange(self._sequence.length)
        index = (starts[:, None] * self._sequence.period + steps) % self._num_rows
        index += environments[:, None] * self._num_rows
        rows: Row = jax.tree.map(lambda ring: _flat(ring).take(index, axis=0), self._rows)
        mask = np.ones(rows.is_last.shape, bool)
        if not self._sequence.crosses_episodes:
            mask = np.cumsum(rows.is_last, axis=1) - rows.is_last == 0
            rows = jax.tree.map(lambda x: _zero_where(~mask, x), rows)
        first = jax.tree.map(lambda ring: _flat(ring).take(slots, axis=0), self._first)
        return rows._replace(extras={**rows.extras, **first}), mask

    def starts(self, slots: np.ndarray) -> np.ndarray:
        """The row at which each slot's sequence begins, counted from its environment's very first.

        A slot that was overwritten between two calls has another start in the second. int64 `[B]`,
        -1 where there is no sequence.
        """
        environments, position = np.divmod(np.asarray(slots), self._num_starts)
        newest = self._heads[environments] - 1
        back = (newest - position * self._sequence.period) % self._num_rows
        return np.where(self._selector.contains(slots), newest - back, -1)

    def set_priorities(self, slots: np.ndarray, priorities: np.ndarray) -> None:
        """Sets priorities `[B]` of present slots `[B]`.

        Raises:
          ValueError: a priority is NaN, infinite or negative, or a slot is not present.
        """
        self._selector.set_priorities(slots, priorities)

    def state(self) -> dict[str, Any]:
        """A pytree of arrays that `restore` takes: the filled part of the rings, and the draws."""
        filled = int(min(self._heads.max(), self._num_rows))
        starts = -(-filled // self._sequence.period)
        return {
            "rows": {name: ring[:, :filled] for name, ring in _named(self._rows)},
            "first": {name: ring[:, :starts] for name, ring in _named(self._first)},
            "heads": self._heads.copy(),
            "episodes": self._episodes.copy(),
            "selector": self._selector.state(),
            "rng": np.frombuffer(json.dumps(self._rng.bit_generator.state).encode(), np.uint8),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Takes over what `state` gave, from a store that was made with the same arguments."""
        for rings, values in ((self._rows, state["rows"]), (self._first, state.get("first") or {})):
            for name, ring in _named(rings):
                ring[:, : values[name].shape[1]] = values[name]
        self._heads[:] = state["heads"]
        self._episodes[:] = state["episodes"]
        self._selector.restore(state["selector"])
        self._rng.bit_generator.state = json.loads(np.asarray(state["rng"]).tobytes())

    def _rows_per_environment(self, num_envs: int) -> int:
        period, length = self._sequence.period, self._sequence.length
        rows = self._config.capacity // num_envs // period * period
        if rows < length:
            raise ValueError(
                f"A replay capacity of {self._config.capacity} rows over {num_envs} environments "
                f"keeps {rows} rows each, but a sequence has {length}: at least "
                f"{num_envs * -(-length // period) * period} rows are needed."
            )
        return rows

    def _check_memory(self, needed: int, num_envs: int) -> None:
        available = psutil.virtual_memory().available
        if needed > available:
            rows = self._num_rows * num_envs
            fitting = int(rows * available / needed)
            raise ValueError(
                f"A replay of {rows} rows needs {needed / 1e9:.1f} GB, but only "
                f"{available / 1e9:.1f} GB of memory are available: at most {fitting} rows fit."
            )

    def _overwrite(self, environments: np.ndarray, index: np.ndarray, first: Any) -> None:
        """Before the rows at `index` `[n]`, which are starts, are written; extras `[n, ...]`."""
        starts = index // self._sequence.period
        full = self._heads[environments] >= self._num_rows
        slots = (environments * self._num_starts + starts)[full]
        # A start that never became a sequence (the end of an episode) has no slot.
        slots = slots[self._selector.contains(slots)]
        if slots.size:
            self._selector.remove(slots)

        def write(ring: np.ndarray, values: np.ndarray) -> None:
            ring[environments, starts] = values

        jax.tree.map(write, self._first, first)

    def _complete(self, environments: np.ndarray, is_last: np.ndarray) -> np.ndarray:
        """Slots of the sequences that the newest rows completed; is_last `[n]`, theirs."""
        starts = self._heads[environments] - self._sequence.length
        earliest = 0 if self._sequence.crosses_episodes else self._episodes[environments]
        full = (starts >= earliest) & (starts % self._sequence.period == 0)
        slots = self._slots(environments[full], starts[full])
        if self._sequence.crosses_episodes or not is_last.any():
            return slots
        return np.concatenate([slots, self._end_episodes(environments[is_last])])

    def _end_episodes(self, environments: np.ndarray) -> np.ndarray:
        """Slots of the sequences that the end of episodes completed; moves the heads on."""
        period, slots = self._sequence.period, []
        for environment in environments:
            head = self._heads[environment]
            # A start needs one transition; those that are `length` rows back are complete already.
            earliest = max(self._episodes[environment], head - self._sequence.length + 1)
            starts = np.arange(-(-earliest // period) * period, head - 1, period)
            slots.append(self._slots(environment, starts))
            self._heads[environment] = self._episodes[environment] = -(-head // period) * period
        return np.concatenate(slots) if slots else np.empty(0, np.int64)

    def _slots(self, environments: Any, starts: np.ndarray) -> np.ndarray:
        position = starts % self._num_rows // self._sequence.period
        return environments * self._num_starts + position

    def _insert(self, slots: np.ndarray) -> None:
        if slots.size:
            self._selector.insert(slots)


def _size(spec: Any) -> int:
    return sum(int(np.prod(s.shape)) * np.dtype(s.dtype).itemsize for s in jax.tree.leaves(spec))


def _flat(ring: np.ndarray) -> np.ndarray:
    """`[E, n, ...]` as `[E * n, ...]`, a view: taking along one axis is several times faster."""
    return ring.reshape(-1, *ring.shape[2:])


def _named(tree: Any) -> list[tuple[str, np.ndarray]]:
    """Leaves with their paths as names: snapshots need no knowledge of the tree's types."""
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return [(jax.tree_util.keystr(path, simple=True, separator="."), leaf) for path, leaf in leaves]


def _zero_where(condition: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Sets values `[B, T+1, ...]` to zero, in place, where condition `[B, T+1]` holds."""
    values[condition] = 0
    return values
