"""Policy-gradient losses for one off-policy action, and the entropy.

Unbatched, for one state. `A` denotes the number of actions; the action `a` was drawn from the
behaviour policy `mu`; `return_` is an estimate of Q^pi(a), e.g. the Retrace return. Each loss is a
scalar whose gradient with respect to `pi` is *minus* the estimator of sum_a Q^pi(a) grad pi(a) in
its docstring; only the gradient is meaningful, not the value. Only `pi` takes a gradient. Actions
must be in 0 .. A-1; not checked.

Since grad pi(a) = pi(a) grad log pi(a), estimators that the papers print with grad log pi are
written with grad pi. They contain no logarithm, so they stay finite where a probability underflows.
Where mu(a) is 0, as on padding, importance weights are 0, so that a mask can remove these steps: a
gradient that is not finite would stay NaN behind a mask.
"""

import chex
import jax
import jax.numpy as jnp
from jax import Array
from jax.lax import stop_gradient as _stop

from .ranks import assert_rank


def truncated_beta(mu_a: Array, c: float) -> Array:
    """The recommended beta of beta-LOO: min(c, 1 / mu(a)) (Reactor, section 3.1).

    With c = 1 it is identically 1, which is leave-one-out.

    Args:
      mu_a: any shape, behaviour probability of the action, in (0, 1], or 0 on padding.
      c: >= 1.

    Returns:
      beta, of the shape of `mu_a`, in [1, c]; 1 where `mu_a` is 0.
    """
    return jnp.minimum(c, 1.0 / jnp.where(mu_a > 0, mu_a, 1.0))


def beta_loo_loss(pi: Array, q: Array, a: Array, return_: Array, beta: Array) -> Array:
    """beta-leave-one-out (Reactor, section 3.1, eq. 10).

    Estimator: beta * (R(A) - Q(A)) * grad pi(A) + sum_a Q(a) * grad pi(a).

    beta = 1 is leave-one-out (LOO, eq. 9); beta = 1 / mu(A) is unbiased (eq. 11). The bias is
    sum_a (1 - mu(a) beta(a)) grad pi(a) (Q(a) - Q^pi(a)) (Proposition 1).

    Args:
      pi: `[A]`, the policy's probabilities.
      q: `[A]`, estimated action values.
      a: `[]`, the action taken.
      return_: `[]`, the return estimate R(A).
      beta: `[]`, >= 0.

    Returns:
      A scalar loss `[]`.
    """
    assert_rank([1, 1, 0, 0, 0], pi=pi, q=q, a=a, return_=return_, beta=beta)
    chex.assert_equal_shape([pi, q])
    pi, q = jnp.asarray(pi), _stop(jnp.asarray(q))
    correction = _stop(beta * (return_ - q[a]))
    return -(correction * pi[a] + jnp.sum(q * pi))


def islr_loss(pi: Array, mu_a: Array, v: Array, a: Array, return_: Array) -> Array:
    """Importance-sampled likelihood ratio (Reactor, section 3.1).

    Estimator: pi(A) / mu(A) * (R(A) - V) * grad log pi(A). Unbiased, of high variance.

    Args:
      pi: `[A]`, the policy's probabilities.
      mu_a: `[]`, behaviour probability of the action taken, in (0, 1], or 0 on padding.
      v: `[]`, a baseline that does not depend on the action.
      a: `[]`, the action taken.
      return_: `[]`, the return estimate R(A).

    Returns:
      A scalar loss `[]`.
    """
    assert_rank([1, 0, 0, 0, 0], pi=pi, mu_a=mu_a, v=v, a=a, return_=return_)
    weighted = (return_ - v) / jnp.where(mu_a > 0, mu_a, 1.0)
    return -_stop(jnp.where(mu_a > 0, weighted, 0.0)) * jnp.asarray(pi)[a]


def tislr_loss(
    pi: Array, mu: Array, q: Array, v: Array, a: Array, return_: Array, c: float
) -> Array:
    """Truncated importance-sampled likelihood ratio with bias correction, as in ACER.

    Estimator (Reactor, section 3.1; ACER, eq. 7):
      min(c, pi(A) / mu(A)) * (R(A) - V) * grad log pi(A)
      + sum_a (pi(a) / mu(a) - c)_+ * mu(a) * (Q(a) - V) * grad log pi(a).

    Args:
      pi: `[A]`, the policy's probabilities.
      mu: `[A]`, the behaviour policy's probabilities; mu(A) > 0, or 0 on padding.
      q: `[A]`, estimated action values.
      v: `[]`, a baseline that does not depend on the action.
      a: `[]`, the action taken.
      return_: `[]`, the return estimate R(A).
      c: truncation of the importance weights, >= 0; infinity truncates none.

    Returns:
      A scalar loss `[]`.
    """
    assert_rank([1, 1, 1, 0, 0, 0], pi=pi, mu=mu, q=q, v=v, a=a, return_=return_)
    chex.assert_equal_shape([pi, mu, q])
    pi, mu = jnp.asarray(pi), jnp.asarray(mu)
    # Divided by pi(a), since grad log pi = grad pi / pi; correct in the limit where pi underflows.
    safe_pi = jnp.maximum(pi, jnp.finfo(pi.dtype).tiny)
    safe_mu_a = jnp.where(mu[a] > 0, mu[a], 1.0)
    weighted = jnp.minimum(c / safe_pi[a], 1.0 / safe_mu_a) * (return_ - v)
    truncated = jnp.where(mu[a] > 0, weighted, 0.0)
    excess = jnp.where(jnp.isinf(c), 0.0, jnp.maximum(1.0 - c * mu / safe_pi, 0.0))
    correction = excess * (q - v)
    return -(_stop(truncated) * pi[a] + jnp.sum(_stop(correction) * pi))


def policy_entropy(pi: Array) -> Array:
    """Entropy -sum_a pi(a) log pi(a), in nats. To be maximised: subtract it from a loss.

    Args:
      pi: `[A]`, probabilities; the gradient is 0 where one is 0, as for illegal actions.

    Returns:
      A scalar `[]`, in [0, log A].
    """
    assert_rank(1, pi=pi)
    return jnp.sum(jax.scipy.special.entr(jnp.maximum(pi, jnp.finfo(pi.dtype).tiny)))
