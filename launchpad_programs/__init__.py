"""Many processes: Launchpad programs of actors, learner and evaluator around Reverb.

`python -m retrax.launchpad_programs.AGENT ...` is `retrax launch AGENT ...`, for every registered
agent. Nothing heavy is imported here: see `isolation`.
"""

import collections.abc
import importlib.abc
import importlib.machinery
import importlib.util
import pathlib
import sys
import types


class _AgentModules(importlib.abc.MetaPathFinder):
    """Finds `__main__.py` under the name of every registered agent."""

    def find_spec(
        self,
        fullname: str,
        path: "collections.abc.Sequence[str] | None",
        target: "types.ModuleType | None" = None,
    ) -> "importlib.machinery.ModuleSpec | None":
        from .._imports import registered_names

        package, _, name = fullname.rpartition(".")
        if package != __name__ or name not in registered_names("retrax.agents"):
            return None
        main = pathlib.Path(__file__).with_name("__main__.py")
        return importlib.util.spec_from_file_location(fullname, main)


sys.meta_path.append(_AgentModules())
