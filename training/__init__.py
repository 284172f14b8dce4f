"""What every topology is made of: actor, learner, parameters, metrics, loop, workers."""

from .learner import Counters, Learner, MetricsAccumulator
from .loop import Actor, RunningReturns
from .run_config import RunConfig

__all__ = ["Actor", "Counters", "Learner", "MetricsAccumulator", "RunConfig", "RunningReturns"]
