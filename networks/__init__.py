"""Haiku modules and network factories. Recurrent networks are unbatched, time first: `[T, ...]`."""

from .acer import *
from .agent57 import *
from .base import *
from .critic_heads import *
from .d4pg import *
from .memory import *
from .reactor import *
from .torsos import *

__all__ = [
    "AcerModule",
    "ActionClassifier",
    "AdvantageModule",
    "Agent57Networks",
    "CategoricalOutput",
    "CriticHead",
    "CriticModule",
    "D4PGNetworks",
    "EmbeddingModule",
    "FeedForwardNetwork",
    "GaussianOutput",
    "ImageTorso",
    "MakeTorso",
    "Memory",
    "PixelTorso",
    "PolicyModule",
    "R2D2Inputs",
    "R2D2Module",
    "ReactorModule",
    "ReactorOutput",
    "RecurrentNetwork",
    "VectorTorso",
    "categorical_head",
    "choose_convolutions",
    "choose_torso",
    "crelu",
    "legal_actions",
    "make_acer_network",
    "make_advantage_network",
    "make_agent57_networks",
    "make_d4pg_networks",
    "make_feed_forward_network",
    "make_reactor_network",
    "make_recurrent_network",
    "mixture_of_gaussians_head",
    "scalar_head",
]
