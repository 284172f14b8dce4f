"""Critic heads: a categorical distribution, a mixture of Gaussians, or the expected return.

D4PG (Barth-Maron et al. 2018), appendix A. A head interprets the outputs of the critic's last
linear layer. Agents use heads through `CriticHead` only. Everything is unbatched; `P` denotes
`num_outputs`.
"""

from typing import Any, NamedTuple, Protocol

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


class CriticHead(Protocol):
    """Interprets the outputs of a critic."""

    @property
    def num_outputs(self) -> int:
        """P, the number of outputs of the critic's last layer."""
        ...

    def mean(self, outputs: jax.Array) -> jax.Array:
        """Expected return `[]` of outputs `[P]`."""
        ...

    def loss(
        self,
        outputs_tm1: jax.Array,
        r_t: jax.Array,
        discount_t: jax.Array,
        outputs_t: jax.Array,
        key: jax.Array,
    ) -> CriticLoss:
        """Loss and priority of a prediction `[P]` with the target `r_t + discount_t * Z`.

        Z is the distribution of `outputs_t` `[P]`. The key is for heads that draw samples; others
        ignore it. Only `outputs_tm1` takes a gradient, that of the loss.
        """
        ...

    def metrics(
        self,
        outputs_tm1: jax.Array,
        r_t: jax.Array,
        discount_t: jax.Array,
        outputs_t: jax.Array,
    ) -> dict[str, jax.Array]:
        """Diagnostics `[]` of the arguments of `loss`: whether the head suits the task."""
        ...


class Categorical(NamedTuple):
    """A categorical distribution over fixed atoms. A `CriticHead`.

    Attributes:
      num_atoms: >= 2.
      vmin: the smallest atom.
      vmax: the largest atom, > vmin.
    """

    num_atoms: int = 51
    vmin: float = -150.0
    vmax: float = 150.0

    @property
    def num_outputs(self) -> int:
        """One logit for each atom."""
        return self.num_atoms

    def mean(self, outputs: jax.Array) -> jax.Array:
        """The mean over the atoms."""
        return jnp.sum(jax.nn.softmax(outputs) * self._atoms())

    def loss(
        self,
        outputs_tm1: jax.Array,
        r_t: jax.Array,
        discount_t: jax.Array,
        outputs_t: jax.Array,
        key: jax.Array,
    ) -> CriticLoss:
        """Cross-entropy and KL divergence of the projected target: `losses.categorical_td_loss`."""
        del key
        probs_t = jax.nn.softmax(outputs_t)
        return categorical_td_loss(self._atoms(), outputs_tm1, r_t, discount_t, probs_t)

    def metrics(
        self,
        outputs_tm1: jax.Array,
        r_t: jax.Array,
        discount_t: jax.Array,
        outputs_t: jax.Array,
    ) -> dict[str, jax.Array]:
        """The prediction's mass at the ends, and the target's outside: `losses.clipped_mass`."""
        probs = jax.nn.softmax(outputs_tm1)
        below, above = clipped_mass(self._atoms(), r_t, discount_t, jax.nn.softmax(outputs_t))
        return {
            "mass_at_vmin": probs[0],
            "mass_at_vmax": probs[-1],
            "clipped_below_vmin": below,
            "clipped_above_vmax": above,
        }

    def _atoms(self) -> Any:
        # NumPy's, a constant while functions are traced: the losses see its equal distances.
        return np.linspace(self.vmin, self.vmax, self.num_atoms, dtype=np.float32)


class MixtureOfGaussians(NamedTuple):
    """A mixture of Gaussians. A `CriticHead`.

    Attributes:
      num_components: K >= 1.
      num_samples: >= 1, samples of the target in each loss.
      min_scale: > 0, added to each standard deviation. It bounds the loss below.
      unit: > 0, the factor from outputs to means and standard deviations: the scale of returns.
    """

    num_components: int = 5
    num_samples: int = 16
    min_scale: float = 1e-2
    unit: float = 1.0

    @property
    def num_outputs(self) -> int:
        """K logits, K means, and K inputs of the softplus for the standard deviations."""
        return 3 * self.num_components

    def mean(self, outputs: jax.Array) -> jax.Array:
        """The components' mean, weighted."""
        logits, means, _ = self._parts(outputs)
        return jnp.sum(jax.nn.softmax(logits) * means)

    def loss(
        self,
        outputs_tm1: jax.Array,
        r_t: jax.Array,
        discount_t: jax.Array,
        outputs_t: jax.Array,
        key: jax.Array,
    ) -> CriticLoss:
        """Both from samples: `losses.mixture_of_gaussians_td_loss`."""
        return mixture_of_gaussians_td_loss(
            *self._parts(outputs_tm1),
            r_t,
            discount_t,
            *self._parts(outputs_t),
            key,
            num_samples=self.num_samples,
            min_scale=self.min_scale,
        )

    def metrics(
        self,
        outputs_tm1: jax.Array,
        r_t: jax.Array,
        discount_t: jax.Array,
        outputs_t: jax.Array,
    ) -> dict[str, jax.Array]:
        """The standard deviation of the prediction."""
        del r_t, discount_t, outputs_t
        logits, means, scales = self._parts(outputs_tm1)
        weights = jax.nn.softmax(logits)
        deviations = means - jnp.sum(weights * means)
        variance = jnp.sum(weights * (jnp.square(scales) + jnp.square(deviations)))
        return {"standard_deviation": jnp.sqrt(variance)}

    def _parts(self, outputs: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        logits, means, raw = jnp.split(outputs, 3)
        return logits, self.unit * means, self.unit * jax.nn.softplus(raw) + self.min_scale


class Scalar(NamedTuple):
    """The expected return, as in DDPG. A `CriticHead`.

    Attributes:
      unit: > 0, the factor from the output to the expected return: the scale of returns.
    """

    unit: float = 1.0

    @property
    def num_outputs(self) -> int:
        """One."""
        return 1

    def mean(self, outputs: jax.Array) -> jax.Array:
        """The output, in units of the return."""
        return self.unit * outputs[0]

    def loss(
        self,
        outputs_tm1: jax.Array,
        r_t: jax.Array,
        discount_t: jax.Array,
        outputs_t: jax.Array,
        key: jax.Array,
    ) -> CriticLoss:
        """The squared and the absolute error: `losses.scalar_td_loss`."""
        del key
        return scalar_td_loss(self.mean(outputs_tm1), r_t, discount_t, self.mean(outputs_t))

    def metrics(
        self,
        outputs_tm1: jax.Array,
        r_t: jax.Array,
        discount_t: jax.Array,
        outputs_t: jax.Array,
    ) -> dict[str, jax.Array]:
        """No diagnostics."""
        del outputs_tm1, r_t, discount_t, outputs_t
        return {}
