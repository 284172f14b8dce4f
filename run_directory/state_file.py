"""Pytrees in files of their own beside the snapshots, whole or not at all, with a checksum."""

import io
from pathlib import Path
from typing import Any

import jax
import numpy as np

from ..basics.checksums import read_sealed, sealed
from ..basics.prng_keys import with_keys, without_keys
from ..basics.writing import replacing


def pack_state(state: Any) -> bytes:
    """A pytree of arrays, PRNG keys included, as NumPy's .npz."""
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(without_keys(state))]
    data = io.BytesIO()
    np.savez(data, *leaves)
    return data.getvalue()


def unpack_state(data: bytes, template: Any) -> Any:
    """The inverse of `pack_state`.

    Args:
      data: the bytes.
      template: a pytree like it.

    Raises:
      ValueError: the pytree is not like the template, or the bytes are none.
    """
    wanted, structure = jax.tree.flatten(without_keys(template))
    try:
        with np.load(io.BytesIO(data)) as arrays:
            found = list(arrays.values())
        leaves = [_checked(*pair) for pair in zip(found, wanted, strict=True)]
    except Exception as error:  # NumPy and zipfile raise many types for damaged files
        raise ValueError(str(error)) from error
    return with_keys(template, jax.tree.unflatten(structure, leaves))


def write_state(path: Path, data: bytes) -> None:
    """Writes a packed pytree, and a checksum behind it; makes the folder if there is none."""
    with replacing(path) as partial:
        path.parent.mkdir(exist_ok=True)
        partial.write_bytes(sealed(data))


def load_state(path: Path, template: Any) -> Any:
    """The pytree in a file.

    Args:
      path: of the file.
      template: a pytree like it.

    Raises:
      ValueError: the file is damaged, or its pytree is not like the template.
    """
    try:
        return unpack_state(read_sealed(path), template)
    except ValueError as error:
        raise ValueError(f"{path} cannot be read ({error})") from error


def _checked(leaf: np.ndarray, wanted: Any) -> np.ndarray:
    if leaf.dtype.kind == "V":  # NumPy's name for bfloat16 and the like
        leaf = leaf.view(wanted.dtype)
    if (leaf.shape, leaf.dtype) != (wanted.shape, wanted.dtype):
        raise ValueError(f"shape {leaf.shape} where this agent has {wanted.shape}")
    return leaf
