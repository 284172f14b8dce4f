"""What every topology is made of: actor, learner, parameters, metrics, loop, workers."""

from .actor import Actor
from .learner import Learner
from .metrics import Counters, MetricsAccumulator, RunningReturns
from .run_config import RunConfig

__all__ = [
    "Actor",
    "Counters",
    "Learner",
    "MetricsAccumulator",
    "RunConfig",
    "RunningReturns",
]
