"""The replay's node: its states in the run directory."""

import jax
import numpy as np
import pytest
from node_fakes import DirectPeers
from program_configs import make_config

from retrax.launchpad_programs.replay import check_kept, kept_file, make_replay
from retrax.replay.rows import row_spec


@pytest.fixture
def make(tmp_path):
    """Makes nodes of one run directory, whose files are closed."""
    nodes, peers = [], DirectPeers()

    def make(**changes):
        nodes.append(make_replay(make_config(tmp_path, **changes), 0, peers))
        return nodes[-1]

    yield make
    peers.stop.set()
    for node in nodes:
        node.run()


def fill(node, count):
    """Adds `count` rows of each environment, in the middle of an episode."""
    config = make_config(None)
    spec = row_spec(config.spec, config.make_agent(config.spec).sequence)
    for _ in range(count):
        rows = jax.tree.map(lambda x: np.zeros((2, *x.shape), x.dtype), spec)
        node.local.add(rows._replace(discount=np.ones(2, np.float32)))


def rows_of(node):
    return node.status()[0]


def test_a_node_continues_with_the_state_of_the_snapshot(make, tmp_path):
    node = make()
    fill(node, 10)
    node.keep(100)
    fill(node, 5)
    node.keep(200)
    assert rows_of(node) == 30
    assert kept_file(tmp_path, 200).is_file()
    assert rows_of(make(resumed_at=200)) == 30
    assert rows_of(make(resumed_at=100, restarts=1)) == 30  # the newest: it was not resumed
    again = make(resumed_at=100)
    assert rows_of(again) == 20
    assert not kept_file(tmp_path, 200).is_file()  # it is of steps that will be taken again
    fill(again, 1)
    again.keep(100)  # a learner that was restarted comes by the same steps again
    assert rows_of(make(resumed_at=100)) == 22
    assert rows_of(make(resumed_at=50)) == 0  # of another engine
    node = make(restarts=1)
    assert rows_of(node) == 0  # nothing was kept
    node.keep(0)
    assert not kept_file(tmp_path, 0).is_file()  # there are no rows
    fill(node, 1)
    node.keep(1)
    assert rows_of(make()) == 0
    assert not kept_file(tmp_path, 1).is_file()  # of a program that ended before its first snapshot


def test_states_are_kept_as_long_as_their_snapshots_and_a_damaged_one_is_named(make, tmp_path):
    node = make()
    fill(node, 1)
    for steps in (5, 6, 7):
        node.keep(steps)
    node.prune([5, 7, 8])
    assert [steps for steps in range(9) if kept_file(tmp_path, steps).is_file()] == [5, 7]
    check_kept(tmp_path, 7)
    check_kept(tmp_path, 8)  # of another engine
    file = kept_file(tmp_path, 7)
    file.write_bytes(b"damaged")
    with pytest.raises(ValueError, match=f"{file} is not what was written"):
        check_kept(tmp_path, 7)
