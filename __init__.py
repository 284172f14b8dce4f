"""retrax: Reactor, ACER, D4PG and Agent57 as pure JAX functions.

`losses` and `networks` are the building blocks, each usable alone. `agents` composes them into
agents (one NamedTuple of pure functions each). `environments` makes environments, `replay` stores
and selects experience, `training` and `device` learn from it, `evaluation` measures and plots,
`launchpad_programs` runs agents in many processes, `testing` checks agents and environments.

What the `retrax` command does, as functions: `train`, `launch`, `evaluate`, `plot`, `export`,
`load_agent`, `load_metrics`. `train` takes recorded episodes, too: `Episode`, `episodes_of`.
"""

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.3.0"

if TYPE_CHECKING:
    from .agents.trained import TrainedAgent as TrainedAgent
    from .command.exporting import export as export
    from .command.trained import evaluate as evaluate
    from .command.trained import load_agent as load_agent
    from .command.training import Summary as Summary
    from .command.training import train as train
    from .evaluation import plots
    from .evaluation.evaluations import Scores as Scores
    from .launchpad_programs.engines.options import EngineOptions as EngineOptions
    from .launchpad_programs.launch import launch as launch
    from .replay.logged import Episode as Episode
    from .replay.logged import episodes_of as episodes_of
    from .training.run_config import RunConfig as RunConfig
    from .training.run_config import WorkerOptions as WorkerOptions

    load_metrics, plot = plots.read_metrics, plots.plot_learning_curves

# Imported when they are first used: `import retrax` takes no JAX, and the core no Launchpad.
_ROOMS: tuple[str, ...] = ("agents", "datatypes", "device", "environments", "evaluation")
_ROOMS += ("launchpad_programs", "losses", "networks", "replay", "testing", "training")
_EXPORTS = {
    "EngineOptions": "launchpad_programs.engines.options:EngineOptions",
    "Episode": "replay.logged:Episode",
    "RunConfig": "training.run_config:RunConfig",
    "Scores": "evaluation.evaluations:Scores",
    "Summary": "command.training:Summary",
    "TrainedAgent": "agents.trained:TrainedAgent",
    "WorkerOptions": "training.run_config:WorkerOptions",
    "episodes_of": "replay.logged:episodes_of",
    "evaluate": "command.trained:evaluate",
    "export": "command.exporting:export",
    "launch": "launchpad_programs.launch:launch",
    "load_agent": "command.trained:load_agent",
    "load_metrics": "evaluation.plots:read_metrics",
    "plot": "evaluation.plots:plot_learning_curves",
    "train": "command.training:train",
}

__all__ = list(_EXPORTS)


def __getattr__(name: str) -> Any:
    if name in _ROOMS:
        return importlib.import_module(f".{name}", __name__)
    if name not in _EXPORTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, attribute = _EXPORTS[name].split(":")
    return getattr(importlib.import_module(f".{module}", __name__), attribute)


def __dir__() -> list[str]:
    return ["__version__", *_ROOMS, *_EXPORTS]
