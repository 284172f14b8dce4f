"""Haiku modules and factories of networks: unbatched, time comes first, `[T, ...]`."""

from .acer import (
    AcerModule,
    AdvantageModule,
    CategoricalOutput,
    GaussianOutput,
    make_acer_network,
    make_advantage_network,
)
from .base import Network, RecurrentNetwork, make_network, make_recurrent_network
from .memory import MemoryCore
from .reactor import ReactorModule, ReactorOutput, make_reactor_network
from .torsos import ImageTorso, VectorTorso, crelu, make_torso

__all__ = [
    "AcerModule",
    "AdvantageModule",
    "CategoricalOutput",
    "GaussianOutput",
    "ImageTorso",
    "MemoryCore",
    "Network",
    "ReactorModule",
    "ReactorOutput",
    "RecurrentNetwork",
    "VectorTorso",
    "crelu",
    "make_acer_network",
    "make_advantage_network",
    "make_network",
    "make_reactor_network",
    "make_recurrent_network",
    "make_torso",
]
