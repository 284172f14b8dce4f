"""Seeds of everything random in a run, derived from the run's own seed."""

import enum

import numpy as np

MAX_SEED = 2**32 - 1  # JAX ignores all bits beyond


@enum.unique
class Purpose(enum.IntEnum):
    """What a derived seed is for. No two purposes share a stream."""

    EVALUATION = 1  # `retrax evaluate`
    RESUME = 2  # environments of a resumed run
    ACTOR = 3  # environments of a program's actor
    EVALUATOR = 4  # environments of a program's evaluator
    ORDER = 5  # in which order the actors of one thread step
    RECORDING = 6  # `retrax record-states`
    PERIODIC_EVALUATION = 7  # `retrax train --evaluate-every`
    WORKER = 8  # replay of one of several workers


def derive_seed(seed: int, purpose: Purpose, *more: int) -> int:
    """A seed unrelated to the run's; those of one purpose differ in `more`, if not by zeros."""
    return int(np.random.SeedSequence([seed, int(purpose), *more]).generate_state(1)[0])
