"""A replay in JAX, with the conventions of `replay.LocalReplay`: rows in rings, windows drawn.

`E` denotes the number of environments, `C` the rows kept for each, `P` the period, `L = C / P` the
slots of an environment, `B` the batch and `T + 1` the rows of a sequence.

It is ours and not flashbax's, whose trajectory buffers draw inside of `sample`, so that no draw can
be compared with the host's, and know neither sequences that end with episodes, nor extras of first
rows, nor stacks of frames. There is no contextual selector: the priority of a new sequence there
depends on the order in which its neighbours were inserted and updated, one by one, in a tree.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from ..datatypes import EnvironmentSpec, ReplayConfig, Row, Sample, SequenceSpec
from ..replay.rows import row_spec, split_extras, stack_frames, where_rows, within_episode
from ..replay.windows import Windows


class ReplayState(NamedTuple):
    """The contents of a `DeviceReplay`."""

    rows: Row  # `[E, C, ...]`, without the extras of first rows
    first: dict[str, Any]  # these extras, `[E, L, ...]`
    heads: Array  # int32 `[E]`, rows ever written, skipped ones included
    episodes: Array  # int32 `[E]`, the head at which the episode began
    present: Array  # bool `[E, L]`, whether the slot has a sequence
    priorities: Array  # float32 `[E, L]`, powers of priorities; empty for uniform draws
    largest: Array  # float32 `[]`, the largest priority so far


class DeviceReplay:
    """Pure functions of a `ReplayState`."""

    def __init__(
        self,
        environment_spec: EnvironmentSpec,
        sequence: SequenceSpec,
        config: ReplayConfig,
        *,
        num_envs: int,
    ):
        """Allocates nothing; ValueError of what a device does not have, or of too few rows."""
        if config.selector == "contextual":
            raise ValueError(
                "On a device replay.selector is uniform or proportional, got contextual."
            )
        self._sequence, self._config, self._num_envs = sequence, config, num_envs
        self._windows = Windows.of(sequence, config, num_envs)
        if config.pace == "rounds" and not sequence.crosses_episodes and sequence.period > 1:
            raise ValueError("pace must be steady where sequences end with episodes, got rounds.")
        self._row = row_spec(environment_spec, sequence)

    @property
    def capacity(self) -> int:
        """See `RowStore`."""
        return self._windows.num_rows * self._num_envs

    @property
    def nbytes(self) -> int:
        """See `RowStore`."""
        leaves = jax.tree.leaves(jax.eval_shape(self.init))
        return sum(leaf.size * leaf.dtype.itemsize for leaf in leaves)

    def init(self) -> ReplayState:
        """Empty rings."""
        row, first = split_extras(self._row, self._sequence.first_row_extras)

        def rings(specs: Any, length: int) -> Any:
            shape = self._num_envs, length
            return jax.tree.map(lambda s: jnp.zeros((*shape, *s.shape), s.dtype), specs)

        slots = self._num_envs, self._windows.num_slots
        return ReplayState(
            rows=rings(row, self._windows.num_rows),
            first=rings(first, self._windows.num_slots),
            heads=jnp.zeros(self._num_envs, jnp.int32),
            episodes=jnp.zeros(self._num_envs, jnp.int32),
            present=jnp.zeros(slots, bool),
            priorities=jnp.zeros(slots if self._is_prioritised else (0, 0), jnp.float32),
            largest=jnp.ones((), jnp.float32),
        )

    def add(self, state: ReplayState, rows: Row) -> ReplayState:
        """Appends one row to every environment: arrays `[E, ...]`, all extras included."""
        windows, each = self._windows, jnp.arange(self._num_envs)
        state = self._mark(state, *windows.overwritten(state.heads), present=False)
        row, first = split_extras(rows, self._sequence.first_row_extras)
        index = state.heads % windows.num_rows
        is_start = index % windows.period == 0
        # Beyond the ring: written nowhere.
        slot = jnp.where(is_start, index // windows.period, windows.num_slots)

        state = state._replace(
            rows=jax.tree.map(lambda ring, x: ring.at[each, index].set(x), state.rows, row),
            first=jax.tree.map(
                lambda ring, x: ring.at[each, slot].set(x, mode="drop"), state.first, first
            ),
            heads=state.heads + 1,
        )
        starts, complete = windows.completed(state.heads, state.episodes)
        state = self._mark(state, starts[:, None], complete[:, None], present=True)
        if self._sequence.crosses_episodes:
            return state
        starts, cut_short = windows.ended(state.heads, state.episodes)
        state = self._mark(state, starts, cut_short & row.is_last[:, None], present=True)
        heads = jnp.where(row.is_last, windows.next_episodes(state.heads), state.heads)
        return state._replace(heads=heads, episodes=jnp.where(row.is_last, heads, state.episodes))

    def num_rows(self, state: ReplayState) -> Array:
        """Rows that are kept now, over all environments: int32 `[]`."""
        return jnp.minimum(state.heads, self._windows.num_rows).sum()

    def sample(self, state: ReplayState, key: Array) -> tuple[Array, Sample]:
        """Slots `[B]` and rows of one call of updates; there must be a complete sequence."""
        config, count = self._config, state.present.sum(dtype=jnp.int32)
        draw_key, uniform_key, mix_key = jax.random.split(key, 3)
        size, present = (config.draw_size,), state.present.astype(jnp.float32).ravel()
        slots, probabilities = choose(draw_key, present, size)
        if self._is_prioritised:
            masses, eps = state.priorities.ravel(), config.uniform_fraction
            masses = jnp.where(masses.sum() > 0, masses, present)
            slots, probabilities = choose(draw_key, masses, size)
            uniform, _ = choose(uniform_key, present, size)
            slots = jnp.where(jax.random.uniform(mix_key, size) < eps, uniform, slots)
            probabilities = masses[slots] / masses.sum()
            probabilities = eps / count + (1 - eps) * probabilities
        weights = (1 / (count * probabilities)) ** config.importance_exponent
        rows, mask = self.read(state, slots)
        return slots, Sample(rows, weights.astype(jnp.float32), mask)

    def newest(self, state: ReplayState) -> tuple[Array, Sample]:
        """The newest complete sequence of every environment, where they may cross episodes."""
        starts = self._windows.newest(state.heads)
        slots = self._windows.slots(jnp.arange(self._num_envs), starts)
        rows, mask = self.read(state, slots)
        return slots, Sample(rows, jnp.ones(slots.shape, jnp.float32), mask)

    def read(self, state: ReplayState, slots: Array) -> tuple[Row, Array]:
        """The sequences of present slots `[B]`: a `Row` `[B, T+1, ...]`, and the mask `[B, T+1]`.

        Extras of the first row alone are `[B, ...]`. Rows are zeros where the mask is False.
        """
        environments, starts = self._windows.locate(slots, state.heads)
        before = self._windows.before
        at = environments[:, None], self._windows.rows(starts)
        longer: Row = jax.tree.map(lambda ring: ring[at], state.rows)
        rows: Row = jax.tree.map(lambda x: x[:, before:], longer)
        if before:
            stacks = stack_frames(longer.observation, longer.is_first, before + 1, jnp)
            rows = rows._replace(observation=stacks)
        mask = jnp.ones(rows.is_last.shape, bool)
        if not self._sequence.crosses_episodes:
            mask = within_episode(rows.is_last)
            rows = jax.tree.map(lambda x: where_rows(mask, x, jnp), rows)
        at = environments, self._windows.slots(0, starts)
        first = jax.tree.map(lambda ring: ring[at], state.first)
        return rows._replace(extras={**rows.extras, **first}), mask

    def ages(self, state: ReplayState, slots: Array) -> Array:
        """Time steps since the first row of each present slot's sequence was added: int32 `[B]`."""
        environments, starts = self._windows.locate(slots, state.heads)
        return (state.heads[environments] - 1 - starts) * self._num_envs

    def set_priorities(self, state: ReplayState, slots: Array, priorities: Array) -> ReplayState:
        """Sets finite priorities `[B]` of present slots `[B]`; nothing for uniform draws.

        Of a repeated slot, the last priority counts: it alone is written, since the order in which
        an accelerator writes one place twice is undefined.
        """
        if not self._is_prioritised:
            return state
        masses, index = state.priorities.ravel(), jnp.arange(slots.size)
        is_repeated = jnp.triu(slots[:, None] == slots, k=1).any(axis=1)
        slots = jnp.where(is_repeated, masses.size + index, slots)  # beyond: written nowhere
        powers = self._power(priorities)
        masses = masses.at[slots].set(powers, mode="drop", unique_indices=True)
        return state._replace(
            priorities=masses.reshape(state.priorities.shape),
            largest=jnp.maximum(state.largest, priorities.max()),
        )

    @property
    def _is_prioritised(self) -> bool:
        return self._config.selector == "proportional" and self._config.priority_exponent > 0

    def _power(self, priorities: Array) -> Array:
        return priorities.astype(jnp.float32) ** self._config.priority_exponent

    def _mark(
        self, state: ReplayState, starts: Array, chosen: Array, *, present: bool
    ) -> ReplayState:
        """Inserts or removes the sequences that begin at `chosen` starts, both `[E, n]`."""
        windows = self._windows
        slot = jnp.where(chosen, windows.slots(0, starts), windows.num_slots)  # beyond: nowhere
        at = jnp.arange(self._num_envs)[:, None], slot
        state = state._replace(present=state.present.at[at].set(present, mode="drop"))
        if not self._is_prioritised:
            return state
        mass = self._power(state.largest) * present
        return state._replace(priorities=state.priorities.at[at].set(mass, mode="drop"))


def choose(key: Array, masses: Array, shape: tuple[int, ...]) -> tuple[Array, Array]:
    """Draws indices int32 in proportion to masses `[N]`, >= 0, one above 0; and probabilities.

    Two levels, blocks and the entries of a block: sums of float32 stay exact enough, and a draw
    costs on the order of the square root of N.
    """
    size = max(1, int(masses.size**0.5))
    blocks = jnp.pad(masses, (0, -masses.size % size)).reshape(-1, size)
    sums = blocks.sum(axis=1)
    block_key, entry_key = jax.random.split(key)
    block = _draw(block_key, sums[None], shape)
    entry = _draw(entry_key, blocks[block], shape)
    index = block * size + entry
    return index, masses[index] / sums.sum()


def _draw(key: Array, masses: Array, shape: tuple[int, ...]) -> Array:
    """The index within the last axis `[..., n]` at which the sum exceeds a uniform part of all."""
    # Rounding may raise the sum at an entry without mass, which must not be drawn.
    sums = jnp.where(masses > 0, jnp.cumsum(masses, axis=-1), 0.0)
    total = jnp.max(sums, axis=-1)
    point = jnp.minimum(jax.random.uniform(key, shape) * total, jnp.nextafter(total, 0.0))
    return jnp.argmax(sums > point[..., None], axis=-1).astype(jnp.int32)
