"""Losses and distances of categorical return distributions.

Unbatched, no reduction beyond the atoms. `N` denotes the number of atoms. A `target` takes no
gradient and may have negative entries: a sampled distributional Retrace target is a signed measure.
"""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from .ranks import assert_rank

_TINY = 1e-20  # a scale at which all atoms are at one place


def categorical_cross_entropy(target: Array, logits: Array) -> Array:
    """Cross-entropy -sum_i target_i * log softmax(logits)_i.

    It has the gradient of KL(target, softmax(logits)) (Reactor, section 3.2, the KL loss). It is
    linear in the target, so signed targets give unbiased gradients: never clip or renormalise them.

    Args:
      target: `[N]`, sums to 1, entries may be negative.
      logits: `[N]`, any real numbers.

    Returns:
      A scalar `[]`.
    """
    assert_rank(1, target=target, logits=logits)
    chex.assert_equal_shape([target, logits])
    return optax.losses.softmax_cross_entropy(logits, jax.lax.stop_gradient(target))


def categorical_kl_divergence(target: Array, logits: Array) -> Array:
    """Kullback-Leibler divergence KL(target, softmax(logits)): cross-entropy less target's entropy.

    0 where the prediction equals the target. The cross-entropy has the same gradient, but equals
    the target's entropy there. As a priority (Rainbow, Hessel et al. 2018, "The Integrated Agent")
    it does not prefer transitions whose return is random.

    Args:
      target: `[N]`, probabilities; must be >= 0 and sum to 1, not checked.
      logits: `[N]`, any real numbers.

    Returns:
      A scalar `[]`, >= 0.
    """
    assert_rank(1, target=target, logits=logits)
    chex.assert_equal_shape([target, logits])
    target = jax.lax.stop_gradient(target)
    divergence = optax.losses.kl_divergence(jax.nn.log_softmax(logits), target)
    return jnp.maximum(divergence, 0.0)  # rounding may fall below 0


def total_variation(target: Array, probs: Array) -> Array:
    """Total variation 1/2 * sum_i |target_i - probs_i|: Reactor's priority (section 3.3).

    In [0, 1] for two distributions; a signed target may exceed 1.

    Args:
      target: `[N]`, sums to 1, entries may be negative.
      probs: `[N]`, probabilities.

    Returns:
      A scalar `[]`, >= 0.
    """
    assert_rank(1, target=target, probs=probs)
    chex.assert_equal_shape([target, probs])
    return 0.5 * jnp.sum(jnp.abs(jax.lax.stop_gradient(target) - probs))


def categorical_projection(atoms: Array, values: Array, probs: Array) -> Array:
    """Projects a discrete distribution onto the atoms (C51, eq. 7; D4PG, appendix B).

    p'_i = sum_j h_i(value_j) p_j, where h_i is the linear interpolation kernel of atom i: each mass
    is divided between its two neighbouring atoms, and mass outside the support moves to its end
    atoms. Within the support the mean is preserved.

    Args:
      atoms: `[N]`, the support, increasing, N >= 2.
      values: `[M]`, positions of the masses.
      probs: `[M]`, the masses.

    Returns:
      Probabilities of the atoms, `[N]`, with the same sum as `probs`.
    """
    assert_rank(1, atoms=atoms, values=values, probs=probs)
    chex.assert_equal_shape([values, probs])
    nothing = jnp.zeros((1, atoms.shape[0]), jnp.result_type(float, probs))
    return add_projected(nothing, np.zeros(1, int), atoms, values[None], probs[None])[0]


def categorical_bellman_target(
    atoms: Array, r_t: Array, discount_t: Array, probs_t: Array
) -> Array:
    """The projected distribution of r_t + discount_t * Z_t: C51's target.

    Bellemare et al. 2017, Algorithm 1; with N-step returns as in D4PG, appendix B. In C51 `probs_t`
    is of the target network's greedy action, and the loss is `categorical_cross_entropy`.

    Args:
      atoms: `[N]`, the support of Z_t and of the result, increasing, N >= 2.
      r_t: `[]`.
      discount_t: `[]`, >= 0, gamma included; 0 after a termination.
      probs_t: `[N]`, probabilities of the atoms; they sum to 1.

    Returns:
      Probabilities of the atoms, `[N]`.
    """
    assert_rank([1, 0, 0, 1], atoms=atoms, r_t=r_t, discount_t=discount_t, probs_t=probs_t)
    chex.assert_equal_shape([atoms, probs_t])
    return categorical_projection(atoms, r_t + discount_t * atoms, probs_t)


def clipped_mass(
    atoms: Array, r_t: Array, discount_t: Array, probs_t: Array
) -> tuple[Array, Array]:
    """What `categorical_bellman_target` moves to the ends of the support, below and above it.

    The mean of the target is wrong by this mass times its distance to the support: if it is not
    near 0, the support is too narrow for the returns. A return at an end is not clipped.

    Args:
      atoms: `[N]`, the support of Z_t, increasing, N >= 2.
      r_t: `[]`.
      discount_t: `[]`, >= 0, gamma included; 0 after a termination.
      probs_t: `[N]`, probabilities of the atoms; they sum to 1.

    Returns:
      The probabilities `[]` of r_t + discount_t * Z_t < atoms[0], and > atoms[-1].
    """
    assert_rank([1, 0, 0, 1], atoms=atoms, r_t=r_t, discount_t=discount_t, probs_t=probs_t)
    chex.assert_equal_shape([atoms, probs_t])
    values = r_t + discount_t * atoms
    below, above = values < atoms[0], values > atoms[-1]
    return jnp.sum(jnp.where(below, probs_t, 0.0)), jnp.sum(jnp.where(above, probs_t, 0.0))


def affine_projections(
    atoms: Array, masses: Array, which: np.ndarray, shift: Array, scale: Array
) -> Array:
    """Projects `masses[which]` at shift + scale * atoms, `[P, N]`, as `categorical_projection`.

    What lies below atom i + 1 after the projection is sum_j m_j clip((z_{i+1} - v_j) / d, 0, 1),
    with v_j the positions and d the distance of atoms. Positions are in order, so this is a
    difference of prefix sums of m_j and of j m_j, which all positions of the same masses share: no
    scatter, and one addition for each atom (benchmarks/reactor_step.py). Atoms without equal
    distances, or that are no constant, are projected one mass at a time.

    `masses` `[D, N]` have any sign; `which`, `shift` and `scale` >= 0 are `[P]`.
    """
    if not _are_uniform(atoms):
        positions = shift[:, None] + scale[:, None] * atoms
        nothing = jnp.zeros(positions.shape, masses.dtype)
        return add_projected(nothing, np.arange(len(which)), atoms, positions, masses[which])
    size = atoms.shape[0]
    # In units of the distance, from the middle atom, where rounding errors are smallest.
    middle, distance = (atoms[0] + atoms[-1]) / 2, (atoms[-1] - atoms[0]) / (size - 1)
    index = np.arange(size, dtype=np.float32) - np.float32((size - 1) / 2)
    centre = ((shift + scale * middle - middle) / distance)[:, None]
    step = scale[:, None]
    # Masses at or below each atom. One that rounding puts on the other side is as near to it.
    below = jnp.floor((index - centre) / jnp.maximum(step, _TINY) - index[0]) + 1
    below = jnp.where(step > _TINY, below, jnp.where(index >= centre, size, 0))
    flat = which[:, None] * (size + 1) + jnp.clip(below, 0, size).astype(int)
    total, moment = (
        jnp.pad(jnp.cumsum(x, axis=1), ((0, 0), (1, 0))) for x in (masses, masses * index)
    )
    counted, moments = total.reshape(-1)[flat], moment.reshape(-1)[flat]
    between = (index[1:] - centre) * jnp.diff(counted) - step * jnp.diff(moments)
    cumulative = jnp.concatenate([counted[:, :-1] + between, total[which, -1:]], axis=1)
    return jnp.diff(cumulative, prepend=0.0)


def add_projected(
    target: Array, rows: np.ndarray, atoms: Array, values: Array, weights: Array
) -> Array:
    """Adds weights `[P, N]` at values `[P, N]`, projected onto the atoms, to `rows` of a target.

    Each mass affects only two atoms, so a scatter is several times faster than the [N, N] kernel
    (benchmarks/reactor_step.py). Values outside the support move to the end atom. Equal distances
    of atoms are faster, if these are a constant.
    """
    lower, fraction = _between(atoms, jnp.clip(values, atoms[0], atoms[-1]))
    target = target.at[rows[:, None], lower].add(weights * (1.0 - fraction))
    return target.at[rows[:, None], lower + 1].add(weights * fraction)


def _between(atoms: Array, values: Array) -> tuple[Array, Array]:
    """The atom below each value within the support, and the fraction of the way to the next one."""
    last = atoms.shape[0] - 1
    if _are_uniform(atoms):
        positions = (values - atoms[0]) * (last / (atoms[-1] - atoms[0]))
        lower = jnp.clip(jnp.floor(positions).astype(int), 0, last - 1)
        return lower, positions - lower
    atoms = jnp.asarray(atoms)
    lower = jnp.clip(jnp.searchsorted(atoms, values, side="right") - 1, 0, last - 1)
    return lower, (values - atoms[lower]) / (atoms[lower + 1] - atoms[lower])


def _are_uniform(atoms: Array) -> bool:
    """Whether atoms are known, while a function is traced, to have equal distances."""
    if isinstance(atoms, jax.core.Tracer):
        return False
    distances = np.diff(np.asarray(atoms, np.float64))
    # Rounding of the atoms to float32 moves a distance by this much.
    return bool(np.ptp(distances) <= 4 * np.finfo(np.float32).eps * np.max(np.abs(atoms)))
