"""What a critic says of the return: a categorical distribution, a mixture of Gaussians, a number.

D4PG (Barth-Maron et al. 2018), appendix A: each is a linear layer on the critic's torso, whose
`num_outputs` outputs the head reads. An agent that uses `CriticHead` alone does not know which it
has. Everything is unbatched; `P` denotes `num_outputs`.
"""

import math
from typing import NamedTuple, Protocol

import jax
import jax.numpy as jnp

from ..losses import categorical_td_loss, mixture_of_gaussians_td_loss, scalar_td_loss


class CriticHead(Protocol):
    """The reading of a critic's outputs."""

    @property
    def num_outputs(self) -> int:
        """P, the outputs that the critic's last layer must have."""
        ...

    @property
    def least_loss(self) -> float:
        """No loss is below it: `loss - least_loss` is a priority, >= 0."""
        ...

    def mean(self, outputs: jax.Array) -> jax.Array:
        """Expected return `[]` of outputs `[P]`."""
        ...

    def loss(
        self,
        outputs_tm1: jax.Array,
        return_: jax.Array,
        discount: jax.Array,
        outputs_t: jax.Array,
        key: jax.Array,
    ) -> jax.Array:
        """Loss `[]` of a prediction `[P]` against `return_ + discount * Z` of outputs `[P]`.

        A head that samples draws with the key; others ignore it. Only `outputs_tm1` takes a
        gradient.
        """
        ...

    def metrics(self, outputs: jax.Array) -> dict[str, jax.Array]:
        """Scalars `[]` that tell of a prediction `[P]` whether the head suits the task."""
        ...


class Categorical(NamedTuple):
    """Probabilities of fixed atoms. A `CriticHead`.

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
        """The atoms' logits."""
        return self.num_atoms

    @property
    def least_loss(self) -> float:
        """A cross-entropy of probabilities is not negative."""
        return 0.0

    def mean(self, outputs: jax.Array) -> jax.Array:
        """See `CriticHead`."""
        return jnp.sum(jax.nn.softmax(outputs) * self._atoms())

    def loss(
        self,
        outputs_tm1: jax.Array,
        return_: jax.Array,
        discount: jax.Array,
        outputs_t: jax.Array,
        key: jax.Array,
    ) -> jax.Array:
        """See `CriticHead`, `losses.categorical_td_loss`."""
        del key
        probs_t = jax.nn.softmax(outputs_t)
        return categorical_td_loss(self._atoms(), outputs_tm1, return_, discount, probs_t)

    def metrics(self, outputs: jax.Array) -> dict[str, jax.Array]:
        """Probabilities of the support's two ends: far above 0, returns lie beyond them."""
        probs = jax.nn.softmax(outputs)
        return {"mass_at_vmin": probs[0], "mass_at_vmax": probs[-1]}

    def _atoms(self) -> jax.Array:
        return jnp.linspace(self.vmin, self.vmax, self.num_atoms)


class MixtureOfGaussians(NamedTuple):
    """Weights, means and standard deviations of Gaussians. A `CriticHead`.

    Attributes:
      num_components: K >= 1.
      num_samples: of the target, in each loss; >= 1.
      min_scale: added to each standard deviation, > 0: bounds the density, and so the loss below.
      unit: what outputs of means and standard deviations count in, > 0: the size of returns.
    """

    num_components: int = 5
    num_samples: int = 16
    min_scale: float = 1e-2
    unit: float = 1.0

    @property
    def num_outputs(self) -> int:
        """Logits, means and what the standard deviations are made of, K each."""
        return 3 * self.num_components

    @property
    def least_loss(self) -> float:
        """Minus the logarithm of the largest density that there can be."""
        return math.log(self.min_scale) + 0.5 * math.log(2.0 * math.pi)

    def mean(self, outputs: jax.Array) -> jax.Array:
        """See `CriticHead`."""
        logits, means, _ = self._parts(outputs)
        return jnp.sum(jax.nn.softmax(logits) * means)

    def loss(
        self,
        outputs_tm1: jax.Array,
        return_: jax.Array,
        discount: jax.Array,
        outputs_t: jax.Array,
        key: jax.Array,
    ) -> jax.Array:
        """See `CriticHead`, `losses.mixture_of_gaussians_td_loss`."""
        return mixture_of_gaussians_td_loss(
            *self._parts(outputs_tm1),
            return_,
            discount,
            *self._parts(outputs_t),
            key,
            num_samples=self.num_samples,
        )

    def metrics(self, outputs: jax.Array) -> dict[str, jax.Array]:
        """The mixture's standard deviation."""
        logits, means, scales = self._parts(outputs)
        weights = jax.nn.softmax(logits)
        deviations = means - jnp.sum(weights * means)
        variance = jnp.sum(weights * (jnp.square(scales) + jnp.square(deviations)))
        return {"standard_deviation": jnp.sqrt(variance)}

    def _parts(self, outputs: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        logits, means, raw = jnp.split(outputs, 3)
        return logits, self.unit * means, self.unit * jax.nn.softplus(raw) + self.min_scale


class Scalar(NamedTuple):
    """The expected return alone, as DDPG's critic. A `CriticHead`.

    Attributes:
      unit: what the output counts in, > 0: the size of returns.
    """

    unit: float = 1.0

    @property
    def num_outputs(self) -> int:
        """One."""
        return 1

    @property
    def least_loss(self) -> float:
        """A squared error is not negative."""
        return 0.0

    def mean(self, outputs: jax.Array) -> jax.Array:
        """See `CriticHead`."""
        return self.unit * outputs[0]

    def loss(
        self,
        outputs_tm1: jax.Array,
        return_: jax.Array,
        discount: jax.Array,
        outputs_t: jax.Array,
        key: jax.Array,
    ) -> jax.Array:
        """See `CriticHead`, `losses.scalar_td_loss`."""
        del key
        return scalar_td_loss(self.mean(outputs_tm1), return_, discount, self.mean(outputs_t))

    def metrics(self, outputs: jax.Array) -> dict[str, jax.Array]:
        """None."""
        del outputs
        return {}
