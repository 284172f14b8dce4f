"""Haiku modules and factories of networks; recurrent ones are unbatched, time first, `[T, ...]`."""

from .agent57 import (
    ActionClassifier,
    Agent57Networks,
    EmbeddingModule,
    R2D2Inputs,
    R2D2Module,
    make_agent57_networks,
)
from .base import (
    FeedForwardNetwork,
    RecurrentNetwork,
    make_feed_forward_network,
    make_recurrent_network,
)
from .memory import MemoryCore
from .reactor import ReactorModule, ReactorOutput, make_reactor_network
from .torsos import ImageTorso, VectorTorso, crelu, make_torso

__all__ = [
    "ActionClassifier",
    "Agent57Networks",
    "EmbeddingModule",
    "FeedForwardNetwork",
    "ImageTorso",
    "MemoryCore",
    "R2D2Inputs",
    "R2D2Module",
    "ReactorModule",
    "ReactorOutput",
    "RecurrentNetwork",
    "VectorTorso",
    "crelu",
    "make_agent57_networks",
    "make_feed_forward_network",
    "make_reactor_network",
    "make_recurrent_network",
    "make_torso",
]
