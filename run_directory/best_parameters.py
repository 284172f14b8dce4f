"""The best acting parameters of a program, in a file of its run directory.

A program's evaluator plays with parameters that the learner has published, and the learner has made
further updates when the evaluation ends. So what was evaluated is kept by the evaluator itself.
"""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..agents.base import Params
from .state_file import load_state, pack_state, write_state

BEST = "best.npz"  # in the run directory of a program


class Evaluated(NamedTuple):
    """Parameters with their evaluation.

    Attributes:
      mean_return: float64 `[]`.
      steps: int64 `[]`, of the run when the parameters were fetched.
      params: output of `Agent.acting_params`.
    """

    mean_return: Any
    steps: Any
    params: Params


class BestParameters:
    """`best.npz`: the parameters with the largest return; of equal ones, the newer."""

    def __init__(self, directory: Path):
        """Takes the run directory."""
        self._path = directory / BEST

    @property
    def exists(self) -> bool:
        """Whether parameters were evaluated."""
        return self._path.is_file()

    def offer(self, params: Params, *, mean_return: float, steps: int) -> bool:
        """Keeps the parameters if no earlier ones were better; whether it did. NaN is the worst.

        Raises:
          ValueError: the file is damaged.
        """
        best = float(self.restore(params).mean_return) if self.exists else -np.inf
        if not mean_return >= best:
            return False
        evaluated = Evaluated(np.float64(mean_return), np.int64(steps), params)
        write_state(self._path, pack_state(evaluated))
        return True

    def restore(self, params_template: Params) -> Evaluated:
        """The best parameters so far; call it if they exist.

        Args:
          params_template: parameters like them, or their shapes and dtypes.

        Raises:
          ValueError: the file is damaged, or of another agent.
        """
        template = Evaluated(np.float64(0.0), np.int64(0), params_template)
        try:
            evaluated: Evaluated = load_state(self._path, template)
        except ValueError as error:
            raise ValueError(f"The best parameters {error}: remove the file.") from error
        return evaluated

    def forget(self) -> None:
        """Removes the file, of a run that starts from the beginning."""
        self._path.unlink(missing_ok=True)
