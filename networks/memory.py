"""The memory of the networks: an LSTM (Hochreiter and Schmidhuber 1997), or a layer without one.

`T` denotes time, `D` the inputs, `H` the hidden units.
"""

from typing import Any

import haiku as hk
import jax
import jax.numpy as jnp
from jax import Array

_UNROLL = 2  # steps in an iteration of a loop: measured, little more compilation than 1


class Memory(hk.Module):
    """An LSTM of `size` units whose state is reset at an episode's first step.

    Without `recurrent`, an ablation, it is a linear layer with tanh, and its state is empty.
    """

    def __init__(self, size: int, recurrent: bool = True, name: str | None = None):
        super().__init__(name=name)
        self._size = size
        self._lstm = _LSTM(size, name="lstm") if recurrent else None
        self._layer = None if recurrent else hk.Linear(size)

    def initial_state(self) -> Any:
        """Zeros, or the empty tuple without recurrence."""
        if self._lstm is None:
            return ()
        return hk.LSTMState(hidden=jnp.zeros(self._size), cell=jnp.zeros(self._size))

    def __call__(self, inputs: Array, is_first: Array, state: Any) -> tuple[Array, Any]:
        """Inputs `[T, D]`, `is_first` `[T]`, initial state -> outputs `[T, H]`, final state."""
        if self._lstm is None:
            assert self._layer is not None
            return jnp.tanh(self._layer(inputs)), state
        return self._lstm(inputs, is_first, state)


class _LSTM(hk.Module):
    """`hk.ResetCore(hk.LSTM(size))` unrolled: the same parameters and, but for rounding, outputs.

    Our own, because Haiku multiplies inputs and weights inside the loop over time, step by step:
    benchmarks/memory.py compares both.
    """

    def __init__(self, size: int, name: str):
        super().__init__(name=name)
        self._size = size

    def __call__(
        self, inputs: Array, is_first: Array, state: hk.LSTMState
    ) -> tuple[Array, hk.LSTMState]:
        num_inputs, outputs = inputs.shape[-1], 4 * self._size
        with hk.name_scope("linear"):  # as in `hk.LSTM`
            both = num_inputs + self._size
            normal = hk.initializers.TruncatedNormal(1.0 / both**0.5)
            weights = hk.get_parameter("w", (both, outputs), init=normal)
            bias = hk.get_parameter("b", (outputs,), init=jnp.zeros)
        projected = inputs @ weights[:num_inputs] + bias
        goes_on = jnp.logical_not(is_first)
        hidden, cell = unroll_lstm(
            projected, weights[num_inputs:], goes_on, state.hidden, state.cell
        )
        return hidden, hk.LSTMState(hidden[-1], cell[-1])


@jax.custom_vjp
def unroll_lstm(
    projected: Array, weights: Array, goes_on: Array, hidden: Array, cell: Array
) -> tuple[Array, Array]:
    """Unrolls an LSTM over inputs that have been multiplied by their weights.

    With (i, g, f, o) the four parts of projected_t + h_{t-1} weights:
    c_t = sigmoid(f + 1) c_{t-1} + sigmoid(i) tanh(g) and h_t = sigmoid(o) tanh(c_t), as in hk.LSTM,
    whose forget gate has the 1 of Jozefowicz et al. 2015. The state before a step where `goes_on`
    is False is 0. `projected` `[T, 4H]` includes the bias. Returns hidden units and cells `[T, H]`.

    The gradient is written by hand, since the automatic one adds a matrix of the weights' size up
    in every step of its loop. It has no forward mode.
    """

    def step(state: tuple[Array, Array], inputs: tuple[Array, Array]) -> tuple[Any, Any]:
        projected_t, goes_on_t = inputs
        hidden, cell = (jnp.where(goes_on_t, x, 0.0) for x in state)
        i, g, f, o = jnp.split(projected_t + hidden @ weights, 4)
        cell = jax.nn.sigmoid(f + 1) * cell + jax.nn.sigmoid(i) * jnp.tanh(g)
        state = jax.nn.sigmoid(o) * jnp.tanh(cell), cell
        return state, state

    outputs: tuple[Array, Array]
    _, outputs = jax.lax.scan(step, (hidden, cell), (projected, goes_on), unroll=_UNROLL)
    return outputs


def _forward(*inputs: Array) -> tuple[Any, Any]:
    outputs = unroll_lstm(*inputs)
    return outputs, (inputs, outputs)


def _backward(saved: Any, gradients: tuple[Array, Array]) -> tuple[Any, ...]:
    """The chain rule backwards in time; the loop has only what depends on the step after."""
    (projected, weights, goes_on, hidden, cell), (hiddens, cells) = saved
    goes_on = goes_on[:, None]
    hidden_tm1 = jnp.where(goes_on, jnp.concatenate([hidden[None], hiddens[:-1]]), 0.0)
    cell_tm1 = jnp.where(goes_on, jnp.concatenate([cell[None], cells[:-1]]), 0.0)
    i, g, f, o = jnp.split(projected + hidden_tm1 @ weights, 4, axis=1)
    i, f, o = jax.nn.sigmoid(i), jax.nn.sigmoid(f + 1), jax.nn.sigmoid(o)
    g, tanh_c = jnp.tanh(g), jnp.tanh(cells)
    # Derivatives: of c_t by the gates i, g, f and of h_t by o; of h_t by c_t; of c_t by c_{t-1}.
    by_gates = (g * i * (1 - i), i * (1 - g * g), cell_tm1 * f * (1 - f), tanh_c * o * (1 - o))
    each_step = (
        gradients,
        jnp.concatenate(by_gates, axis=1),
        o * (1 - tanh_c * tanh_c),
        jnp.where(goes_on, f, 0.0),
        goes_on,
    )

    def step(carry: tuple[Array, Array], inputs: Any) -> tuple[Any, Any]:
        (d_hidden, d_cell), by_gates, by_cell, by_last_cell, goes_on = inputs
        d_hidden = d_hidden + carry[0]
        d_cell = d_cell + carry[1] + d_hidden * by_cell
        d_gates = jnp.concatenate([d_cell, d_cell, d_cell, d_hidden]) * by_gates
        before = jnp.where(goes_on, weights @ d_gates, 0.0), d_cell * by_last_cell
        return before, d_gates

    start = jnp.zeros_like(hidden), jnp.zeros_like(cell)
    (d_hidden, d_cell), d_gates = jax.lax.scan(step, start, each_step, reverse=True, unroll=_UNROLL)
    return d_gates, hidden_tm1.T @ d_gates, None, d_hidden, d_cell


unroll_lstm.defvjp(_forward, _backward)
