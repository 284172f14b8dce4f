"""The recurrent core of the networks."""

from typing import Any

import haiku as hk
import jax
import jax.numpy as jnp


class MemoryCore(hk.RNNCore):
    """An LSTM whose state is reset at an episode's first step; or, as an ablation, no memory.

    `((inputs [D], is_first []), state) -> (outputs [size], state)`.
    """

    def __init__(self, size: int, recurrent: bool = True, name: str | None = None):
        """Makes the core.

        Args:
          size: number of outputs (and of hidden units).
          recurrent: if False, a linear layer with tanh replaces the LSTM; its state is empty.
          name: Haiku's name of the module.
        """
        super().__init__(name=name)
        self._core = hk.ResetCore(hk.LSTM(size)) if recurrent else None
        self._layer = None if recurrent else hk.Linear(size)

    def initial_state(self, batch_size: int | None = None) -> Any:
        """Zeros, or the empty tuple without recurrence."""
        return () if self._core is None else self._core.initial_state(batch_size)

    def __call__(self, inputs: tuple[jax.Array, jax.Array], state: Any) -> tuple[jax.Array, Any]:
        """One step. See the class."""
        if self._core is None:
            assert self._layer is not None
            return jnp.tanh(self._layer(inputs[0])), state
        return self._core(inputs, state)
