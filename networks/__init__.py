"""Haiku modules and factories of networks: unbatched, time comes first, `[T, ...]`."""

from .base import RecurrentNetwork, make_recurrent_network
from .memory import MemoryCore
from .reactor import ReactorModule, ReactorOutput, make_reactor_network
from .torsos import ImageTorso, VectorTorso, crelu, make_torso

__all__ = [
    "ImageTorso",
    "MemoryCore",
    "ReactorModule",
    "ReactorOutput",
    "RecurrentNetwork",
    "VectorTorso",
    "crelu",
    "make_reactor_network",
    "make_recurrent_network",
    "make_torso",
]
