"""Training entirely on a device: acting, storing, drawing and learning in one compiled function.

For environments written in JAX (`environments.pure.PureEnvironment`). `make_train` gives
a whole run as one function of a key; `Training` has functions that can be called in turn.
"""

from .replay import DeviceReplay, ReplayState
from .training import Training, TrainState, make_train

__all__ = ["DeviceReplay", "ReplayState", "TrainState", "Training", "make_train"]
