"""ACER's presets by name, and the default one of an environment."""

import dataclasses
from collections.abc import Callable

from dm_env import specs

from ...datatypes import EnvironmentSpec
from ...networks.torsos import DQN_CONVOLUTIONS
from ..base import is_large_image
from .config import Config


def atari_laptop() -> Config:
    """`atari` with half the channels and units, and replayed batches of 4 segments for 16.

    So there are four times as many updates, and 450 steps/s on one core (docs/results/atari).
    """
    atari = Config.atari()
    return dataclasses.replace(
        atari,
        replay=dataclasses.replace(atari.replay, batch_size=4),
        convolutions=tuple((c // 2, kernel, stride) for c, kernel, stride in DQN_CONVOLUTIONS),
        hidden_size=256,
    )


PRESETS: dict[str, Callable[[], Config]] = {
    "paper_atari": Config.paper_atari,
    "atari": Config.atari,
    "atari_laptop": atari_laptop,
    "paper_workers": Config.paper_workers,
    "paper_mujoco": Config.paper_mujoco,
    "small": Config.small,
    "small_continuous": Config.small_continuous,
    "no_trust_region": Config.no_trust_region,
    "no_retrace": Config.no_retrace,
    "no_stochastic_dueling": Config.no_stochastic_dueling,
    "no_truncation": Config.no_truncation,
    "tis": Config.tis,
    "trust_tis": Config.trust_tis,
    "a3c": Config.a3c,
    "trust_a3c": Config.trust_a3c,
}


def default_preset(environment: str, spec: EnvironmentSpec) -> str:
    """`atari_laptop` for large images; else `small`, or `small_continuous` (continuous actions)."""
    del environment
    if is_large_image(spec):
        return "atari_laptop"
    discrete = isinstance(spec.actions, specs.DiscreteArray)
    return "small" if discrete else "small_continuous"
