"""The interface between ACER and its policies, categorical or Gaussian.

Unbatched. `D` denotes the size of a policy's statistics phi: the probabilities, or the mean.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax

from ...datatypes import Row


class Estimates(NamedTuple):
    """The networks' estimates at one row, or, stacked, at a sequence's rows.

    Attributes:
      log_rho: `[]`, log of pi / mu of the action taken.
      q: `[]`, the value of that action. Takes gradients.
      v: `[]`, the state's value. Takes gradients.
      others: inputs of `Policy.gradient` for actions that were not taken.
    """

    log_rho: jax.Array
    q: jax.Array
    v: jax.Array
    others: Any


class Policy(NamedTuple):
    """The functions of a kind of policy.

    Attributes:
      extras: shapes of the extras that actors store with each row, besides a recurrent state.
      draw: `(key, phi) -> (action, extras)`.
      greedy: `phi -> action`.
      log_prob: `(phi, Row) -> []`, of the action that was taken in the row.
      entropy: `phi -> []`, up to an additive constant.
      kl: `(phi_average, phi) -> []`, the divergence of the second from the first.
      estimates: `(params, key, output, Row, acted []) -> Estimates` of one row; `params` are the
        advantage network's, `output` is the policy network's. The ratio is 1 where `acted` is
        false, since the row's action is meaningless there.
      gradient: `(phi, Estimates, Row, return_ []) -> [D]`, ACER's, before any projection.
      value_loss: `(return_, q, v, rho) -> []`, the loss of V, in addition to that of Q.
      root: exponent of the ratios in Retrace.
      uses_opc: whether the policy gradient uses Q_opc; Retrace otherwise.
    """

    extras: dict[str, jax.ShapeDtypeStruct]
    draw: Callable[[jax.Array, jax.Array], tuple[jax.Array, dict[str, jax.Array]]]
    greedy: Callable[[jax.Array], jax.Array]
    log_prob: Callable[[jax.Array, Row], jax.Array]
    entropy: Callable[[jax.Array], jax.Array]
    kl: Callable[[jax.Array, jax.Array], jax.Array]
    estimates: Callable[[Any, jax.Array, Any, Row, jax.Array], Estimates]
    gradient: Callable[[jax.Array, Estimates, Row, jax.Array], jax.Array]
    value_loss: Callable[[jax.Array, jax.Array, jax.Array, jax.Array], jax.Array]
    root: float
    uses_opc: bool
