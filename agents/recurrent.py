"""What actors with a recurrent network keep, and store for learners.

Actors may store their memory with each row, as the extra `MEMORY`. Replays keep it only where a
sequence can start (`SequenceSpec.first_row_extras`).
"""

from typing import Any, NamedTuple

import jax

MEMORY = "memory"


class ActorState(NamedTuple):
    """What an actor keeps between time steps.

    Attributes:
      key: PRNG key that draws actions.
      memory: the network's recurrent state before the next observation; empty without memory.
    """

    key: jax.Array
    memory: Any


def memory_extras(memory: Any, stored: bool) -> dict[str, Any]:
    """The memory before a row's observation (or its shapes) as extras; none if it is not stored."""
    return {MEMORY: memory} if stored else {}
