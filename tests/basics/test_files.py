"""Files replaced in one go; damage is found: every flipped bit, what is shorter or missing."""

import re
import zlib

import numpy as np
import pytest
from run_files import flip

from retrax.basics.files import MANIFEST, check_manifest, checksum, replacing, write_manifest


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "a" / "d").mkdir(parents=True)
    (tmp_path / "a" / "d" / "large").write_bytes(np.random.default_rng(0).bytes(3_000_000))
    (tmp_path / "a" / "a name with spaces").write_bytes(b"{}")
    (tmp_path / "empty").write_bytes(b"")
    write_manifest(tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", ["a/d/large", "a/a name with spaces", MANIFEST])
def test_every_flipped_bit_is_found_and_its_file_named(folder, name):
    check_manifest(folder)
    assert checksum(folder / name) == zlib.crc32((folder / name).read_bytes())
    path, random = folder / name, np.random.default_rng(1)
    for bit in random.integers(8 * path.stat().st_size, size=30):
        flip(path, bit)
        with pytest.raises(ValueError, match=re.escape(f"{path} is not what was written")):
            check_manifest(folder)
        flip(path, bit)
    check_manifest(folder)


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("empty", "longer", "is not what was written"),
        ("a/d/large", "", "is not what was written"),
        ("a/d/large", None, "is missing"),
        (MANIFEST, None, "is missing: another version wrote the folder, or was "),
        (MANIFEST, "", "is not what was written"),
    ],
)
def test_other_sizes_and_missing_files_are_named(folder, name, text, expected):
    if text is None:
        (folder / name).unlink()
    else:
        (folder / name).write_text(text)
    with pytest.raises(ValueError, match=re.escape(f"{folder / name} {expected}")):
        check_manifest(folder)


def test_a_file_is_replaced_in_the_end_and_not_before(tmp_path):
    path = tmp_path / "a.csv"
    for text, before in (("old", None), ("new", "old")):
        with replacing(path) as partial:
            partial.write_text(text)
            assert (path.read_text() if path.exists() else None) == before
        assert (path.read_text(), list(tmp_path.iterdir())) == (text, [path])


def test_an_error_leaves_the_old_file(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("old")

    def fail(partial):
        partial.write_text("half")
        raise ValueError("reason")

    with pytest.raises(ValueError, match="reason"), replacing(path) as partial:
        fail(partial)
    assert path.read_text() == "old"


def test_errors_of_writing_name_the_file(tmp_path):
    path = tmp_path / "none" / "a.csv"
    sentence = f"^{path} cannot be written: No such file or directory.$"
    with pytest.raises(OSError, match=sentence), replacing(path) as partial:
        partial.write_text("")
