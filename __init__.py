"""retrax: Reactor, ACER, D4PG and Agent57 as pure JAX functions.

`retrax.losses` and `retrax.networks` are the building blocks, each usable alone. `retrax.agents`
composes them into agents (one NamedTuple of pure functions each). `retrax.replay` stores and
selects experience, `retrax.environments` makes environments, `retrax.training` has actor and
learner, `retrax.evaluation` measures and plots, `retrax.command` trains in one process (the
`retrax` command), and `retrax.launchpad_programs` runs the same agents in many processes.

What the command does, as functions: `train`, `launch`, `evaluate`, `plot`, `export`,
`load_agent`, `load_metrics`. `train` takes recorded episodes, too: `Episode`, `episodes_of`.
"""

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"

if TYPE_CHECKING:
    from .command.exporting import export
    from .command.trained import TrainedAgent, evaluate, load_agent
    from .command.training import Summary, train
    from .evaluation.evaluations import Scores
    from .evaluation.plots import plot_learning_curves as plot
    from .evaluation.plots import read_metrics as load_metrics
    from .launchpad_programs.engines.options import EngineOptions
    from .launchpad_programs.launch import launch
    from .replay.logged import Episode, episodes_of
    from .training.run_config import RunConfig
    from .training.workers.options import WorkerOptions

# Imported when they are first used: `import retrax` takes no JAX, and the core no Launchpad.
_EXPORTS = {
    "EngineOptions": "launchpad_programs.engines.options:EngineOptions",
    "Episode": "replay.logged:Episode",
    "RunConfig": "training.run_config:RunConfig",
    "Scores": "evaluation.evaluations:Scores",
    "Summary": "command.training:Summary",
    "TrainedAgent": "command.trained:TrainedAgent",
    "WorkerOptions": "training.workers.options:WorkerOptions",
    "episodes_of": "replay.logged:episodes_of",
    "evaluate": "command.trained:evaluate",
    "export": "command.exporting:export",
    "launch": "launchpad_programs.launch:launch",
    "load_agent": "command.trained:load_agent",
    "load_metrics": "evaluation.plots:read_metrics",
    "plot": "evaluation.plots:plot_learning_curves",
    "train": "command.training:train",
}

__all__ = [
    "EngineOptions",
    "Episode",
    "RunConfig",
    "Scores",
    "Summary",
    "TrainedAgent",
    "WorkerOptions",
    "episodes_of",
    "evaluate",
    "export",
    "launch",
    "load_agent",
    "load_metrics",
    "plot",
    "train",
]


def __getattr__(name: str) -> Any:
    if name not in _EXPORTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, attribute = _EXPORTS[name].split(":")
    return getattr(importlib.import_module(f".{module}", __name__), attribute)
