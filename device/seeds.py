"""Time steps of several seeds that are computed together."""

import functools
import time
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .training import Training, TrainState

_MAX_ROWS = 1024  # time steps of every environment in one call
_FIRST_ROWS = 16
_SECONDS = 0.25  # that all calls of `Seeds.compute` should take: a stop waits for them


class Seed:
    """One of the seeds."""

    def __init__(self, device: jax.Device, state: TrainState):
        self.device, self.state = device, state  # after its last time step
        self.rows = 0  # time steps of every environment so far
        self.allowed = 0  # time steps that it may take now; 0 once its run has ended
        self.episodes: dict[str, np.ndarray] | None = None  # of the newest time steps, if any
        self.seconds = 0.0  # that `Seeds.compute` took


class Seeds:
    """Seeds in step with each other, spread over the devices of this process.

    On an accelerator, all its seeds are one call of `jax.vmap`. On CPUs, where a batch gains
    nothing, each is a call of its own.
    """

    def __init__(self, training: Training, seeds: Sequence[int]):
        """Makes the first states."""
        init, devices = jax.jit(training.init), jax.local_devices()
        self.all = [
            Seed(device, jax.device_put(init(jax.random.key(seed)), device))
            for seed, device in zip(seeds, devices * len(seeds), strict=False)
        ]
        self._advance = jax.jit(functools.partial(_advance, training), donate_argnums=0)
        self._calls = training.calls
        self._schedule, self._at = self._calls(), 0
        self._rows = _FIRST_ROWS

    def compute(self) -> None:
        """Time steps of those seeds that have taken the fewest, as many as all of them may."""
        started = time.perf_counter()
        waiting = [seed for seed in self.all if seed.allowed]
        rows = min(seed.rows for seed in waiting)
        gaps = [seed.rows - rows or seed.allowed for seed in waiting]  # resumed seeds may be ahead
        count = min(self._rows, *gaps)
        calls = np.zeros((_MAX_ROWS, 2), np.int32)
        calls[:count] = list(self._scheduled(rows, count))
        behind = [seed for seed in self.all if seed.rows == rows and (seed.allowed or _batches())]
        for group in _groups(behind):
            states = [seed.state for seed in group]
            states, found = self._advance(states, calls, jnp.int32(count))
            for seed, state, episodes in zip(group, states, found, strict=True):
                seed.state, seed.episodes = state, episodes
        for seed in behind:
            episodes = jax.device_get(seed.episodes)
            seed.episodes = {name: values[:count] for name, values in episodes.items()}
            seed.rows += count
        elapsed = time.perf_counter() - started
        if elapsed > 2 * _SECONDS:
            self._rows = max(1, self._rows // 2)
        elif elapsed < _SECONDS and count == self._rows:
            self._rows = min(_MAX_ROWS, 2 * self._rows)
        for seed in waiting:
            seed.allowed, seed.seconds = 0, elapsed

    def _scheduled(self, rows: int, count: int) -> Iterator[tuple[int, int]]:
        """The calls of updates after the time steps that follow the first `rows`."""
        if rows < self._at:
            self._schedule, self._at = self._calls(), 0
        while self._at < rows + count:
            calls, self._at = next(self._schedule), self._at + 1
            if self._at > rows:
                yield calls


def memory() -> float | None:
    """Bytes that the replays may take on all devices; None where that is the machine's memory.

    While seeds are computed in one call, their states exist twice.
    """
    limits = [(device.memory_stats() or {}).get("bytes_limit", 0) for device in jax.local_devices()]
    return sum(limits) / 2 or None


def _batches() -> bool:
    return jax.default_backend() != "cpu"


def _groups(seeds: Sequence[Seed]) -> list[list[Seed]]:
    """The seeds of each call."""
    if not _batches():
        return [[seed] for seed in seeds]
    devices = dict.fromkeys(seed.device for seed in seeds)
    return [[seed for seed in seeds if seed.device == device] for device in devices]


def _advance(
    training: Training, states: list[TrainState], calls: jax.Array, count: jax.Array
) -> tuple[list[TrainState], list[dict[str, jax.Array]]]:
    """`Training.advance` of several states."""
    if len(states) == 1:
        state, episodes = training.advance(states[0], calls, count)
        return [state], [episodes]
    stacked = jax.tree.map(lambda *x: jnp.stack(x), *states)
    found: Any = jax.vmap(training.advance, (0, None, None))(stacked, calls, count)
    each = [jax.tree.map(lambda x, k=k: x[k], found) for k in range(len(states))]
    return [state for state, _ in each], [episodes for _, episodes in each]
