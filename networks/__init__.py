"""Haiku modules and network factories. Recurrent networks are unbatched, time first: `[T, ...]`."""

from .acer import (
    AcerModule,
    AdvantageModule,
    CategoricalOutput,
    GaussianOutput,
    make_acer_network,
    make_advantage_network,
)
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
from .categorical_dueling import (
    CategoricalDuelingHead,
    CategoricalDuelingModule,
    make_categorical_dueling_network,
)
from .critic_heads import Categorical, CriticHead, MixtureOfGaussians, Scalar
from .d4pg import CriticModule, D4PGNetworks, PixelTorso, PolicyModule, make_d4pg_networks
from .memory import Memory
from .reactor import ReactorModule, ReactorOutput, make_reactor_network
from .torsos import ImageTorso, MakeTorso, VectorTorso, choose_convolutions, crelu, make_torso

__all__ = [
    "AcerModule",
    "ActionClassifier",
    "AdvantageModule",
    "Agent57Networks",
    "Categorical",
    "CategoricalDuelingHead",
    "CategoricalDuelingModule",
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
    "MixtureOfGaussians",
    "PixelTorso",
    "PolicyModule",
    "R2D2Inputs",
    "R2D2Module",
    "ReactorModule",
    "ReactorOutput",
    "RecurrentNetwork",
    "Scalar",
    "VectorTorso",
    "choose_convolutions",
    "crelu",
    "make_acer_network",
    "make_advantage_network",
    "make_agent57_networks",
    "make_categorical_dueling_network",
    "make_d4pg_networks",
    "make_feed_forward_network",
    "make_reactor_network",
    "make_recurrent_network",
    "make_torso",
]
