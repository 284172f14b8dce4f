"""The writer and the learner of a replay node, while it is slow, silent, or dies."""

import time
import weakref
from unittest.mock import Mock

import numpy as np
import pytest
from replay_nodes import (
    LatePeer,
    counters_of,
    feed,
    local_replay,
    make_node,
    open_replay,
    open_writer,
    priorities_of,
    sequence_spec,
)
from replay_rows import assert_equal, stream

from retrax.launchpad_programs.engines import ray_session
from retrax.replay import remote
from retrax.replay.interface import REAL, Stopped, WaitTimeout
from retrax.replay.node import ReplayNode


def make_peer(silent=False, **changes):
    node = make_node(**changes)
    return node, LatePeer(node, silent=silent)


@pytest.fixture(autouse=True)
def short_waits(monkeypatch):
    """A `LatePeer` answers at once or not at all; chunks are small, and sent when they are full."""
    monkeypatch.setattr(remote, "CHUNK_ROWS", 4)
    monkeypatch.setattr(remote, "MAX_CHUNKS", 3)
    monkeypatch.setattr(remote, "_CHUNK_SECONDS", 1e9)
    monkeypatch.setattr(remote, "_POLL_SECONDS", 0.0)
    monkeypatch.setattr(remote, "_HOLD_SECONDS", 0.0)


class Stop:
    """Asks to stop when it is asked for the n-th time."""

    def __init__(self, looks):
        self.left = looks

    def __call__(self):
        self.left -= 1
        return self.left <= 0


def write_all(writer, rows, written):
    for row in rows:
        writer.write(row)
        written.append(row)


def write_until_stopped(writer, rows):
    written = []
    with pytest.raises(Stopped, match="waiting for the replay to accept rows"):
        write_all(writer, rows, written)
    return len(written)


def test_a_writer_of_a_silent_node_is_ahead_by_its_chunks():
    node, peer = make_peer(silent=True)
    writer, rows = open_writer(peer, stop=Stop(3)), stream(30, ends=0.0)
    assert write_until_stopped(writer, rows) == 11, "row 12 completes the third chunk"
    assert [len(answer.call[4]) for answer in peer.sent] == [4], "one call at a time"
    peer.silent = False
    peer.answer()
    writer.close()
    assert node.status()[0] == 2 * 12, "row 12 is not lost either"


def test_a_writer_waits_while_its_rows_are_held_back():
    """`max_lead` rows are taken in beyond those that make a call due."""
    node, peer = make_peer(max_lead=10)
    writer, rows = open_writer(peer, stop=Stop(3)), stream(60, ends=0.0)
    free = local_replay()
    due = next(count for count, row in enumerate(rows, 1) if free.add(row) or free.schedule.due)
    assert write_until_stopped(writer, rows) == 11 + (due + 5) // 4 * 4
    assert node.status()[0] == 2 * (due + 5)


def test_a_writer_gives_up_in_the_end():
    _, peer = make_peer(silent=True)
    writer = open_writer(peer, max_wait=0.02)
    with pytest.raises(WaitTimeout, match=r"Waited \d+ s for the replay to accept rows .* 0 to 1"):
        write_all(writer, stream(30), [])


def test_rows_are_sent_after_some_time_though_a_chunk_is_not_complete(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(remote, "CHUNK_ROWS", 16)
    monkeypatch.setattr(remote, "_CHUNK_SECONDS", 2.0)
    node, peer = make_peer()
    clock = REAL._replace(monotonic=lambda: now[0])
    writer, rows = open_writer(peer, clock=clock), iter(stream(30))
    kept = []
    for seconds in (0.5, 1.0, 0.6, 0.5, 2.0, 1.9):
        now[0] += seconds
        writer.write(next(rows))
        kept.append(node.status()[0] // 2)
    assert kept == [0, 0, 3, 3, 5, 5]


def test_a_writer_closes_in_bounded_time(monkeypatch):
    monkeypatch.setattr(remote, "_CLOSE_SECONDS", 0.05)
    node, peer = make_peer(silent=True)
    writer = open_writer(peer)
    write_all(writer, stream(6), [])
    writer.close()
    peer.answer()
    assert node.status()[0] == 2 * 4


def test_rows_that_are_held_back_do_not_delay_a_stop():
    """Nobody draws any more; the node is asked once."""
    stop = []
    node, peer = make_peer(max_lead=0)
    writer = open_writer(peer, stop=lambda: bool(stop))
    peer.silent = True
    write_all(writer, stream(10, ends=0.0), [])
    peer.answer()
    peer.silent = False
    stop.append(True)
    started = time.monotonic()
    writer.close()
    assert time.monotonic() - started < 1
    assert 8 <= node.status()[0] < 2 * 8, "held back as in all the program"
    writer._peer, writer._answer = Mock(**{"send.side_effect": Stopped}), None
    writer.close()


@pytest.mark.parametrize("after", [False, True])
def test_a_chunk_is_sent_again_when_its_node_has_died(after):
    old, peer = make_peer(silent=True)
    writer = open_writer(peer)
    rows = [row._replace(is_first=np.ones(2, bool)) for row in stream(12, ends=0.0)]
    for row in rows[:4]:
        writer.write(row)
    new = make_node(restarts=1)
    peer.die(new, after=after)
    peer.silent = False
    for row in rows[4:]:
        writer.write(row)
    writer.close()
    assert old.status()[0] == 8 * after
    assert new.status()[0] == 2 * 12


def test_rows_of_another_number_of_environments_are_refused():
    _, peer = make_peer()
    writer = open_writer(peer)
    with pytest.raises(ValueError, match=r"rows must be of 2 environments, got 1\."):
        writer.write(stream(1, 1)[0])


def test_draws_are_requested_ahead_and_arrive_in_their_order():
    node, peer = make_peer()
    local, rows = local_replay(), stream(40)
    feed(node, rows)
    for row in rows:
        local.add(row)
    peer.silent = True
    replay = open_replay(peer, ahead=2)
    assert replay.sample() is None
    assert [answer.call for answer in peer.sent] == [("draw", 0, n, 0.0, [], 4) for n in range(2)]
    peer.answer()
    for number in range(8):
        draw = replay.sample()
        assert draw.keys.header[3:5].tolist() == [0, number]
        assert_equal(draw.sample, local.sample().sample)
        assert len(peer.sent) == 1 + number // 4
    assert replay.sample() is None, "the ninth has no answer"
    peer.answer()
    assert replay.sample().keys.header[4] == 8


def test_a_draw_that_was_not_due_is_requested_again():
    node, peer = make_peer()
    replay = open_replay(peer, ahead=2)
    assert replay.sample() is None
    feed(node, stream(40))
    assert replay.sample() is None, "the answers are older"
    assert replay.sample().keys.header[4] == 0


def test_priorities_travel_with_requests_in_the_order_of_the_draws():
    node, peer = make_peer(selector="proportional", rows=stream(40))
    replay = open_replay(peer, ahead=1)
    draws = [replay.sample() for _ in range(4)]
    peer.silent = True
    for number, draw in enumerate(draws):
        replay.set_priorities(draw.keys, np.full(3, 1.0 + number))
    assert not peer.sent
    assert replay.sample().keys.header[4] == 4
    ((name, _, request, _, priorities, _),) = [answer.call for answer in peer.sent]
    assert (name, request, [n for n, _ in priorities]) == ("draw", 2, [0, 1, 2, 3])
    peer.answer()
    assert (priorities_of(node)[draws[3].keys.keys[0]] == 4).all()
    with pytest.raises(ValueError, match="priorities must be finite"):
        replay.set_priorities(draws[0].keys, np.full(3, np.nan))


@pytest.mark.parametrize("ahead", [0, 1])
def test_priorities_are_sent_although_no_draw_is_due(ahead):
    node, peer = make_peer(
        selector="proportional", acting_steps_per_update=30.0, rows=stream(22, ends=0.0)
    )
    replay = open_replay(peer, ahead=ahead)
    draw = replay.sample()
    replay.set_priorities(draw.keys, np.full(3, 5.0))
    assert replay.sample() is None
    assert (priorities_of(node)[draw.keys.keys[0]] == 5).all()


class Keeper(ReplayNode):
    """Writes down what it is to keep."""

    def keep(self, steps):
        self.kept = steps, len(self._unused)

    def prune(self, kept):
        self.pruned = kept


@pytest.mark.parametrize("ahead", [0, 2])
def test_a_state_is_kept_when_all_priorities_are_set(ahead):
    """Those of requests too that have not been answered; the learner's state has no rows."""
    node = make_node(rows=stream(40), node=Keeper, selector="proportional")
    peer = LatePeer(node)
    replay = open_replay(peer, ahead=ahead)
    draws = [replay.sample() for _ in range(2)]
    peer.silent = True
    replay.set_priorities(draws[0].keys, np.full(3, 7.0))
    while ahead and not peer.sent:
        draws.append(replay.sample())
    replay.set_priorities(draws[1].keys, np.full(3, 5.0))
    replay.keep(100)
    replay.prune([100])
    assert (node.kept[0], node.pruned) == (100, [100])
    assert ahead or node.kept[1] == 0, "all draws are used"
    found = priorities_of(node)
    assert (found[draws[1].keys.keys[0]] == 5).all()
    assert set(found[draws[0].keys.keys[0]]) <= {5.0, 7.0}
    peer.answer()
    assert_equal(priorities_of(node), found)
    state = replay.state()
    assert sum(np.size(leaf) for leaf in state["stored_as"].values()) < 100
    replay.restore(state, {"updates": 0})
    sequence = sequence_spec(length=5)
    other = open_replay(LatePeer(make_node(sequence, max_lead=0)), sequence)
    with pytest.raises(ValueError, match="the stored rows have length 4, but the config has 5"):
        other.restore(state, {})
    with pytest.raises(ValueError, match="or were kept by a replay node, but this replay keeps"):
        local_replay().restore(state, {})


def test_rows_of_a_run_with_another_replay_fill_an_empty_node():
    local = local_replay()
    for row in stream(40):
        local.add(row)
    counters = counters_of(local)
    for full in (False, True):
        node, peer = make_peer()
        if full:
            feed(node, stream(3))
        open_replay(peer).restore(local.state(), counters)
        assert node.status()[0] == (6 if full else local.status().num_rows)
    reverbs = {"stored_as": local.state()["stored_as"], "reverb_checkpoint": np.zeros(1)}
    open_replay(peer).restore(reverbs, counters)


@pytest.mark.parametrize("request_bytes", [0, remote.REQUEST_BYTES])
def test_a_learner_holds_no_more_answers_than_ray_has_memory_for(monkeypatch, request_bytes):
    """Those requested, and those of the updates before, now and next; of large and small draws."""
    monkeypatch.setattr(remote, "REQUEST_BYTES", request_bytes)
    answers, counts = [], []

    class Carrying(LatePeer):
        def call(self, method, *arguments):
            answer = super().call(method, *arguments)
            if method == "draw" and answer is not None:
                answer = answer.copy()
                answers.append(weakref.ref(answer))
            return answer

    node = make_node(rows=stream(60))
    replay, held = open_replay(Carrying(node), ahead=ray_session.AHEAD), []
    while (draw := replay.sample()) is not None:
        held = [*held[-2:], draw]
        counts.append(sum(answer() is not None for answer in answers))
    assert len(counts) > 20
    most = ray_session._ANSWERS
    assert max(counts) == most if not request_bytes else max(counts) <= most
