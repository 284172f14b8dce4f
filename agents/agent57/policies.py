"""Value functions of a config: their names, their rewards, and their combination."""

from typing import NamedTuple

import jax
import numpy as np

from ... import losses
from .config import Config
from .families import agent57_discounts, intrinsic_weights, ngu_discounts

HEADS = {"split": ("extrinsic", "intrinsic"), "mixed": ("mixed",), "extrinsic": ("extrinsic",)}


class Arms(NamedTuple):
    """The family of policies.

    Attributes:
      weights: beta_j, float32 `[N]`.
      discounts: gamma_j, float32 `[N]`.
    """

    weights: np.ndarray
    discounts: np.ndarray


def is_curious(config: Config) -> bool:
    """Whether the config has intrinsic rewards."""
    return config.values != "extrinsic"


def recomputes(config: Config) -> bool:
    """Whether the learner computes intrinsic rewards again."""
    return is_curious(config) and config.intrinsic_rewards == "recomputed"


def make_arms(config: Config) -> Arms:
    """The pairs (beta_j, gamma_j) of a config."""
    high, middle, low = config.discount_high, config.discount_middle, config.discount_low
    if config.discounts == "ngu":
        discounts = ngu_discounts(config.num_arms, middle, low)
    else:
        discounts = agent57_discounts(config.num_arms, high, middle, low)
    return Arms(intrinsic_weights(config.num_arms, config.intrinsic_weight), discounts)


def value_transform(config: Config) -> losses.ValueTransform:
    """The rescaling h of a config."""
    if config.rescale:
        return losses.signed_hyperbolic_pair(config.rescaling_epsilon)
    return losses.IDENTITY


def combine(config: Config, values: dict[str, jax.Array], weight: jax.Array) -> jax.Array:
    """Q^e + beta_j Q^i, or h(h^-1(Q^e) + beta_j h^-1(Q^i)); a single value is returned unchanged.

    Agent57, section 3.1 and appendix B. The combination selects actions and defines the target
    policy.

    Args:
      config: hyper-parameters.
      values: by the names of `HEADS`, `[..., A]` each.
      weight: beta_j, broadcasts to `[..., A]`.

    Returns:
      `[..., A]`.
    """
    if config.values != "split":
        [value] = values.values()
        return value
    if not config.transformed_mix:
        return values["extrinsic"] + weight * values["intrinsic"]
    h = value_transform(config)
    return h.apply(h.invert(values["extrinsic"]) + weight * h.invert(values["intrinsic"]))


def rewards(
    config: Config, extrinsic: jax.Array, intrinsic: jax.Array, weight: jax.Array
) -> dict[str, jax.Array]:
    """The rewards of the value functions: r^e and r^i for two of them, r^e + beta_j r^i for one.

    Args:
      config: hyper-parameters.
      extrinsic: `[T]`.
      intrinsic: `[T]`.
      weight: beta_j, `[]`.

    Returns:
      By the names of `HEADS`, `[T]` each.
    """
    each = {
        "extrinsic": extrinsic,
        "intrinsic": intrinsic,
        "mixed": extrinsic + weight * intrinsic,
    }
    return {name: each[name] for name in HEADS[config.values]}
