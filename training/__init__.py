"""What every topology is made of: actor, learner, parameters, metrics, loop, workers."""

from .actor import Actor, RunningReturns
from .learner import Counters, Learner, MetricsAccumulator
from .run_config import RunConfig

__all__ = [
    "Actor",
    "Counters",
    "Learner",
    "MetricsAccumulator",
    "RunConfig",
    "RunningReturns",
]
