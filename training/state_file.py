"""State files: the parts of a state in one file, whole or not at all, with a checksum.

Snapshots, states of actors and replays, and the best parameters have this form. A file is a ZIP
archive, which `numpy.load` reads too, and after it the CRC-32 of all its bytes. A part is a pytree
of arrays, with an .npy member for each, or bytes. `state.json` describes the parts. Nothing is
pickled. Large arrays that shrink much, such as the frames of games, are compressed.
"""

import json
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import jax
import numpy as np

from ..basics.checksums import check_sealed, sealed
from ..basics.prng_keys import with_keys, without_keys
from ..basics.sentences import first_line

SUFFIX = ".npz"
_VERSION = 1
_TEXT = "state.json"
_MAX_REASON = 200  # letters; some of JAX's reasons fill a page
_SAMPLE = 1 << 18  # numbers, by which it is decided whether to compress
_RATIO = 4  # below, compression takes more time than it saves


def write_state(path: Path, parts: Mapping[str, Any], run: str | None = None) -> None:
    """Writes `parts`, see `pack_state`, into a file; see `sealed`."""
    with sealed(path) as file:
        pack_state(file, parts, run)


def pack_state(file: Any, parts: Mapping[str, Any], run: str | None = None) -> None:
    """Writes the archive of parts by name: pytrees of arrays, PRNG keys included, or bytes."""
    described: dict[str, dict[str, list[str]] | None] = {}
    with zipfile.ZipFile(file, "w", compresslevel=1) as archive:
        for part, value in parts.items():
            if isinstance(value, bytes):
                described[part] = None
                with _member(archive, part) as member:
                    member.write(value)
                continue
            arrays = described[part] = {}
            for path, leaf in jax.tree_util.tree_leaves_with_path(value):
                name = "/".join((part, *_keys(path)))
                while f"{name}.npy" in arrays:  # a key may have a / itself
                    name += "~"
                arrays[f"{name}.npy"] = [str(leaf.dtype), *_keys(path)]
                array = np.asarray(without_keys(leaf))
                archive.compression = _compression(array)
                with _member(archive, f"{name}.npy") as member:
                    np.lib.format.write_array(member, array, allow_pickle=False)
        with _member(archive, _TEXT) as member:
            text = {"version": _VERSION, "run": run, "parts": described}
            member.write(json.dumps(text).encode())


def read_state(
    source: Path | BinaryIO, templates: Mapping[str, Any] | None = None, run: str | None = None
) -> dict[str, Any]:
    """Reads parts of an archive, but for those that it lacks. Checksums are left to `check_sealed`.

    Templates, by name, are pytrees like the parts, or their shapes and dtypes; None for bytes, and
    for pytrees that are read as dictionaries. Without templates, all parts are read. A ValueError
    says that the archive is damaged, of another run than `run`, or that a part is not like its
    template. States of earlier versions are of any run.
    """
    try:
        with zipfile.ZipFile(source) as archive:
            text = json.loads(archive.read(_TEXT))
            if text["version"] != _VERSION:
                raise ValueError(f"its version is {text['version']}, and this one's {_VERSION}")
            if None not in (run, other := text.get("run")) and run != other:
                raise ValueError(f"it is of another run, whose id is {other} instead of {run}")
            described = text["parts"]
            wanted = dict.fromkeys(described) if templates is None else templates
            return {
                part: _read(archive, part, described[part], template)
                for part, template in wanted.items()
                if part in described
            }
    except Exception as error:  # zipfile, JSON, NumPy and JAX raise many types
        raise ValueError(first_line(error)[:_MAX_REASON].rstrip(".")) from error


def read_kept(
    what: str, path: Path, templates: Mapping[str, Any], run: str | None = None
) -> dict[str, Any]:
    """As `read_state`, of a checked file that its user may remove; errors begin with `what`."""
    try:
        check_sealed(path)
        return read_state(path, templates, run)
    except ValueError as error:
        raise ValueError(f"{what} {path} cannot be read ({error}): remove the file.") from error


def _read(
    archive: zipfile.ZipFile, part: str, arrays: Mapping[str, list[str]] | None, template: Any
) -> Any:
    if arrays is None:
        return archive.read(part)
    found = {tuple(keys): _array(archive, name, dtype) for name, (dtype, *keys) in arrays.items()}
    if template is None:
        return _nested(found)
    named, structure = jax.tree_util.tree_flatten_with_path(template)
    wanted = {_keys(path): leaf for path, leaf in named}
    for keys in sorted(found.keys() ^ wanted.keys()):
        state = "unknown" if keys in found else "missing"
        raise ValueError(f"{'/'.join((part, *keys))} is {state}")
    leaves = [_checked("/".join((part, *keys)), found[keys], x) for keys, x in wanted.items()]
    return jax.tree.unflatten(structure, leaves)


def _array(archive: zipfile.ZipFile, name: str, dtype: str) -> np.ndarray:
    with archive.open(name) as member:
        array: np.ndarray = np.lib.format.read_array(member, allow_pickle=False)
    if array.dtype.kind == "V":  # JAX's bfloat16 and the like: other libraries have their own
        return array.view(getattr(jax.numpy, dtype))
    return array


def _nested(found: Mapping[tuple[str, ...], np.ndarray]) -> Any:
    """Dictionaries in place of all nodes of a pytree."""
    tree: dict[str, Any] = {"": {}}
    for keys, array in found.items():
        node, last = tree, ""
        for key in keys:
            node, last = node.setdefault(last, {}), key
        node[last] = array
    return tree[""]


def _checked(name: str, array: np.ndarray, like: Any) -> Any:
    leaf = with_keys(like, array)
    if (leaf.shape, leaf.dtype) != (like.shape, like.dtype):
        raise ValueError(
            f"{name} has dtype {leaf.dtype} and shape {leaf.shape}, expected {like.dtype} and "
            f"{like.shape}"
        )
    return leaf


def _compression(array: np.ndarray) -> int:
    sample = array.flat[:_SAMPLE].tobytes() if array.size > _SAMPLE else b""
    pays = len(sample) > _RATIO * len(zlib.compress(sample, 1))
    return zipfile.ZIP_DEFLATED if pays else zipfile.ZIP_STORED


def _member(archive: zipfile.ZipFile, name: str) -> Any:
    return archive.open(name, "w", force_zip64=True)


def _keys(path: Any) -> tuple[str, ...]:
    """Of dictionaries, NamedTuples and lists."""
    names = ("key", "name", "idx")
    return tuple(str(getattr(x, next(n for n in names if hasattr(x, n)))) for x in path)
