"""Metrics of how far replayed actions are from the policy that is learned."""

import jax
import jax.numpy as jnp

from .sequences import masked_mean

_LARGEST = 1e30  # sums of these, and the inverse of one, are normal numbers of float32


def off_policyness(ratios: jax.Array, acted: jax.Array) -> dict[str, jax.Array]:
    """Metrics of importance ratios rho = pi(a|x) / mu(a|x), of the policy pi and the behaviour mu.

    * `mean_ratio`: the mean of rho. Its expectation under mu is 1.
    * `cut_traces`: share of the steps with rho < 1, at which Retrace cuts a trace, wholly or in
      part (Munos et al. 2016, section 3: c = lambda min(1, rho)).
    * `effective_sample_share`: (sum rho)^2 / (n sum rho^2) of n steps, in [1/n, 1]; 1 if all ratios
      are equal (the effective sample size of Kish 1965, divided by n).

    Args:
      ratios: `[...]`, rho >= 0, larger ones than 1e30 count as that; entries where no action was
        taken mean nothing, and may be NaN.
      acted: bool `[...]`, where an action was taken.

    Returns:
      float32 `[]` each; 0 where no action was taken. No gradient flows through them.
    """
    ratios = jnp.minimum(jax.lax.stop_gradient(jnp.where(acted, ratios, 0.0)), _LARGEST)
    # Divided by the largest, no square overflows.
    largest = jnp.max(ratios)
    scaled = ratios / jnp.where(largest > 0, largest, 1.0)
    squares = jnp.maximum(jnp.sum(acted), 1) * jnp.sum(jnp.square(scaled))
    share = jnp.square(jnp.sum(scaled)) / jnp.where(squares > 0, squares, 1.0)
    return {
        "mean_ratio": masked_mean(ratios, acted),
        "cut_traces": masked_mean((ratios < 1).astype(jnp.float32), acted),
        "effective_sample_share": share,
    }
