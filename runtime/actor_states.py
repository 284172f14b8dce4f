"""Actor states of a program, each in a file of its own beside the learner's snapshots.

An actor writes its state from time to time and at its end; a resumed actor restores it: its random
numbers, and what an agent has learned within its actors, such as a bandit's counts. The moment is
the actor's own, so it may be shortly before or after that of the snapshot.
"""

from pathlib import Path
from typing import Any

import jax
import numpy as np


class ActorStates:
    """The file of one actor in the `actors` folder of a run directory."""

    def __init__(self, directory: Path, index: int):
        """Takes the run directory, and the number of the actor."""
        self._path = directory / "actors" / f"{index}.npz"

    def save(self, state: Any) -> None:
        """Writes a state, whole or not at all."""
        leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(_without_keys(state))]
        self._path.parent.mkdir(exist_ok=True)
        partial = self._path.with_suffix(".partial.npz")
        np.savez(partial, *leaves)
        partial.replace(self._path)

    def restore(self, template: Any) -> Any:
        """The saved state; the template itself if there is none.

        Args:
          template: a state like it.

        Raises:
          ValueError: the file is damaged, or of another agent.
        """
        if not self._path.is_file():
            return template
        wanted, structure = jax.tree.flatten(_without_keys(template))
        try:
            with open(self._path, "rb") as file, np.load(file) as arrays:
                found = list(arrays.values())
            leaves = [_checked(*pair) for pair in zip(found, wanted, strict=True)]
        except Exception as error:  # NumPy and zipfile raise many types for damaged files
            raise ValueError(
                f"The actor state {self._path} cannot be read ({error}): remove the file to start "
                "with a new state."
            ) from error
        return jax.tree.map(_with_key, template, jax.tree.unflatten(structure, leaves))


def _without_keys(state: Any) -> Any:
    """NumPy has no PRNG keys."""
    return jax.tree.map(lambda x: jax.random.key_data(x) if _is_key(x) else x, state)


def _with_key(template: Any, leaf: np.ndarray) -> Any:
    return jax.random.wrap_key_data(jax.numpy.asarray(leaf)) if _is_key(template) else leaf


def _is_key(x: Any) -> bool:
    return bool(jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key))


def _checked(leaf: np.ndarray, wanted: Any) -> np.ndarray:
    if leaf.dtype.kind == "V":  # NumPy's name for bfloat16 and the like
        leaf = leaf.view(wanted.dtype)
    if (leaf.shape, leaf.dtype) != (wanted.shape, wanted.dtype):
        raise ValueError(f"shape {leaf.shape} where this agent has {wanted.shape}")
    return leaf
