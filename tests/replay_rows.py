"""Rows and sequences for tests of replays: in process, on a device, in a node and over Reverb."""

import collections

import jax
import numpy as np
from dm_env import specs

from retrax.datatypes import EnvironmentSpec, Row, SequenceSpec

SPEC = EnvironmentSpec(specs.Array((2,), np.float32), specs.DiscreteArray(3))
State = collections.namedtuple("State", ["hidden", "cell"])
MEMORY = State(jax.ShapeDtypeStruct((4,), np.float32), jax.ShapeDtypeStruct((5,), np.int16))


def sequence_spec(length=4, period=1, crosses=True, stored=False, frame_stack=1):
    extras = {"mu": jax.ShapeDtypeStruct((3,), np.float32)}
    if stored:
        extras["memory"] = MEMORY
    return SequenceSpec(
        length=length,
        period=period,
        crosses_episodes=crosses,
        frame_stack=frame_stack,
        extras=extras,
        first_row_extras=("memory",) if stored else (),
    )


def stream(num_rows, num_envs=2, sequence=None, *, seed=0, ends=0.2):
    """A list of rows `[E, ...]`: observations are (environment, time); episodes end at random."""
    rng, time, each = np.random.default_rng(seed), 0, []
    extras, last = (sequence or sequence_spec()).extras, np.ones(num_envs, bool)
    for time in range(num_rows):
        first, last = last, ~last & (rng.random(num_envs) < ends)
        each.append(
            Row(
                observation=np.stack([np.arange(num_envs), [time] * num_envs], 1).astype("f"),
                reward=rng.normal(size=num_envs).astype(np.float32),
                discount=np.where(last & (rng.random(num_envs) < 0.5), 0, 1).astype(np.float32),
                is_first=first,
                is_last=last,
                action=rng.integers(3, size=num_envs).astype(np.int32),
                extras=jax.tree.map(
                    lambda s: rng.normal(size=(num_envs, *s.shape)).astype(s.dtype), extras
                ),
            )
        )
    return each


def part(rows, column):
    """The row of one environment, `[1, ...]`."""
    return jax.tree.map(lambda x: x[column : column + 1], rows)


def sample_now(replay, *, newest=False):
    """Slots and sequences that a `LocalReplay` draws, due or not."""
    draw = replay.draw_now(newest=newest)
    return draw.keys[0], replay.packing.sample(draw)


def set_slots(replay, slots, priorities):
    """Sets the priorities of the sequences that slots have now."""
    replay.set_priorities(np.stack([slots, replay.starts(slots)]), priorities)


def assert_equal(found, wanted):
    """Equal in structure, dtypes, shapes and every bit."""

    def check(one, other):
        one, other = np.asarray(one), np.asarray(other)
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        np.testing.assert_array_equal(one, other)

    jax.tree.map(check, found, wanted)
