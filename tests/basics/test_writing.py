"""Files that are replaced in one go."""

import pytest

from retrax.basics.writing import replacing


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
