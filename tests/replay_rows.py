"""What rows and sequences are in tests of replays, over Reverb and without."""

import collections

import jax
import numpy as np
from dm_env import specs

from retrax.datatypes import EnvironmentSpec, SequenceSpec

SPEC = EnvironmentSpec(specs.Array((2,), np.float32), specs.DiscreteArray(3))
State = collections.namedtuple("State", ["hidden", "cell"])
MEMORY = State(*2 * [jax.ShapeDtypeStruct((4,), np.float32)])


def sequence_spec(length=4, period=1, crosses=True, stored=False, frame_stack=1, *, memory=MEMORY):
    extras = {"mu": jax.ShapeDtypeStruct((3,), np.float32)}
    if stored:
        extras["memory"] = memory
    return SequenceSpec(
        length=length,
        period=period,
        crosses_episodes=crosses,
        frame_stack=frame_stack,
        extras=extras,
        first_row_extras=("memory",) if stored else (),
    )
