"""ACER's targets of the critic, its returns and its policy gradient (Wang et al. 2017).

Unbatched. As in `off_policy`, the suffix `_t` marks arrays of the destination steps 1 .. T, `_tm1`
arrays of the source steps 0 .. T-1; results belong to the source steps. `T` denotes the number of
transitions, `n` of sampled actions. No gradient flows through targets.

`rho` = pi(a|x) / mu(a|x) is the importance ratio of the action taken, of probabilities or of
densities. At the last row of an episode the trace must be cut: `rho_t` or `continues_t` is 0 there.
The return still bootstraps from the value `v_t` there, unless the discount is 0. The last entries
of `rho_t` and `continues_t` have no effect, since no step follows.

Policy gradients are of one state. A policy is a distribution f(.|phi). A network computes its
statistics phi `[D]`: the probabilities of a categorical distribution, or the mean of a Gaussian.
Gradients are with respect to phi, in the direction of **ascent**; backpropagation carries them to
the parameters (`jax.vjp`, or the loss -sum(stop_gradient(gradient) * phi)). `A` denotes the number
of actions. In the space of logits, which some implementations use in place of the paper's
probabilities, the trust region is a different one.
"""

import chex
import jax
import jax.numpy as jnp
from jax import Array
from jax.lax import stop_gradient as _stop

from .off_policy import off_policy_return
from .policy_gradient import tislr_loss
from .ranks import assert_rank, assert_steps

_LARGEST_RETURN = 2.0**63  # the square of twice this overflows float32
_LARGEST_WEIGHTED_ERROR = 2.0**100  # leaves room for sums over a batch and for back-propagation


def q_retrace(
    q_t: Array,
    v_t: Array,
    r_t: Array,
    discount_t: Array,
    rho_t: Array,
    exponent: float = 1.0,
    lambda_: float = 1.0,
) -> Array:
    """Retrace returns of the actions taken (ACER, eq. 5).

    Q_ret_t = r_{t+1} + discount_{t+1} (c_{t+1} (Q_ret_{t+1} - q_{t+1}) + v_{t+1}), with
    c = lambda min(1, rho^exponent), as in Algorithm 2. Eq. 5 prints the policy gradient's c.

    Args:
      q_t: `[T]`, values of the actions taken at the destination steps.
      v_t: `[T]`, state values there.
      r_t: `[T]`, rewards that arrived there.
      discount_t: `[T]`, discounts that arrived there, in [0, 1]; 0 at a termination.
      rho_t: `[T]`, importance ratios there, >= 0; 0 cuts the trace.
      exponent: 1 for discrete actions, 1 / d for continuous ones of d dimensions (section 5.1).
      lambda_: in [0, 1]; the paper has none, 1.

    Returns:
      Returns of the source steps, `[T]`.
    """
    c_t = lambda_ * jnp.minimum(1.0, rho_t**exponent)
    return off_policy_return(q_t, v_t, r_t, discount_t, c_t)


def q_opc(q_t: Array, v_t: Array, r_t: Array, discount_t: Array, continues_t: Array) -> Array:
    """Q(lambda) with off-policy corrections, lambda = 1 (ACER, eq. 21; Harutyunyan et al. 2016).

    `q_retrace` with 1 in place of the truncated ratio. The traces are longer, and the estimate is
    accurate only if both policies are similar. Continuous ACER's policy gradient has it (eq. 15).

    Args:
      q_t: `[T]`, values of the actions taken at the destination steps.
      v_t: `[T]`, state values there.
      r_t: `[T]`, rewards that arrived there.
      discount_t: `[T]`, discounts that arrived there, in [0, 1]; 0 at a termination.
      continues_t: `[T]`, bool, or 1 and 0: whether the episode continues after these steps.

    Returns:
      Returns of the source steps, `[T]`.
    """
    return off_policy_return(q_t, v_t, r_t, discount_t, jnp.asarray(continues_t, jnp.float32))


def importance_sampled_return(
    v_t: Array, r_t: Array, discount_t: Array, rho_t: Array, continues_t: Array
) -> Array:
    """Returns by importance sampling, without truncation: the ablation of Retrace (ACER, E.4).

    R_t = r_{t+1} + discount_{t+1} rho_{t+1} R_{t+1}, and r_{t+1} + discount_{t+1} v_{t+1} where the
    episode ends. The paper's equation lacks the discount. The returns are unbounded in theory. Here
    they are clipped to +- 2^63 at every step: larger squares overflow. Ratios may be infinite.

    Args:
      v_t: `[T]`, state values at the destination steps.
      r_t: `[T]`, rewards that arrived there.
      discount_t: `[T]`, discounts that arrived there, in [0, 1]; 0 at a termination.
      rho_t: `[T]`, importance ratios there, >= 0.
      continues_t: `[T]`, bool, or 1 and 0: whether the episode continues after these steps.

    Returns:
      Returns of the source steps, `[T]`.
    """
    rho_t = jnp.asarray(rho_t)
    assert_steps(v_t=v_t, r_t=r_t, discount_t=discount_t, rho_t=rho_t, continues_t=continues_t)
    continues_t = jnp.asarray(continues_t, jnp.float32).at[-1].set(0.0)
    v_t = (1.0 - continues_t) * v_t
    # Finite and 0 where it has no effect: neither 0 * inf nor inf - inf can occur.
    matters = (continues_t > 0) & (discount_t > 0)
    rho_t = jnp.where(matters, jnp.minimum(rho_t, jnp.finfo(rho_t.dtype).max), 0.0)

    def add(later: Array, step: tuple[Array, Array, Array, Array]) -> tuple[Array, Array]:
        reward, discount, rho, v = step
        sampled = reward + discount * (v + rho * later)
        return_ = jnp.clip(sampled, -_LARGEST_RETURN, _LARGEST_RETURN)
        return return_, return_

    start = jnp.zeros((), rho_t.dtype)
    _, returns = jax.lax.scan(add, start, (r_t, discount_t, rho_t, v_t), reverse=True)
    return _stop(returns)


def importance_weighted_value_loss(return_: Array, v: Array, rho: Array) -> Array:
    """The state value's loss of the ablation of stochastic dueling (ACER, E.4).

    rho (R - V)^2 / 2. The ratio is not truncated by the paper. Here it is limited to
    2^100 / max(1, |R - V|)^2, so that loss and gradient stay finite. The norm of a gradient near
    that limit overflows float32. The ratio may be infinite.

    Args:
      return_: any shape, the Retrace return of the action taken.
      v: of the same shape, the state's estimated value. Takes the gradient.
      rho: of the same shape, the importance ratio of that action, >= 0.

    Returns:
      Losses, of the same shape.
    """
    chex.assert_equal_shape([return_, v, rho])
    error = _stop(return_) - v
    size = jnp.maximum(1.0, jnp.abs(error))
    rho = _stop(jnp.minimum(rho, _LARGEST_WEIGHTED_ERROR / size / size))
    return 0.5 * rho * jnp.square(error)


def v_target(return_: Array, q: Array, v: Array, rho: Array) -> Array:
    """A target for the state value (ACER, eq. 14): min(1, rho) (Q_ret - Q) + V.

    The ratio is not raised to a power, unlike in `q_retrace`.

    Args:
      return_: any shape, the Retrace return of the action taken.
      q: of the same shape, its estimated value.
      v: of the same shape, the state's estimated value.
      rho: of the same shape, the importance ratio of that action, >= 0.

    Returns:
      Targets, of the same shape.
    """
    chex.assert_equal_shape([return_, q, v, rho])
    return _stop(jnp.minimum(1.0, rho) * (return_ - q) + v)


def stochastic_dueling(v: Array, advantage_a: Array, advantages_sampled: Array) -> Array:
    """The action value of a stochastic dueling network (ACER, eq. 13).

    Q(x, a) = V(x) + A(x, a) - mean_i A(x, u_i) with u_i drawn from the policy. Its expectation over
    a and the u_i, all drawn from the policy, is V(x). Gradients flow into all three.

    Args:
      v: `[]`, the state's value.
      advantage_a: `[]`, A(x, a).
      advantages_sampled: `[n]`, A(x, u_i), n >= 1 (5 in the paper).

    Returns:
      Q(x, a), `[]`.
    """
    assert_rank([0, 0, 1], v=v, advantage_a=advantage_a, advantages_sampled=advantages_sampled)
    chex.assert_axis_dimension_gt(advantages_sampled, 0, 0)
    return v + advantage_a - jnp.mean(advantages_sampled)


def truncated_importance_trajectory(
    v_tm1: Array,
    v_t: Array,
    r_t: Array,
    discount_t: Array,
    log_rho_tm1: Array,
    continues_t: Array,
    cap: float = 5.0,
) -> tuple[Array, Array]:
    """The baseline TIS: truncated importance sampling over trajectories (ACER, E.2).

    Weight: min(cap, rho_t rho_{t+1} ... ), up to the end of the trajectory. Advantage: the
    discounted sum of rewards up to that end, plus the discounted value there, minus V(x_t). The
    gradient of the policy is weight * advantage * grad log pi(a_t|x_t), the value's is
    weight * advantage * grad V(x_t). A trajectory ends with its episode or with the sequence. With
    rho = 1 this is A3C (eq. 2).

    Args:
      v_tm1: `[T]`, state values at the source steps.
      v_t: `[T]`, state values at the destination steps.
      r_t: `[T]`, rewards that arrived there.
      discount_t: `[T]`, discounts that arrived there, in [0, 1]; 0 at a termination.
      log_rho_tm1: `[T]`, logarithms of the importance ratios at the source steps.
      continues_t: `[T]`, bool, or 1 and 0: whether the episode continues there.
      cap: > 0; 5 in the paper.

    Returns:
      Weights and advantages of the source steps, `[T]` each.
    """
    assert_steps(v_tm1=v_tm1, v_t=v_t, r_t=r_t, discount_t=discount_t)
    assert_steps(r_t=r_t, log_rho_tm1=log_rho_tm1, continues_t=continues_t)
    continues_t = jnp.asarray(continues_t, jnp.float32).at[-1].set(0.0)
    returns = off_policy_return(v_t, v_t, r_t, discount_t, continues_t)

    def add(later: Array, step: tuple[Array, Array]) -> tuple[Array, Array]:
        log_rho, continues = step
        log_weight = log_rho + jnp.where(continues > 0, later, 0.0)
        return log_weight, log_weight

    start, log_rho_tm1 = jnp.zeros(()), jnp.asarray(log_rho_tm1, float)
    _, log_weights = jax.lax.scan(add, start, (log_rho_tm1, continues_t), reverse=True)
    weights = jnp.exp(jnp.minimum(jnp.log(cap), log_weights))
    return _stop(weights), _stop(returns - v_tm1)


def acer_policy_gradient(
    pi: Array, mu: Array, q: Array, v: Array, a: Array, return_: Array, c: float
) -> Array:
    """The truncated estimator with bias correction over all actions (ACER, eq. 9 and 10).

    min(c, rho(a)) (Q_ret - V) grad log pi(a)
    + sum_b [1 - c / rho(b)]_+ pi(b) (Q(b) - V) grad log pi(b),   rho = pi / mu,

    where grad is with respect to each probability independently. The sum uses Q(b) of every action
    b; Algorithm 2 prints Q of the taken action, which is a misprint. c = infinity gives importance
    sampling without truncation. c = 0 gives an actor-critic that does not use the return.

    Args:
      pi: `[A]`, the policy's probabilities, its statistics.
      mu: `[A]`, the behaviour policy's; mu(a) > 0.
      q: `[A]`, estimated action values.
      v: `[]`, the state's value, a baseline.
      a: `[]`, the action taken.
      return_: `[]`, the return estimate of that action, Q_ret.
      c: truncation of the importance weights, >= 0; not Retrace's c.

    Returns:
      The gradient with respect to `pi`, `[A]`, ascent.
    """
    return _stop(-jax.grad(tislr_loss)(jnp.asarray(pi), mu, q, v, a, return_, c))


def acer_sampled_policy_gradient(
    score: Array,
    rho: Array,
    advantage: Array,
    score_sampled: Array,
    rho_sampled: Array,
    advantage_sampled: Array,
    c: float,
) -> Array:
    """The truncated estimator with bias correction for one sampled action a' (ACER, eq. 16).

    min(c, rho(a)) (Q_opc - V) grad log f(a|phi)
    + [1 - c / rho(a')]_+ (Q(a') - V) grad log f(a'|phi).

    Args:
      score: `[D]`, grad log f(a|phi) of the action taken.
      rho: `[]`, its importance ratio, >= 0.
      advantage: `[]`, its return estimate minus the state's value.
      score_sampled: `[D]`, grad log f(a'|phi) of the action a' drawn.
      rho_sampled: `[]`, its importance ratio, > 0.
      advantage_sampled: `[]`, its estimated value minus the state's.
      c: truncation of the importance weights, >= 0; not Retrace's c.

    Returns:
      The gradient with respect to the statistics, `[D]`, ascent.
    """
    assert_rank(1, score=score, score_sampled=score_sampled)
    assert_rank(0, rho=rho, advantage=advantage)
    assert_rank(0, rho_sampled=rho_sampled, advantage_sampled=advantage_sampled)
    chex.assert_equal_shape([score, score_sampled])
    excess = jnp.maximum(1.0 - c / rho_sampled, 0.0)
    truncated = jnp.minimum(c, rho) * advantage * score
    return _stop(truncated + excess * advantage_sampled * score_sampled)


def trust_region_projection(gradient: Array, kl_gradient: Array, delta: float | Array) -> Array:
    """Projects a gradient onto the linearised trust region (ACER, eq. 11 and 12).

    z = g - max(0, (k . g - delta) / |k|^2) k minimises |g - z|^2 / 2 subject to k . z <= delta,
    where k = grad_phi KL(f(.|phi_average) || f(.|phi)) with the average policy first. The function
    is for one time step: for a mean over time steps or a batch, delta has a different meaning.
    The result is g where k = 0 and where k . g <= delta.

    Args:
      gradient: `[D]`, g, in the direction of ascent.
      kl_gradient: `[D]`, k.
      delta: > 0, bound on the increase of the divergence, to first order.

    Returns:
      z, `[D]`.
    """
    assert_rank(1, gradient=gradient, kl_gradient=kl_gradient)
    chex.assert_equal_shape([gradient, kl_gradient])
    # Scaled by k's largest entry, whose square may overflow: k = -average / pi is unbounded for
    # probabilities. The cap of 1e37 keeps the reciprocal of the scale from underflowing.
    size = jnp.minimum(jnp.max(jnp.abs(kl_gradient)), 1e37)
    unit = jnp.where(size > 0, kl_gradient / jnp.where(size > 0, size, 1.0), 0.0)
    excess = unit @ gradient - delta / jnp.where(size > 0, size, 1.0)
    scale = jnp.where(size > 0, jnp.maximum(excess, 0.0) / jnp.maximum(unit @ unit, 1.0), 0.0)
    return _stop(gradient - scale * unit)
