"""Acting with a recurrent network, and the memory with which a learner's unroll begins.

Actors may store their memory with each row, as the extra `MEMORY`. Replays keep it only where a
sequence can start (`SequenceSpec.first_row_extras`).
"""

from typing import Any, NamedTuple

import jax
from dm_env import StepType

from ..datatypes import Row, TimeStep
from ..networks import RecurrentNetwork

MEMORY = "memory"


class ActorState(NamedTuple):
    """What an actor keeps between time steps.

    Attributes:
      key: PRNG key that draws actions.
      memory: the network's recurrent state before the next observation; empty without memory.
    """

    key: jax.Array
    memory: Any


def read(
    params: Any, memory: Any, timestep: TimeStep, *, network: RecurrentNetwork
) -> tuple[Any, Any]:
    """Reads the observation of one time step.

    The memory is the recurrent state before the observation; ignored on an episode's first step.

    Returns:
      The network's output, and the recurrent state before the next observation.
    """
    is_first = timestep.step_type == StepType.FIRST
    return network.step(params, timestep.observation, is_first, memory)


def memory_extras(memory: Any, stored: bool) -> dict[str, Any]:
    """The memory before a row's observation (or its shapes) as extras; none if it is not stored."""
    return {MEMORY: memory} if stored else {}


def initial_memory(rows: Row, *, network: RecurrentNetwork, stored: bool) -> Any:
    """The recurrent state before a sequence's first row: the actor's, if it was stored, or zeros.

    Rows are `[T + 1, ...]`, unbatched.
    """
    return rows.extras[MEMORY] if stored else network.initial_state()
