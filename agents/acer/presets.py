"""ACER's presets by name, and the default one of an environment."""

import dataclasses
from collections.abc import Callable

from dm_env import specs

from ...datatypes import EnvironmentSpec
from ..base import is_large_image
from .config import Config


def atari_laptop() -> Config:
    """`atari` with 0.4 of its computation for each step: 400 steps/s on one core.

    The replay ratio is 1, which the paper has too (figure 1), in batches of 4 segments, so that
    there are as many updates as with `atari`.
    """
    atari = Config.atari()
    replay = dataclasses.replace(atari.replay, replay_ratio=1.0, batch_size=4)
    return dataclasses.replace(atari, replay=replay)


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
    """`atari` for large images; else `small`, or `small_continuous` (continuous actions)."""
    del environment
    if is_large_image(spec):
        return "atari"
    discrete = isinstance(spec.actions, specs.DiscreteArray)
    return "small" if discrete else "small_continuous"
