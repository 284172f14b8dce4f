"""Critic heads: a categorical distribution, a mixture of Gaussians, or the expected return.

D4PG (Barth-Maron et al. 2018), appendix A. A head interprets the outputs of the critic's last
linear layer. Everything is unbatched; `P` denotes `num_outputs`.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..losses import (
    CriticLoss,
    categorical_td_loss,
    clipped_mass,
    mixture_of_gaussians_td_loss,
    scalar_td_loss,
)


class CriticHead(NamedTuple):
    """Interprets the outputs of a critic.

    `outputs_tm1` `[P]` are a prediction, whose target is `r_t + discount_t * Z`; Z is the
    distribution of `outputs_t` `[P]`.

    Attributes:
      num_outputs: P, the number of outputs of the critic's last layer.
      mean: `outputs [P] -> []`, the expected return.
      loss: `(outputs_tm1, r_t, discount_t, outputs_t, key) -> CriticLoss`, loss and priority. The
        key is for heads that draw samples. Only `outputs_tm1` takes a gradient, from the loss.
      metrics: `(outputs_tm1, r_t, discount_t, outputs_t) -> dict`, diagnostics `[]` of the
        arguments of `loss`: whether the head suits the task.
    """

    num_outputs: int
    mean: Callable[[jax.Array], jax.Array]
    loss: Callable[[jax.Array, jax.Array, jax.Array, jax.Array, jax.Array], CriticLoss]
    metrics: Callable[[jax.Array, jax.Array, jax.Array, jax.Array], dict[str, jax.Array]]


def support_metrics(
    atoms: Any, probs: jax.Array, r_t: jax.Array, discount_t: jax.Array, probs_t: jax.Array
) -> dict[str, jax.Array]:
    """Predicted mass at the end atoms, and the target's mass outside of them (`clipped_mass`)."""
    below, above = clipped_mass(atoms, r_t, discount_t, probs_t)
    return {
        "mass_at_vmin": probs[0],
        "mass_at_vmax": probs[-1],
        "clipped_below_vmin": below,
        "clipped_above_vmax": above,
    }


def categorical_head(num_atoms: int = 51, vmin: float = -150.0, vmax: float = 150.0) -> CriticHead:
    """A categorical distribution over fixed atoms: one logit for each (`categorical_td_loss`).

    Its metrics are `support_metrics`.

    Args:
      num_atoms: >= 2.
      vmin: the smallest atom.
      vmax: the largest atom, > vmin.
    """
    # NumPy's, a constant while functions are traced: the losses see its equal distances.
    atoms: Any = np.linspace(vmin, vmax, num_atoms, dtype=np.float32)

    return CriticHead(
        num_outputs=num_atoms,
        mean=lambda outputs: jnp.sum(jax.nn.softmax(outputs) * atoms),
        loss=lambda outputs_tm1, r_t, discount_t, outputs_t, key: categorical_td_loss(
            atoms, outputs_tm1, r_t, discount_t, jax.nn.softmax(outputs_t)
        ),
        metrics=lambda outputs_tm1, r_t, discount_t, outputs_t: support_metrics(
            atoms, jax.nn.softmax(outputs_tm1), r_t, discount_t, jax.nn.softmax(outputs_t)
        ),
    )


def mixture_of_gaussians_head(
    num_components: int = 5, num_samples: int = 16, min_scale: float = 1e-2, unit: float = 1.0
) -> CriticHead:
    """A mixture of Gaussians (`mixture_of_gaussians_td_loss`).

    Its outputs are K logits, K means, and K inputs of the softplus for the standard deviations. Its
    metric is the standard deviation of the prediction.

    Args:
      num_components: K >= 1.
      num_samples: >= 1, samples of the target in each loss.
      min_scale: > 0, added to each standard deviation. It bounds the loss below.
      unit: > 0, the factor from outputs to means and standard deviations: the scale of returns.
    """

    def parts(outputs: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        logits, means, raw = jnp.split(outputs, 3)
        return logits, unit * means, unit * jax.nn.softplus(raw) + min_scale

    def mean(outputs: jax.Array) -> jax.Array:
        logits, means, _ = parts(outputs)
        return jnp.sum(jax.nn.softmax(logits) * means)

    def metrics(
        outputs_tm1: jax.Array, r_t: jax.Array, discount_t: jax.Array, outputs_t: jax.Array
    ) -> dict[str, jax.Array]:
        logits, means, scales = parts(outputs_tm1)
        weights = jax.nn.softmax(logits)
        deviations = means - jnp.sum(weights * means)
        variance = jnp.sum(weights * (jnp.square(scales) + jnp.square(deviations)))
        return {"standard_deviation": jnp.sqrt(variance)}

    td_loss = functools.partial(
        mixture_of_gaussians_td_loss, num_samples=num_samples, min_scale=min_scale
    )
    return CriticHead(
        num_outputs=3 * num_components,
        mean=mean,
        loss=lambda outputs_tm1, r_t, discount_t, outputs_t, key: td_loss(
            *parts(outputs_tm1), r_t, discount_t, *parts(outputs_t), key
        ),
        metrics=metrics,
    )


def scalar_head(unit: float = 1.0) -> CriticHead:
    """The expected return as one output, as in DDPG (`scalar_td_loss`); it has no metrics.

    Args:
      unit: > 0, the factor from the output to the expected return: the scale of returns.
    """
    return CriticHead(
        num_outputs=1,
        mean=lambda outputs: unit * outputs[0],
        loss=lambda outputs_tm1, r_t, discount_t, outputs_t, key: scalar_td_loss(
            unit * outputs_tm1[0], r_t, discount_t, unit * outputs_t[0]
        ),
        metrics=lambda *arguments: {},
    )
