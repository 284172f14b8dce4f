"""States of an emulator in a file."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from retrax.environments.start_states import StartStates, load_states, save_states

STARTS = StartStates("pong", [b"abc", b"\0\1"])


@given(st.lists(st.binary(min_size=1), min_size=1, max_size=5))
def test_there_and_back(tmp_path_factory, states):
    path = tmp_path_factory.mktemp("states") / "new" / "pong"
    for place in (path, path.with_name("again.npz")):  # the same states give the same bytes
        save_states(place, StartStates("pong", states))
    assert load_states(path) == ("pong", states)
    assert path.read_bytes() == place.read_bytes()


def assert_refused(path, match):
    with pytest.raises(ValueError, match=match) as caught:
        load_states(path)
    assert "\n" not in str(caught.value)


def test_other_files_are_refused(tmp_path):
    path = tmp_path / "pong.npz"
    assert_refused(path, "is not a file of start states: retrax record-states makes one")
    path.write_bytes(b"PK, or not")
    assert_refused(path, "is damaged, or not a file of start states")
    np.savez(path, game="pong")
    assert_refused(path, "is damaged, or not a file of start states")
    save_states(path, STARTS)
    path.write_bytes(path.read_bytes()[:-30])
    assert_refused(path, "is damaged")


@pytest.mark.parametrize("lengths", [[], [3], [3, 3], [5, 0], [6, -1]])
def test_lengths_that_do_not_fit_are_refused(tmp_path, lengths):
    path = tmp_path / "pong.npz"
    states = np.frombuffer(b"abcde", np.uint8)
    np.savez(path, game="pong", lengths=np.array(lengths, np.int64), states=states)
    assert_refused(path, "the lengths of its states do not match its contents")
