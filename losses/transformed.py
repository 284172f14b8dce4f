"""Returns of rescaled values, and the priority of a sequence (R2D2, NGU, Agent57).

Unbatched. Time, suffixes and traces are as in `off_policy`: `_t` marks the destination steps
1 .. T, results belong to the source steps 0 .. T-1, no gradient flows through targets. A network
predicts h(value), where h is a `ValueTransform`.
"""

from collections.abc import Callable
from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from .off_policy import expected_off_policy_return
from .ranks import assert_rank, assert_steps


class ValueTransform(NamedTuple):
    """A rescaling of values: increasing, elementwise."""

    apply: Callable[[Array], Array]  # h, from values to what a network predicts
    invert: Callable[[Array], Array]  # h^-1


IDENTITY = ValueTransform(lambda x: x, lambda x: x)


def signed_hyperbolic(x: Array, epsilon: float = 1e-3) -> Array:
    """h(x) = sign(x) (sqrt(|x| + 1) - 1) + epsilon x (R2D2, section 2.3; NGU, appendix E).

    Computed as x (1 / (sqrt(|x| + 1) + 1) + epsilon), which avoids cancellation for small x.

    Args:
      x: any shape.
      epsilon: > 0.

    Returns:
      h(x), of the same shape.
    """
    return x * (1.0 / (jnp.sqrt(jnp.abs(x) + 1.0) + 1.0) + epsilon)


def signed_parabolic(x: Array, epsilon: float = 1e-3) -> Array:
    """The inverse of `signed_hyperbolic`: sign(x) (y^2 - 1), epsilon y^2 + y = 1 + epsilon + |x|.

    The formula printed in NGU, appendix E, lacks the square. The usual form
    y = (sqrt(1 + 4 epsilon (|x| + 1 + epsilon)) - 1) / (2 epsilon) cancels in single precision: it
    is wrong by 39 % at 1e-4. This one does not: y = 2 b / (1 + sqrt(1 + 4 epsilon b)) with
    b = 1 + epsilon + |x|, and y^2 - 1 = |x| (y + 1) / (1 + epsilon (y + 1)).

    Args:
      x: any shape.
      epsilon: > 0, as in `signed_hyperbolic`.

    Returns:
      h^-1(x), of the same shape.
    """
    b = 1.0 + epsilon + jnp.abs(x)
    y = 2.0 * b / (1.0 + jnp.sqrt(1.0 + 4.0 * epsilon * b))
    return x * (y + 1.0) / (1.0 + epsilon * (y + 1.0))


def signed_hyperbolic_pair(epsilon: float = 1e-3) -> ValueTransform:
    """`signed_hyperbolic` and its inverse.

    Args:
      epsilon: > 0. R2D2: 1e-3. NGU: 1e-2 in the text, 1e-3 in the table.
    """
    return ValueTransform(
        lambda x: signed_hyperbolic(x, epsilon), lambda x: signed_parabolic(x, epsilon)
    )


def transformed_off_policy_return(
    q_t: Array,
    a_t: Array,
    r_t: Array,
    discount_t: Array,
    pi_t: Array,
    c_t: Array,
    transform: ValueTransform,
) -> Array:
    """h(G_t), with G_t the `expected_off_policy_return` of h^-1(q_t).

    With `retrace_coefficients` it is the transformed Retrace operator (NGU, appendix E; Agent57,
    appendix C): h(h^-1(Q) + sum_s gamma^s (c_1 ... c_s) delta^h_s).

    Args:
      q_t: `[T, A]`, rescaled action values at the destination steps, from the target network.
      a_t: `[T]`, the actions taken there, in 0 .. A-1; not checked.
      r_t: `[T]`, rewards that arrived there.
      discount_t: `[T]`, discounts that arrived there, in [0, 1]; 0 at a termination.
      pi_t: `[T, A]`, the target policy there; rows sum to 1.
      c_t: `[T]`, trace coefficients there, >= 0; the last one is treated as 0.
      transform: h and its inverse.

    Returns:
      Rescaled returns of the source steps, `[T]`.
    """
    values_t = transform.invert(q_t)
    returns = expected_off_policy_return(values_t, a_t, r_t, discount_t, pi_t, c_t)
    return jax.lax.stop_gradient(transform.apply(returns))


def transformed_n_step_double_q_return(
    q_t: Array,
    q_selector_t: Array,
    r_t: Array,
    discount_t: Array,
    c_t: Array,
    n: int,
    transform: ValueTransform,
) -> Array:
    """The n-step double Q-learning return of R2D2, rescaled (section 2.3).

    h(r_1 + discount_1 r_2 + ... + discount_1 ... discount_n h^-1(q_n(argmax_a q_selector_n(a)))),
    with steps counted from the source step. At the window's end the last step replaces step n.

    Args:
      q_t: `[T, A]`, rescaled action values at the destination steps, from the target network.
      q_selector_t: `[T, A]`, values whose argmax is the action, from the online network.
      r_t: `[T]`, rewards that arrived there.
      discount_t: `[T]`, discounts that arrived there, in [0, 1]; 0 at a termination.
      c_t: `[T]`, 1, or 0 at a step where the trace is cut and the return bootstraps.
      n: steps, >= 1.
      transform: h and its inverse.

    Returns:
      Rescaled returns of the source steps, `[T]`.

    Raises:
      ValueError: n is less than 1.
    """
    if n < 1:
        raise ValueError(f"n must be at least 1 step, got {n}.")
    assert_rank(2, q_t=q_t, q_selector_t=q_selector_t)
    assert_steps(r_t=r_t, discount_t=discount_t, c_t=c_t)
    chex.assert_equal_shape([q_t, q_selector_t])
    chosen_t = jnp.argmax(q_selector_t, axis=-1, keepdims=True)
    v_t = transform.invert(jnp.take_along_axis(jnp.asarray(q_t), chosen_t, axis=-1)[:, 0])
    end, steps = len(r_t) - 1, np.arange(len(r_t))
    returns = v_t[np.minimum(steps + n - 1, end)]
    for i in reversed(range(min(n, len(r_t)))):
        at = np.minimum(steps + i, end)
        sums = r_t[at] + discount_t[at] * ((1.0 - c_t[at]) * v_t[at] + c_t[at] * returns)
        returns = jnp.where(steps + i <= end, sums, returns)
    return jax.lax.stop_gradient(transform.apply(returns))


def sequence_priority(td_error: Array, mask: Array, eta: float) -> Array:
    """A sequence's priority: eta max_s |delta_s| + (1 - eta) mean_s |delta_s| (R2D2, section 2.3).

    Args:
      td_error: `[T]`.
      mask: bool `[T]`, which steps count; the priority is 0 if none does.
      eta: in [0, 1]. R2D2: 0.9.

    Returns:
      A scalar `[]`, >= 0.
    """
    assert_steps(td_error=td_error, mask=mask)
    sizes = jnp.where(mask, jnp.abs(td_error), 0.0)
    return eta * jnp.max(sizes) + (1.0 - eta) * (jnp.sum(sizes) / jnp.maximum(jnp.sum(mask), 1))
