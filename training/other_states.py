"""States beside the snapshots, each in a file: of a program's actors, and the best parameters.

An actor gives its state to the counter from time to time and at its end, which writes it; a resumed
actor asks for it: its random numbers, and what an agent has learned within its actors, such as a
bandit's counts. The moment is the actor's own, shortly before or after that of the snapshot.
"""

import io
import math
from pathlib import Path
from typing import Any, NamedTuple

from ..agents.base import ActorState, Params
from ..basics.checksums import check_sealed
from ..environments.plain_data import pack, unpack
from .state_file import SUFFIX, pack_state, read_kept, read_state, write_state

BEST = f"best{SUFFIX}"  # in the run directory
_ACTORS = "actors"  # the folder of their files
_PART = "actor"


def actor_file(directory: Path, index: int) -> Path:
    """The file of one actor's packed state in a run directory."""
    return directory / _ACTORS / f"{index}{SUFFIX}"


def actor_files(directory: Path) -> list[Path]:
    """The files of all actors, in their order."""
    files = (directory / _ACTORS).glob(f"*{SUFFIX}")
    return sorted(files, key=lambda path: (len(path.stem), path.stem))


def read_actor(path: Path, template: ActorState) -> ActorState:
    """The state in an actor's file, which is like `template`, or has its shapes and dtypes.

    Raises:
      ValueError: the file is damaged, or of another agent.
    """
    return read_kept("The actor state", path, {_PART: template})[_PART]


def pack_actor(state: ActorState) -> bytes:
    """An actor's state as bytes."""
    file = io.BytesIO()
    pack_state(file, {_PART: state})
    return file.getvalue()


def unpack_actor(data: bytes, template: ActorState) -> ActorState:
    """The inverse of `pack_actor`.

    Raises:
      ValueError: the state is not like the template.
    """
    try:
        return read_state(io.BytesIO(data), {_PART: template})[_PART]
    except ValueError as error:
        raise ValueError(f"The actor's state is of another agent or config ({error}).") from error


class Evaluated(NamedTuple):
    """Parameters with their evaluation.

    Attributes:
      mean_return: of the evaluation.
      steps: of the run when the parameters were made or fetched.
      params: output of `Agent.acting_params`; None if not read.
      actors: the states of all actors at that moment, `[num_envs, ...]`; None if not kept or not
        read.
    """

    mean_return: float
    steps: int
    params: Params
    actors: ActorState = None


class BestParameters:
    """`best.npz`: the parameters with the largest return; of equal ones, the newer.

    They are kept when their evaluation ends: the learner of a program has made further updates
    then.
    """

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
        return self.read().mean_return if self.exists else math.nan

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

    def read(self, **templates: Any) -> Evaluated:
        """The best parameters so far; call it if they exist.

        Args:
          **templates: of those parts that are to be read, `params` and `actors`: pytrees like
            them, or their shapes and dtypes.

        Raises:
          ValueError: the file is damaged, or of another agent.
        """
        found = read_kept("The best parameters", self._path, {"evaluation": None, **templates})
        mean_return, steps = unpack(found["evaluation"])
        return Evaluated(mean_return, steps, found.get("params"), found.get("actors"))

    def forget(self) -> None:
        """Removes the file of a run that begins again."""
        self._path.unlink(missing_ok=True)


def check_states(directory: Path) -> None:
    """Refuses damaged files of actors' states and the best parameters.

    Raises:
      ValueError: names the file.
    """
    for path in [*actor_files(directory), directory / BEST]:
        if path.is_file():
            try:
                check_sealed(path)
            except ValueError as error:
                raise ValueError(f"{error}: remove the file to start with a new state.") from None
