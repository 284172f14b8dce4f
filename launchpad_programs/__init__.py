"""Many processes: Launchpad programs of actors, learner and evaluator around Reverb.

`python -m retrax.launchpad_programs.AGENT ...` is `retrax launch AGENT ...`, for every registered
agent. Nothing heavy is imported here: see `isolation`.
"""

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path
from types import ModuleType

from .._imports import registered_names


class _AgentModules(MetaPathFinder):
    """Finds `__main__.py` under the name of every registered agent."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        package, _, name = fullname.rpartition(".")
        if package != __name__ or name not in registered_names("retrax.agents"):
            return None
        return spec_from_file_location(fullname, Path(__file__).with_name("__main__.py"))


sys.meta_path.append(_AgentModules())
