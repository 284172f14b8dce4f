"""The best acting parameters of a run, in a file of its run directory.

They are kept when their evaluation ends: the learner of a program has made further updates then.
"""

import math
from pathlib import Path
from typing import Any, NamedTuple

from ..agents.base import ActorState, Params
from ..environments.plain_data import pack, unpack
from .state_file import SUFFIX, read_kept, write_state

BEST = f"best{SUFFIX}"  # in the run directory


class Evaluated(NamedTuple):
    """Parameters with their evaluation.

    Attributes:
      mean_return: of the evaluation.
      steps: of the run when the parameters were made or fetched.
      params: output of `Agent.acting_params`.
      actors: the states of all actors at that moment, `[num_envs, ...]`; None if they were not
        kept.
    """

    mean_return: float
    steps: int
    params: Params
    actors: ActorState = None


class BestParameters:
    """`best.npz`: the parameters with the largest return; of equal ones, the newer."""

    def __init__(self, directory: Path):
        """Takes the run directory."""
        self._path = directory / BEST

    @property
    def exists(self) -> bool:
        """Whether parameters were evaluated."""
        return self._path.is_file()

    @property
    def mean_return(self) -> float:
        """Of the best evaluation; NaN if there was none.

        Raises:
          ValueError: the file is damaged.
        """
        return self._read({}).mean_return if self.exists else math.nan

    def offer(
        self, params: Params, *, mean_return: float, steps: int, actors: ActorState = None
    ) -> bool:
        """Keeps the parameters if no earlier ones were better; whether it did. NaN is the worst.

        Raises:
          ValueError: the file is damaged.
        """
        if math.isnan(mean_return) or self.mean_return > mean_return:
            return False
        parts = {"evaluation": pack([float(mean_return), steps]), "params": params}
        write_state(self._path, parts if actors is None else {**parts, "actors": actors})
        return True

    def restore(self, params_template: Params, actors_template: ActorState = None) -> Evaluated:
        """The best parameters so far; call it if they exist.

        Args:
          params_template: parameters like them, or their shapes and dtypes.
          actors_template: of the actors' states; None leaves them out.

        Raises:
          ValueError: the file is damaged, or of another agent.
        """
        actors = {} if actors_template is None else {"actors": actors_template}
        return self._read({"params": params_template, **actors})

    def forget(self) -> None:
        """Removes the file of a run that begins again."""
        self._path.unlink(missing_ok=True)

    def _read(self, templates: dict[str, Any]) -> Evaluated:
        found = read_kept("The best parameters", self._path, {"evaluation": None, **templates})
        mean_return, steps = unpack(found["evaluation"])
        return Evaluated(mean_return, steps, found.get("params"), found.get("actors"))
