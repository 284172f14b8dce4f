"""D4PG's networks and critic's head for a config and an environment's spec."""

from typing import Any, NamedTuple

import numpy as np
from dm_env import specs

from ...datatypes import EnvironmentSpec
from ...networks import (
    Categorical,
    CriticHead,
    D4PGNetworks,
    MixtureOfGaussians,
    Scalar,
    make_d4pg_networks,
)
from ...networks.d4pg import middle_and_half
from .config import Config


class Params(NamedTuple):
    """Parameters of the three networks, online or target, or their gradients.

    Attributes:
      torso: of images; empty for vectors. Trained with the critic.
      policy: the policy's.
      critic: the critic's.
    """

    torso: Any
    policy: Any
    critic: Any


def bounded_actions(environment_spec: EnvironmentSpec) -> specs.BoundedArray:
    """The action spec, if D4PG can use it.

    Raises:
      ValueError: the actions are discrete, or have no finite bounds.
    """
    actions = environment_spec.actions
    if isinstance(actions, specs.DiscreteArray) or not np.issubdtype(actions.dtype, np.floating):
        raise ValueError(f"D4PG needs continuous actions (floats within bounds), got {actions!r}.")
    if isinstance(actions, specs.BoundedArray):
        _, half = middle_and_half(actions)
        if np.all(np.isfinite(half) & (half > 0)):
            return actions
    raise ValueError(
        f"D4PG needs actions with finite bounds, each minimum below its maximum, got {actions!r}."
    )


def make_head(config: Config) -> CriticHead:
    """The head that `config.critic` names."""
    if config.critic == "categorical":
        return Categorical(config.num_atoms, config.vmin, config.vmax)
    if config.critic == "mixture_of_gaussians":
        return MixtureOfGaussians(
            config.mixture_components,
            config.mixture_samples,
            config.mixture_min_scale,
            config.return_unit,
        )
    return Scalar(config.return_unit)


def make_networks(
    environment_spec: EnvironmentSpec, config: Config, head: CriticHead
) -> D4PGNetworks:
    """The default networks, with the config's sizes, for that head."""
    return make_d4pg_networks(
        environment_spec.observations,
        environment_spec.actions,
        num_outputs=head.num_outputs,
        policy_sizes=config.policy_sizes,
        critic_sizes=config.critic_sizes,
        layer_norm=config.layer_norm,
        action_input=config.action_input,
        convolutions=config.convolutions,
        pixel_features=config.pixel_features,
    )
