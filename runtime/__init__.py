"""What every topology is made of: actor, learner, parameters, metrics, snapshots, run directory."""

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
