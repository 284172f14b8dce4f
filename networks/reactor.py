"""Reactor's network (Gruslys et al. 2018, section 3.5 and appendix "Network architecture")."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import haiku as hk
import jax
import jax.numpy as jnp
from dm_env import specs

from .base import RecurrentNetwork, make_recurrent_network
from .memory import Memory
from .torsos import (
    REACTOR_CONVOLUTIONS,
    Convolutions,
    MakeTorso,
    choose_torso,
    crelu,
    legal_actions,
)


class ReactorOutput(NamedTuple):
    """Outputs of Reactor's network for each of T observations."""

    # `[T, A]`, probabilities: of legal actions >= `policy_epsilon / A`, of illegal ones exactly 0.
    policy: jax.Array
    logits: jax.Array  # `[T, A, N]`, of the return's atoms; with N = 1 the action value itself


class ReactorModule(hk.Module):
    """Shared torso and linear layer, then two memories: one for the policy, one for the values.

    The policy's gradient does not flow into the shared layers; only the values train them. Value
    and advantage logits are summed as in the paper, without subtraction of a mean. The policy has a
    share `policy_epsilon` of the uniform distribution over legal actions: all of them, or, if
    `masked`, those that the observation tells (`legal_actions`).
    """

    def __init__(
        self,
        torso: MakeTorso,
        *,
        num_actions: int,
        num_atoms: int,
        policy_epsilon: float,
        shared_size: int = 128,
        memory_size: int = 128,
        head_size: int = 32,
        recurrent: bool = True,
        masked: bool = False,
        w_init: hk.initializers.Initializer | None = None,
        name: str | None = None,
    ):
        super().__init__(name=name)
        self._num_actions, self._num_atoms, self._head_size = num_actions, num_atoms, head_size
        self._policy_epsilon, self._masked = policy_epsilon, masked
        self._torso = torso()
        self._shared = hk.Linear(shared_size, w_init=w_init, name="shared")
        self._policy_memory = Memory(memory_size, recurrent, name="policy_memory")
        self._value_memory = Memory(memory_size, recurrent, name="value_memory")

    def initial_state(self) -> Any:
        """States of both memories, (policy, value)."""
        return self._policy_memory.initial_state(), self._value_memory.initial_state()

    def __call__(
        self, observations: jax.Array, is_first: jax.Array, state: Any
    ) -> tuple[ReactorOutput, Any]:
        """Observations `[T, ...]`, `is_first` `[T]`, initial state -> outputs, final state."""
        shared = crelu(self._shared(self._torso(observations)))
        blocked = jax.lax.stop_gradient(shared)
        policy, policy_state = self._policy_memory(blocked, is_first, state[0])
        value, value_state = self._value_memory(shared, is_first, state[1])
        legal = legal_actions(observations, self._num_actions) if self._masked else None
        outputs = ReactorOutput(self._policy(policy, legal), self._logits(value))
        return outputs, (policy_state, value_state)

    def _policy(self, features: jax.Array, legal: jax.Array | None) -> jax.Array:
        """`[T, D] -> [T, A]`: softmax, mixed with the uniform distribution; None: all are legal."""
        logits = self._head(features, self._num_actions, "policy")
        softmax, epsilon = jax.nn.softmax(logits, where=legal), self._policy_epsilon
        uniform: float | jax.Array = 1.0 / self._num_actions
        if legal is not None:
            uniform = legal / jnp.sum(legal, axis=-1, keepdims=True)
        return (1.0 - epsilon) * softmax + epsilon * uniform

    def _logits(self, features: jax.Array) -> jax.Array:
        """`[T, D] -> [T, A, N]`: value logits plus advantage logits."""
        value = self._head(features, self._num_atoms, "value")
        advantage = self._head(features, self._num_actions * self._num_atoms, "advantage")
        return value[..., None, :] + advantage.reshape(*value.shape[:-1], self._num_actions, -1)

    def _head(self, features: jax.Array, size: int, name: str) -> jax.Array:
        hidden = crelu(hk.Linear(self._head_size, name=f"{name}_hidden")(features))
        return hk.Linear(size, name=f"{name}_output")(hidden)


def make_reactor_network(
    observation: specs.Array,
    *,
    convolutions: Convolutions | None = REACTOR_CONVOLUTIONS,
    vector_sizes: Sequence[int] = (),
    orthogonal_gain: float | None = None,
    torso: MakeTorso | None = None,
    **sizes: Any,
) -> RecurrentNetwork:
    """Reactor's network for one kind of observation; outputs are `ReactorOutput`s.

    Takes and refuses what `make_acer_network` does. `sizes` are other arguments of `ReactorModule`,
    whose defaults are the paper's.
    """
    init = None if orthogonal_gain is None else hk.initializers.Orthogonal(orthogonal_gain)
    chosen = choose_torso(observation, convolutions, vector_sizes, w_init=init, own=torso)
    return make_recurrent_network(lambda: ReactorModule(chosen, w_init=init, **sizes), observation)
