"""The replay that other nodes call, against the replay of one process."""

import itertools
import threading

import numpy as np
import pytest
from replay_nodes import (
    LatePeer,
    feed,
    local_replay,
    make_node,
    open_replay,
    open_writer,
    packed,
    priorities_of,
    sequence_spec,
    with_counters,
)
from replay_rows import assert_equal, part, stream
from waiting import wait_for

from retrax.replay import DirectPeer, remote

SECONDS = 20.0  # no wait takes as long, unless it fails
ROUNDS = {"pace": "rounds", "on_policy": True, "replay_ratio": 1.5}


def one_draw(node, data):
    (draw,) = node.local.packing.read_draws(data)
    return draw


def draw_all(local, replay, used, rng=None):
    """Draws from both what is due, and sets priorities of each draw after the next one."""
    drawn = 0
    while (wanted := local.sample()) is not None:
        found = replay.sample()
        assert_equal(found.keys.keys, wanted.keys)
        assert_equal(found.sample, wanted.sample)
        assert found.updates == wanted.updates
        assert replay.metrics(found.keys) == local.metrics(wanted.keys)
        used.append((wanted.keys, found.keys))
        drawn += 1
        if len(used) == 2:
            set_priorities(local, replay, *used.pop(0), rng or np.random.default_rng(0))
    assert replay.sample() is None
    return drawn


def set_priorities(local, replay, ours, others, rng):
    priorities = rng.random(ours.shape[1])
    local.set_priorities(ours, priorities)
    replay.set_priorities(others, priorities)


def settle(local, replay, used):
    """Sets the priorities of the draws that still have none."""
    while used:
        set_priorities(local, replay, *used.pop(0), np.random.default_rng(1))
    assert replay.sample() is None, "which sends the priorities"


def as_first(row):
    return row._replace(is_first=np.ones_like(row.is_first))


@pytest.mark.parametrize(
    ("selector", "cut", "changes"),
    [
        ("contextual", {}, {}),
        ("uniform", {"crosses": False, "stored": True}, {"updates_per_call": 2}),
        ("contextual", {"crosses": False, "frame_stack": 3}, {"acting_steps_per_update": 0.7}),
        ("proportional", {"frame_stack": 3, "stored": True, "period": 1}, {}),
        ("proportional", {"crosses": False}, {"importance_exponent": 0.5}),
        ("uniform", {"period": 3}, ROUNDS),
        ("contextual", {"stored": True}, {**ROUNDS, "updates_per_call": 2, "min_rows": 20}),
        ("proportional", {"frame_stack": 2}, {"pace": "rounds", "replay_ratio": 3.0}),
    ],
)
def test_all_is_as_in_one_process(selector, cut, changes, monkeypatch):
    """Draw by draw and bit by bit, with rows that overwrite others, and after a restore."""
    sequence, changes = sequence_spec(**cut), {**changes, "selector": selector}
    monkeypatch.setattr(remote, "CHUNK_ROWS", 1)
    local, node = local_replay(sequence, **changes), make_node(sequence, max_lead=0, **changes)
    rng, used, drawn = np.random.default_rng(1), [], 0
    for seed in range(2):
        replay = open_replay(DirectPeer(node), sequence, **changes)
        assert_equal(replay.shapes, local.shapes)
        writers = [open_writer(DirectPeer(node), [e], sequence) for e in (0, 1)]
        for rows in stream(60, 2, sequence, seed=seed):
            for environment, writer in enumerate(writers):
                writer.write(part(rows, environment))
                local.add(part(rows, environment), np.array([environment]))
                drawn += draw_all(local, replay, used, rng)
        settle(local, replay, used)
        assert replay.status() == local.status()
        state = node.state()
        assert_equal(state, with_counters(local, state))
        node = make_node(sequence, seed=5, max_lead=0, restarts=1, **changes)
        node.restore(state)
        local.cut()  # environments begin new episodes
    assert drawn > 20


@pytest.mark.parametrize("max_lead", [0, 1, 7])
@pytest.mark.parametrize("num_envs", [1, 2])
@pytest.mark.parametrize("changes", [{}, {"acting_steps_per_update": 0.4}, ROUNDS])
def test_rows_lead_by_the_bound_exactly(max_lead, num_envs, changes):
    sequence = sequence_spec(length=10, period=9)  # a round needs more rows than any lead has
    rows = stream(50, num_envs)
    free = local_replay(sequence, num_envs, **changes)  # how many rows each call needs
    needed = []
    for count, row in enumerate(rows, start=1):
        free.add(row)
        while free.sample() is not None:
            needed.append(count * num_envs)
    node = make_node(sequence, num_envs, max_lead=max_lead, **changes)
    restarts, first = node.begin(0)
    for number, count in enumerate(needed, start=first):
        allowed = (count + max_lead) // num_envs * num_envs
        assert feed(node, rows) == (allowed >= 50 * num_envs)
        assert node.local.schedule.steps == sum(
            int(np.sum(~row.is_last)) for row in rows[: allowed // num_envs]
        )
        assert node.draw(restarts, number, 0.0) is not None
    assert feed(node, rows)
    assert len(needed) > 5


@pytest.mark.parametrize("changes", [{}, {"acting_steps_per_update": 0.7}, ROUNDS])
def test_draws_that_are_waited_for_are_made_by_the_rows_that_make_them_due(changes):
    """Though one chunk brings them all, they are those of one process."""
    rows, changes = stream(40), {**changes, "selector": "proportional"}
    local, node, wanted, found = local_replay(**changes), make_node(**changes), [], {}
    for row in rows:
        local.add(row)
        while (draw := local.sample()) is not None:
            wanted.append(draw)

    def wait(number):
        found[number] = one_draw(node, node.draw(0, number, SECONDS))

    threads = [threading.Thread(target=wait, args=[n]) for n in reversed(range(len(wanted)))]
    for thread in threads:
        thread.start()
    wait_for(lambda: len(node._waiting) == len(wanted))
    assert feed(node, rows)
    for thread in threads:
        thread.join()
    assert len(wanted) > 8
    for number, draw in enumerate(wanted):
        assert found[number].header[1:5].tolist()[::3] == [draw.updates, number]
        assert_equal(found[number].keys, draw.keys)
        assert_equal(node.local.packing.sample(found[number]), draw.sample)
    assert not node._waiting


# Chunks of rows as (writer, number of the first row, rows); what is added is given as positions
# in the stream, and "cut" where an episode is ended: the row after it is stored as a first one.
RESTARTED = ()  # the node is another one, with the state of the first
FIRSTS = (0, 6, 12)
GAPS = {
    "in order": ([(7, 0, range(5)), (7, 5, range(5, 9))], [*range(9)]),
    "twice": ([(7, 0, range(5))] * 2 + [(7, 5, range(5, 9))], [*range(9)]),
    "overlapping": ([(7, 0, range(5)), (7, 3, range(3, 9))], [*range(9)]),
    "an old one again": (
        [(7, 0, range(5)), (7, 5, range(5, 9)), (7, 0, range(5)), (7, 9, range(9, 11))],
        [*range(11)],
    ),
    "a gap": ([(7, 0, range(3)), (7, 4, range(4, 9))], [0, 1, 2, "cut", *range(4, 9)]),
    "a gap before a last row": (
        [(7, 0, range(3)), (7, 5, range(5, 9))],
        [0, 1, 2, "cut", *range(5, 9)],
    ),
    "gaps after single rows": (
        [(7, 0, range(1)), (7, 2, range(2, 3)), (7, 4, range(4, 9))],
        [0, "cut", 2, "cut", *range(4, 9)],
    ),
    "another writer": ([(7, 0, range(3)), (8, 0, range(4, 9))], [0, 1, 2, "cut", *range(4, 9)]),
    "a writer in the middle": ([(7, 3, range(3, 9))], ["cut", *range(3, 9)]),
    "a restart": ([(7, 0, range(3)), RESTARTED, (7, 1, range(1, 7))], [0, 1, 2, "cut", 3, 4, 5, 6]),
    "a late earlier writer, and a restart": (
        [(7, 0, range(3)), (8, 0, range(4, 6)), RESTARTED, (7, 3, [3]), (8, 2, range(6, 9))],
        [0, 1, 2, "cut", 4, 5, "cut", *range(6, 9)],
    ),
}


@pytest.mark.parametrize("name", GAPS)
@pytest.mark.parametrize("max_lead", [0, 1000])
@pytest.mark.parametrize("crosses", [False, True])
def test_gaps_cut_episodes(name, max_lead, crosses):
    """With `max_lead` 0 chunks are taken in row by row."""
    chunks, added = GAPS[name]
    sequence, options = sequence_spec(crosses=crosses), {"acting_steps_per_update": 1.0}
    rows = [
        row._replace(is_first=np.array([n in FIRSTS]), is_last=np.array([n + 1 in FIRSTS]))
        for n, row in enumerate(stream(15, 1, ends=0.0))
    ]
    local = local_replay(sequence, 1, min_rows=3, **options)
    for index, before in zip(added, [None, *added], strict=False):
        if index == "cut":
            local.cut(0)
        else:
            local.add(as_first(rows[index]) if before == "cut" else rows[index])
    options = {"max_lead": max_lead, "min_rows": 3, **options}
    node, number = make_node(sequence, 1, **options), 0
    for sent in chunks:
        if sent == RESTARTED:
            state, node, number = node.state(), make_node(sequence, 1, **options), 0
            node.restore(state)
            continue
        writer, first, indices = sent
        chunk = packed(node, [rows[index] for index in indices])
        sent = chunk.copy()
        while not node.add(writer, first, [0], chunk, 0.0):
            assert node.draw(0, number, 0.0) is not None
            number += 1
        assert_equal(chunk, sent)
    assert (number > 0) == (max_lead == 0)
    found, wanted = node.local.state(), local.state()
    assert_equal({**found, "rng": 0}, {**wanted, "rng": 0})


def test_a_gap_concerns_the_environments_of_its_writer():
    """Two rows of one environment are missing; two of the other one arrive twice."""
    rows = stream(12, ends=0.0)
    local, node = local_replay(), make_node()
    for environment, first in ((0, 0), (1, 0), (1, 4), (0, 8)):
        chunk = packed(node, [part(row, environment) for row in rows[first : first + 6]])
        assert node.add(7 + environment, first, [environment], chunk, 0.0)
    for number, row in enumerate(rows):
        if number < 10:
            local.add(part(row, 1), np.array([1]))
        if number == 8:
            local.cut(0)
        if number not in (6, 7):
            local.add(as_first(part(row, 0)) if number == 8 else part(row, 0), np.array([0]))
    found, wanted = node.local.state(), local.state()
    assert_equal(found["rows"], wanted["rows"])
    assert found["heads"].tolist() == wanted["heads"].tolist() == [10, 10]


def test_a_restart_is_noticed_without_a_lost_call():
    peer = LatePeer(make_node())
    replay = open_replay(peer)
    assert replay.sample(0.0) is None  # the replay knows the old node
    peer.node = make_node(rows=stream(20), restarts=1)
    draw = replay.sample(SECONDS)
    assert draw.keys.header[3:5].tolist() == [1, 0]
    assert replay._restarts == 1  # else the draw's priorities would be dropped


@pytest.mark.parametrize("changes", [{}, ROUNDS, {**ROUNDS, "updates_per_call": 2}])
@pytest.mark.parametrize("again", ["a state", "another learner"])
def test_unused_draws_count_as_not_made(changes, again):
    """A resumed replay, or a restarted learner, draws them again; rows stay as they are."""
    sequence, rows = sequence_spec(period=3), stream(60)
    changes = {**changes, "selector": "proportional"}
    local, node = local_replay(sequence, **changes), make_node(sequence, **changes)
    replay, used = open_replay(DirectPeer(node), sequence, **changes), []
    for number, row in enumerate(rows[:40]):
        while not feed(node, [row], number):
            assert node.draw(0, node._number, 0.0) is not None
        local.add(row)
        if number < 20:
            draw_all(local, replay, used)
            settle(local, replay, used)
    while node.draw(0, node._number, 0.0) is not None:
        pass
    assert len({draw.newest for draw, _ in node._unused}) == 1 + ("pace" in changes)
    state = node.state()
    assert_equal(state, with_counters(local, state))
    if again == "a state":
        node = make_node(sequence, seed=5, **changes)
        node.restore(state)
        local.cut()
    kind = replay.state()
    replay = open_replay(DirectPeer(node), sequence, **changes)
    replay.restore(kind, {"updates": local.schedule.updates})
    drawn = draw_all(local, replay, used)
    for number, row in enumerate([as_first(rows[40]), *rows[41:]], start=40):
        assert feed(node, [row], number)
        local.add(row)
        drawn += draw_all(local, replay, used)
    assert drawn > 6


@pytest.mark.parametrize("changes", [{}, {"pace": "rounds", "replay_ratio": 3.0}])
def test_updates_that_a_learner_has_lost_are_due_again(changes):
    """Its snapshot is older than its death. What the node drew before a restart is unknown."""
    node = make_node(rows=stream(40), **changes)

    def learn(updates):
        replay, made = open_replay(DirectPeer(node), **changes), 0
        replay.restore(replay.state(), {"updates": updates})
        while (draw := replay.sample()) is not None:
            replay.set_priorities(draw.keys, np.ones(draw.keys.keys.shape[1]))
            made += draw.updates
        return made

    made = learn(0)
    assert made > 5
    assert [learn(made), learn(made - 3), learn(0), learn(made)] == [0, 3, made, 0]
    state = node.state()
    node = make_node(restarts=1, **changes)
    node.restore(state)
    assert [learn(made), learn(made - 3)] == [0, 3]


def test_no_round_begins_before_the_newest_sequences_are_drawn():
    """Whatever the lead: each round's newest sequences are those of one process."""
    sequence, rows = sequence_spec(period=3), stream(40)
    changes = {**ROUNDS, "replay_ratio": 0.0}
    local, wanted = local_replay(sequence, **changes), []
    for row in rows:
        local.add(row)
        while (draw := local.draw()) is not None:
            wanted.append(draw.keys[:2])
    node, found = make_node(sequence, **changes), []
    while not feed(node, rows):
        found.append(one_draw(node, node.draw(0, len(found), 0.0)).keys[:2])
    assert len(wanted) == 13
    assert_equal(found, wanted[: len(found)])
    assert len(found) >= 12


def test_priorities_are_set_once_and_use_the_draws_before():
    node = make_node(rows=stream(20), selector="proportional")
    draws = [one_draw(node, node.draw(0, number, 0.0)) for number in range(3)]
    assert_equal(node.draw(0, 1, 0.0), draws[1].data)
    slots = draws[1].keys[0]
    node.set_priorities(0, [(1, np.full(3, 5.0))])
    assert (priorities_of(node)[slots] == 5).all()
    node.set_priorities(0, [(1, np.full(3, 7.0))])
    node.set_priorities(1, [(2, np.full(3, 7.0))])
    assert (priorities_of(node)[slots] == 5).all()
    assert node.state()["counters"][1] == 2, "two updates are used"
    with pytest.raises(
        ValueError, match=r"The draws of request 1 have been used; the next request is 3\."
    ):
        node.draw(0, 1, 0.0)


def test_a_request_has_as_many_draws_as_are_due_and_wanted():
    rows = stream(20, ends=0.15)
    local, node = local_replay(), make_node(rows=rows)
    for row in rows:
        local.add(row)
    wanted = list(iter(local.draw, None))
    assert len(wanted) == 9
    answers = [node.draw(0, request, 0.0, (), 4) for request in range(3)]
    read = [node.local.packing.read_draws(data) for data in answers]
    assert [len(draws) for draws in read] == [4, 4, 1]
    found = [*itertools.chain(*read)]
    for ours, theirs in zip(wanted, found, strict=True):
        assert_equal(theirs.keys, ours.keys)
        assert_equal(theirs.parts, ours.parts)
    assert [int(draw.header[4]) for draw in found] == list(range(9))
    assert_equal(node.draw(0, 1, 0.0, (), 4), answers[1])
    node.set_priorities(0, [(4, np.ones(3))])
    assert node.state()["counters"][1] == 5, "the other draws of the request are not used"
    assert_equal(node.draw(0, 1, 0.0, (), 4), answers[1])
    node.set_priorities(0, [(7, np.ones(3))])
    with pytest.raises(ValueError, match="The draws of request 1 have been used"):
        node.draw(0, 1, 0.0, (), 4)


def test_late_priorities_are_set():
    """Calls of a learner may overtake each other."""
    node = make_node(rows=stream(30, ends=0.0), selector="proportional")
    draws = [one_draw(node, node.draw(0, number, 0.0)) for number in range(17)]
    node.set_priorities(0, [(16, np.full(3, 5.0))])
    assert node.draw(0, 17, 0.0, [(0, np.full(3, 9.0))]) is None, "no more are due"
    assert (priorities_of(node)[draws[0].keys[0]] == 9).all()
    assert node.state()["counters"][1] == 17
    feed(node, stream(6, ends=0.0), 30)
    for number, waits in [(17, True), (18, False)]:
        assert node.draw(0, number, 0.0) is not None
        node.set_priorities(0, [(number, np.ones(3))])
        assert (1 in node._made) == waits, "sixteen draws later, and not seventeen"


@pytest.mark.parametrize("crosses", [False, True])
def test_a_restored_node_cuts_the_running_episodes(crosses):
    """Though its writer is the same, and no row is missing."""
    sequence, rows = sequence_spec(crosses=crosses), stream(12, ends=0.0)
    local, node = local_replay(sequence), make_node(sequence, rows=rows[:6])
    node.restore(node.state())
    feed(node, rows[6:9], 6)
    feed(node, rows[9:], 9)
    for number, row in enumerate(rows):
        if number == 6:
            local.cut()
        local.add(as_first(row) if number == 6 else row)
    state = node.state()
    assert_equal(state, with_counters(local, state))


def test_a_buffer_of_another_size_is_refused():
    """Config and batch of the learner do not give the size, the header does."""
    packing = local_replay().packing
    data = packing.empty_draw(3).data
    (draw,) = packing.read_draws(data)
    assert [part.shape for part in draw.parts] == [(3, 4, 36)]
    with pytest.raises(ValueError, match=r"A draw of 3 sequences has 704 bytes, got 703: learner"):
        packing.read_draws(data[:-1])
    assert packing.draw_bytes(10**8) > 2**31  # which no dtype can have


@pytest.mark.parametrize("change", [{"length": 5}, {"stored": True}, {"frame_stack": 2}])
def test_another_layout_is_refused(change):
    peer = DirectPeer(make_node(max_lead=0))
    for make in (open_replay, open_writer):
        with pytest.raises(ValueError, match=r"layout .*, those here .*: all nodes need the same"):
            make(peer, sequence=sequence_spec(**change))
