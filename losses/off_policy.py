"""Multi-step off-policy targets, expected and distributional.

Unbatched. A window has source steps 0 .. T-1 and destination steps 1 .. T. Every array with the
suffix `_t` holds the **destination** steps: `r_t[0]` is the reward that followed source step 0,
`q_t[0]` the values at step 1. `T` denotes the number of transitions, `A` of actions, `N` of atoms.
Results belong to the source steps 0 .. T-1. No gradient flows through targets.

A trace coefficient c_t weights the corrections of the steps after step t. The c of the last
destination step has no effect, since no step follows; it is treated as 0. c_t must be 0 where a
trace is cut: at the last row of an episode, whose action is meaningless.
"""

import chex
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from .distributional import affine_projections
from .ranks import assert_rank, assert_steps


def retrace_coefficients(pi_a: Array, mu_a: Array, lambda_: float) -> Array:
    """Retrace: c_t = lambda * min(1, pi(a_t|x_t) / mu(a_t|x_t)).

    Munos et al. 2016, section 3; Reactor, section 2 (eq. 4).

    Args:
      pi_a: `[T]`, probability of the taken action under the target policy, in [0, 1].
      mu_a: `[T]`, its probability under the behaviour policy, must be in (0, 1]; not checked.
      lambda_: in [0, 1].

    Returns:
      c_t, `[T]`, in [0, lambda].
    """
    assert_steps(pi_a=pi_a, mu_a=mu_a)
    return lambda_ * jnp.minimum(1.0, pi_a / mu_a)


def tree_backup_coefficients(pi_a: Array, lambda_: float) -> Array:
    """Tree backup TB(lambda): c_t = lambda * pi(a_t|x_t).

    Precup et al. 2000; Munos et al. 2016, section 3. It requires no behaviour probabilities.

    Args:
      pi_a: `[T]`, probability of the taken action under the target policy, in [0, 1].
      lambda_: in [0, 1].

    Returns:
      c_t, `[T]`, in [0, lambda].
    """
    assert_steps(pi_a=pi_a)
    return lambda_ * pi_a


def importance_coefficients(pi_a: Array, mu_a: Array, lambda_: float) -> Array:
    """Importance sampling: c_t = lambda * pi(a_t|x_t) / mu(a_t|x_t), not truncated.

    Precup et al. 2001; Munos et al. 2016, section 3.

    Args:
      pi_a: `[T]`, probability of the taken action under the target policy, in [0, 1].
      mu_a: `[T]`, its probability under the behaviour policy, must be in (0, 1]; not checked.
      lambda_: in [0, 1].

    Returns:
      c_t, `[T]`, >= 0, unbounded.
    """
    assert_steps(pi_a=pi_a, mu_a=mu_a)
    return lambda_ * pi_a / mu_a


def off_policy_return(q_t: Array, v_t: Array, r_t: Array, discount_t: Array, c_t: Array) -> Array:
    """G_t = r_{t+1} + discount_{t+1} * (v_{t+1} - c_{t+1} q_{t+1} + c_{t+1} G_{t+1}), `[T]`.

    All are `[T]`: q_t are values of the actions taken at the destination steps, v_t of the states.
    """
    assert_steps(q_t=q_t, v_t=v_t, r_t=r_t, discount_t=discount_t)
    chex.assert_equal_shape([r_t, c_t])  # callers have other names for it

    def add(later: Array, step: tuple[Array, ...]) -> tuple[Array, Array]:
        q, v, r, discount, c = step
        return_ = r + discount * (v - c * q + c * later)
        return return_, return_

    steps = (q_t, v_t, r_t, discount_t, jnp.asarray(c_t).at[-1].set(0.0))
    _, returns = jax.lax.scan(add, jnp.zeros((), jnp.result_type(*steps)), steps, reverse=True)
    return jax.lax.stop_gradient(returns)


def expected_off_policy_return(
    q_t: Array, a_t: Array, r_t: Array, discount_t: Array, pi_t: Array, c_t: Array
) -> Array:
    """Multi-step off-policy returns of expected values.

    G_t = r_{t+1} + discount_{t+1} * (E_pi[q_{t+1}] - c_{t+1} q_{t+1}(a_{t+1}) + c_{t+1} G_{t+1}):
    with `retrace_coefficients` it is Q(x_t, a_t) + Delta Q(x_t, a_t) of Reactor, section 2 (eq. 3).

    Args:
      q_t: `[T, A]`, action values at the destination steps, from the target network.
      a_t: `[T]`, the actions taken there, in 0 .. A-1; not checked.
      r_t: `[T]`, rewards that arrived there.
      discount_t: `[T]`, discounts that arrived there, in [0, 1]; 0 at a termination.
      pi_t: `[T, A]`, the target policy there; rows sum to 1.
      c_t: `[T]`, trace coefficients there, >= 0; the last one is treated as 0.

    Returns:
      Returns of the source steps, `[T]`.
    """
    assert_rank([2, 1], q_t=q_t, a_t=a_t)
    chex.assert_equal_shape([q_t, pi_t])
    chex.assert_equal_shape_prefix([q_t, a_t], 1)
    q_a_t = jnp.take_along_axis(q_t, a_t[:, None], axis=1)[:, 0]
    return off_policy_return(q_a_t, jnp.sum(pi_t * q_t, axis=1), r_t, discount_t, c_t)


def distributional_off_policy_target(
    atoms: Array, q_t: Array, a_t: Array, r_t: Array, discount_t: Array, pi_t: Array, c_t: Array
) -> Array:
    """Multi-step off-policy targets of return distributions.

    Reactor, section 3.2. With `retrace_coefficients` it is distributional Retrace, with
    `tree_backup_coefficients` TB(lambda), with `importance_coefficients` importance sampling:

      q*_i(x_t, a_t) = sum_{n>=1} sum_a alpha_{n,a} sum_j q_j(x_{t+n}, a) h_i(z_j^n),
      alpha_{n,a} = (c_{t+1} ... c_{t+n-1}) (pi(a|x_{t+n}) - I{a = a_{t+n}} c_{t+n}),
      z_j^n = r_{t+1} + ... + discount_{t+1} ... discount_{t+n-1} r_{t+n}
              + discount_{t+1} ... discount_{t+n} z_j,

    where h_i is the linear interpolation kernel of atom i. Each n-step distribution is projected
    once, from its own atoms z^n. Entries of a target may be negative; their expectations under the
    behaviour policy are not. If no z^n lies outside the support, the mean of the target is the
    `expected_off_policy_return` of the means.

    Args:
      atoms: `[N]`, the support z, increasing, N >= 2.
      q_t: `[T, A, N]`, probabilities of the atoms at the destination steps (target network).
      a_t: `[T]`, the actions taken there, in 0 .. A-1; not checked.
      r_t: `[T]`, rewards that arrived there.
      discount_t: `[T]`, discounts that arrived there, in [0, 1]; 0 at a termination.
      pi_t: `[T, A]`, the target policy there; rows sum to 1.
      c_t: `[T]`, trace coefficients there, >= 0; the last one is treated as 0.

    Returns:
      Targets q* of the source steps, `[T, N]`; each row sums to 1.
    """
    assert_rank([1, 3, 2], atoms=atoms, q_t=q_t, pi_t=pi_t)
    assert_steps(a_t=a_t, r_t=r_t, discount_t=discount_t, c_t=c_t)
    chex.assert_type([atoms, q_t, a_t, r_t], [float, float, int, float])
    chex.assert_shape(pi_t, (*r_t.shape, None))
    chex.assert_shape(q_t, (*pi_t.shape, *atoms.shape))

    c_t = jnp.asarray(c_t).at[-1].set(0.0)
    rewards, discounts, traces = _n_step_sums(r_t, discount_t, c_t)
    # sum_a (pi(a) - I{a = a_t} c_t) q(., a) depends on the destination step only, not on n.
    q_a_t = jnp.take_along_axis(q_t, a_t[:, None, None], axis=1)[:, 0]
    masses = jnp.einsum("ta,tan->tn", pi_t, q_t) - c_t[:, None] * q_a_t  # [T, N], signed

    source, destination = np.triu_indices(r_t.shape[0])  # all pairs, n = destination - source + 1
    pair = source, destination
    projected = affine_projections(atoms, masses, destination, rewards[pair], discounts[pair])
    # The sum over the destinations of each source, as a matrix product: a scatter takes longer.
    begins = np.arange(r_t.shape[0])[:, None] == source
    target = jnp.matmul(begins * traces[pair], projected, precision=jax.lax.Precision.HIGHEST)
    return jax.lax.stop_gradient(target)


def _n_step_sums(r_t: Array, discount_t: Array, c_t: Array) -> tuple[Array, Array, Array]:
    """For each source s and destination d >= s: reward sum, discount product, trace product.

    All `[T, T]`, indexed [s, d], meaningless for d < s. The trace product stops before d.
    """
    steps = np.arange(r_t.shape[0])
    after_source = steps[None, :] >= steps[:, None]

    def products(factors: Array) -> tuple[Array, Array]:
        inclusive = jnp.cumprod(jnp.where(after_source, factors, 1.0), axis=1)
        exclusive = jnp.concatenate([jnp.ones_like(inclusive[:, :1]), inclusive[:, :-1]], axis=1)
        return inclusive, exclusive

    discounts, discounts_before = products(discount_t)
    _, traces = products(c_t)
    rewards = jnp.cumsum(jnp.where(after_source, discounts_before * r_t, 0.0), axis=1)
    return rewards, discounts, traces
