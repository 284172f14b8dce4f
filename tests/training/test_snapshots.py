"""Snapshots and other states: exact, whole or not at all, and clear when damaged."""

import collections
import os
import re
import shutil

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from run_files import flip

from retrax.basics import files
from retrax.basics.files import sealed
from retrax.basics.prng_keys import without_keys
from retrax.environments.plain_data import pack
from retrax.replay.interface import REAL
from retrax.training.assembly import open_snapshots
from retrax.training.learner import Snapshot
from retrax.training.run_config import RunConfig, write_config
from retrax.training.snapshots import (
    BestParameters,
    SnapshotInterval,
    Snapshots,
    actor_file,
    actor_files,
    check_states,
    newest_snapshot,
    pack_actor,
    read_actor,
    unpack_actor,
    write_state,
)

Learner = collections.namedtuple("Learner", "params key count")


def make_snapshot(steps, size=3):
    learner = Learner(
        {"layer": {"w": jnp.full((size, 2), steps / 3.0)}},
        jax.random.key_data(jax.random.key(steps)),
        jnp.int32(steps),
    )
    replay = {"rows": {"reward": np.arange(4.0) / 3, "observation": np.arange(3, dtype=np.uint8)}}
    return Snapshot(learner, replay, {"steps": steps, "seconds": 0.1})


def template(size=3):
    return jax.eval_shape(lambda: make_snapshot(0, size).learner)


def read(directory, steps=None, **others):
    """The learner and the replay of a snapshot, by default of the newest whole one."""
    snapshots = Snapshots(directory)
    steps = snapshots.newest_whole() if steps is None else steps
    return snapshots.read(steps, learner=template(), replay=None, **others)


def save(directory, *steps, keep=2):
    snapshots = Snapshots(directory, keep=keep)
    for step in steps:
        snapshots.save(step, make_snapshot(step))


def file(directory, steps):
    return directory / "snapshots" / f"{steps}.npz"


def test_restores_what_was_saved(tmp_path, capfd):
    save(tmp_path, 7)
    found, saved = read(tmp_path), make_snapshot(7)
    assert isinstance(found.learner, Learner)
    for part in ("learner", "replay"):
        chex.assert_trees_all_equal(getattr(found, part), getattr(saved, part))
    chex.assert_trees_all_equal_dtypes(found.learner, saved.learner)
    assert found.replay["rows"]["reward"].dtype == np.float64
    assert (found.counters, found.actors) == (saved.counters, None)
    alone = Snapshots(tmp_path).read(7, learner=template())
    chex.assert_trees_all_equal(alone.learner, saved.learner)
    assert (alone.counters, alone.replay) == (saved.counters, None)
    assert capfd.readouterr() == ("", "")


KEYS = jax.random.split(jax.random.key(4), (2, 3))


@pytest.mark.parametrize(
    "state",
    [
        jax.random.key(5),
        (),
        {"key": jax.random.key(5, impl="rbg"), "many": KEYS, "empty": ()},
        jnp.arange(3),
    ],
)
def test_any_pytree_is_a_learner_or_an_actor(tmp_path, state):
    """A bare key and an empty tuple included; keys are restored as keys."""
    snapshots = Snapshots(tmp_path)
    snapshots.save(1, Snapshot(state, {"rows": np.zeros(1)}, {"steps": 1}, state))
    shapes = jax.eval_shape(lambda: state)
    found = snapshots.read(1, learner=shapes, actors=shapes)
    assert found.counters == {"steps": 1}
    for restored in (found.learner, found.actors):
        assert jax.tree.structure(restored) == jax.tree.structure(state)
        chex.assert_trees_all_equal_dtypes(restored, state)
        chex.assert_trees_all_equal(*map(without_keys, (restored, state)))


def test_a_chosen_snapshot_is_found_and_read(tmp_path):
    """Of the newest; a run that goes back to one of them removes those after it."""
    save(tmp_path, 1, 2, 3, 10, keep=3)
    assert Snapshots(tmp_path).steps() == [2, 3, 10]
    for which, step in {"newest": 10, 3: 3, "3": 3, 10: 10}.items():
        assert Snapshots(tmp_path).find(which) == step
        snapshot = read(tmp_path, step)
        assert (snapshot.learner.count, snapshot.counters["steps"]) == (step, step)
    Snapshots(tmp_path).remove_newer(3)
    save(tmp_path, 12, 13, keep=0)
    assert Snapshots(tmp_path).steps() == [2, 3, 12, 13]


@pytest.mark.parametrize("which", [2, "2", 0, "wrong", "-1", "", "best"])
def test_another_snapshot_is_refused_with_those_there_are(tmp_path, which):
    save(tmp_path, 1, 2, 3, 4)
    what, allowed = "of an evaluation (--evaluate-every)", "newest, 3, 4"
    if which != "best":
        (tmp_path / "best.npz").touch()
        what, allowed = repr(which), "newest, best, 3, 4"
    expected = re.escape(f"snapshots holds no snapshot {what}: allowed are {allowed}.")
    with pytest.raises(ValueError, match=f"{expected}$"):
        Snapshots(tmp_path).find(which)


def test_what_was_not_finished_is_ignored_and_cleaned(tmp_path, contents):
    """By the next save: reading changes nothing."""
    save(tmp_path, 1)
    file(tmp_path, "3.npz.partial").with_suffix("").write_text("half")
    before = contents(tmp_path)
    assert Snapshots(tmp_path).steps() == [1]
    assert newest_snapshot(tmp_path) == Snapshots(tmp_path).find() == 1
    read(tmp_path)
    assert contents(tmp_path) == before
    save(tmp_path, 2)
    (tmp_path / "snapshots" / "03.npz").touch()  # a stranger's
    assert newest_snapshot(tmp_path) == 2
    found = sorted(path.name for path in (tmp_path / "snapshots").iterdir())
    assert found == ["03.npz", "1.npz", "2.npz"]


def test_no_snapshots(tmp_path):
    for folder in ("snapshots", "snapshots/other"):
        with pytest.raises(ValueError, match=r"holds no complete snapshot: training was stopped"):
            read(tmp_path)
        assert newest_snapshot(tmp_path) is None
        (tmp_path / folder).mkdir()  # which reading did not make


@pytest.mark.parametrize(
    ("learner", "reason"),
    [
        (template(size=4), "shape"),
        (template()._replace(params={"other": KEYS}), r"\(learner/params/layer/w is unknown\)"),
    ],
)
def test_another_shape_or_structure_is_refused(tmp_path, learner, reason):
    save(tmp_path, 7)
    with pytest.raises(ValueError, match=rf"7.npz is of another agent, .*{reason}"):
        Snapshots(tmp_path).read(7, learner=learner)


def test_states_of_another_run_are_refused(tmp_path):
    """Of the same agent; also in a worker's folder within the run directory."""
    one, other = tmp_path / "one", tmp_path / "other"
    worker = other / "workers" / "0"
    for directory in (one, other):
        directory.mkdir()
        for _ in range(2):  # a resumed run keeps its id
            write_config(directory, RunConfig(agent="acer", environment="catch"))
            save(directory, 7)
        BestParameters(directory).offer((), mean_return=1.0, steps=7)
        open_snapshots(directory)
    worker.mkdir(parents=True)
    save(worker, 7)
    assert read(worker).counters["steps"] == BestParameters(other).read().steps == 7
    for state in (file(other, 7), file(worker, 7), other / "best.npz"):
        shutil.copy(one / "best.npz" if state.name == "best.npz" else file(one, 7), state)
    refused = r"is of another agent, config or version \(it is of another run, whose id is \w+ in"
    for function, directory in ((read, worker), (read, other), (open_snapshots, other)):
        with pytest.raises(ValueError, match=refused):
            function(directory)
    foreign = r"best.npz cannot be read \(it is of another run, whose"
    for function in (BestParameters(other).read, lambda: check_states(other)):
        with pytest.raises(ValueError, match=foreign):
            function()
    best, (states, late) = BestParameters(one), (Snapshots(x) for x in (one, worker))
    shutil.rmtree(one)
    one.mkdir()
    for directory in (one, other):  # a removed run's, and one with a later run
        (directory / "config.json").unlink(missing_ok=True)
        write_config(directory, RunConfig(agent="acer", environment="catch"))
    for write in (states.save, late.save):
        with pytest.raises(ValueError, match="was removed, or is of another run by now"):
            write(9, make_snapshot(9))
    with pytest.raises(ValueError, match="was removed, or is of another run by now"):
        best.offer((), mean_return=2.0, steps=9)
    assert [path.name for path in one.iterdir()] == ["config.json"]
    (other / "config.json").write_text("{}")  # an earlier version's
    assert read(other).counters["steps"] == 7


@pytest.mark.parametrize("how", ["truncated", "longer", "empty", "another file"])
def test_damage_is_described_in_one_sentence(tmp_path, how):
    save(tmp_path, 6, 7)
    path = file(tmp_path, 7)
    data = path.read_bytes()
    changed = {"truncated": data[: len(data) // 2], "longer": data + b"0", "empty": b""}
    path.write_bytes(changed.get(how, b"\x89PNG" * 100))
    with pytest.raises(
        ValueError, match=r"7 steps is damaged \(.* older one is at 6 steps, and --resume goes back"
    ) as error:
        read(tmp_path, 7)
    assert f"{path} is not what was written" in str(error.value)
    assert read(tmp_path).counters["steps"] == 6
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 400 + len(str(tmp_path))
    file(tmp_path, 6).write_bytes(b"")
    with pytest.raises(ValueError, match=r"is damaged .* must be trained again in another dire"):
        read(tmp_path)


@pytest.mark.parametrize("part", ["learner", "replay", "counters", "actors"])
def test_a_missing_part_is_named(tmp_path, part):
    snapshot = make_snapshot(7)
    parts = {"learner": snapshot.learner, "replay": snapshot.replay, "actors": ()}
    parts["counters"] = pack(snapshot.counters)
    (tmp_path / "snapshots").mkdir()
    write_state(file(tmp_path, 7), {name: x for name, x in parts.items() if name != part})
    with pytest.raises(ValueError, match=rf"7.npz is of another .*\(it has no part {part}\)\.$"):
        read(tmp_path, actors=())


def test_100_of_100_flipped_bits_are_refused(tmp_path):
    save(tmp_path, 5, 6, 7, keep=0)
    flip(file(tmp_path, 6), 0)
    path = file(tmp_path, 7)
    for bit in np.random.default_rng(0).integers(8 * path.stat().st_size, size=100):
        flip(path, bit)
        snapshots = Snapshots(tmp_path)
        with pytest.raises(ValueError, match=f"{path} is not what .* older one is at 5 steps"):
            snapshots.read(7, learner=template())
        assert snapshots.newest_whole() == 5
        first, second = snapshots.passed_over()
        assert "at 6 steps is damaged" in first
        assert second.startswith(f"The snapshot at 7 steps is damaged ({path} is not")
        assert second.endswith(": going back to the one at 5 steps.")
        flip(path, bit)
    assert Snapshots(tmp_path).newest_whole() == 7
    assert Snapshots(tmp_path).passed_over() == []


def test_snapshots_of_older_versions_are_refused(tmp_path):
    """They were folders."""
    (tmp_path / "snapshots" / "7").mkdir(parents=True)
    for function in (newest_snapshot, read):
        with pytest.raises(ValueError, match="holds snapshots of an older version of retrax, wh"):
            function(tmp_path)


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_kill_while_saving_leaves_the_older_ones(tmp_path, monkeypatch, call):
    class Killed(BaseException):
        pass

    def kill(*arguments):
        raise Killed

    save(tmp_path, 6, keep=1)
    with monkeypatch.context() as patch:
        patch.setattr(os if call == "fsync" else files.Path, call, kill)
        with pytest.raises(Killed):
            save(tmp_path, 7, keep=1)
    assert (Snapshots(tmp_path).steps(), read(tmp_path).counters["steps"]) == ([6], 6)
    save(tmp_path, 7, keep=1)
    assert Snapshots(tmp_path).steps() == [7]


def test_a_further_check_counts_too(tmp_path):
    def check(steps):
        if steps == 7:
            raise ValueError("its checkpoint is missing")

    save(tmp_path, 6, 7)
    snapshots = Snapshots(tmp_path, check=check)
    assert snapshots.newest_whole() == 6
    assert "(its checkpoint is missing)" in snapshots.passed_over()[0]


def test_a_snapshot_is_due_after_steps_or_seconds():
    now = [1000.0]
    clock = REAL._replace(monotonic=lambda: now[0])
    interval = SnapshotInterval(120, every=100, seconds=600.0, clock=clock)
    assert interval.next == 200

    def due(later, *steps):
        now[0] += later
        return [interval.is_due(each) for each in steps]

    assert due(0.0, 199, 200) == [False, True]
    assert due(599.0, 130) == [False]
    assert due(1.0, 130, 120) == [True, False]  # at 120 steps there is nothing new
    interval.saved(130, took=10.0)
    assert due(599.0, 140) == [False]
    interval.saved(140, took=60.0)  # of which 20 are a twentieth of 1200 seconds
    assert due(1199.0, 150) == [False]
    assert due(1.0, 150) == [True]


# States of actors outlive their processes, and the best parameters their evaluator


def make_state(seed, size=3):
    keys = jax.random.split(jax.random.key(seed), 2)
    bandit = {"count": jnp.full((2, size), seed), "mean": jnp.ones((2,), jnp.bfloat16)}
    return {"key": keys, "bandit": bandit, "nothing": ()}


def write_actor(directory, seed, index=1):
    with sealed(actor_file(directory, index)) as file:
        file.write(pack_actor(make_state(seed)))


def test_an_actors_state_comes_back_bit_for_bit(tmp_path):
    for seed in (5, 7):  # the newest counts
        write_actor(tmp_path, seed)
    template, saved = make_state(0), make_state(7)
    of_file = read_actor(actor_file(tmp_path, 1), template)
    for found in (of_file, unpack_actor(pack_actor(saved), template)):
        chex.assert_trees_all_equal(*map(without_keys, (found, saved)))
        chex.assert_trees_all_equal_dtypes(found, saved)
    with pytest.raises(ValueError, match=r"^The actor's state is of another agent or config \("):
        unpack_actor(pack_actor(saved), make_state(0, size=4))
    for index in (10, 2):
        write_actor(tmp_path, 5, index)
    assert actor_files(tmp_path) == [tmp_path / "actors" / f"{x}.npz" for x in (1, 2, 10)]


def make_params(seed, size=3):
    return {"w": jnp.full((2, size), seed, jnp.float32), "b": jnp.full((2,), seed, jnp.bfloat16)}


def shapes(size=3):
    return jax.eval_shape(lambda: make_params(0, size))


def test_the_largest_return_is_kept_and_of_equal_ones_the_newer(tmp_path):
    assert not BestParameters(tmp_path).exists
    BestParameters(tmp_path).forget()  # of a run that begins again
    returns = [float("nan"), -2.0, -3.0, 0.5, 0.25, 0.5, float("nan"), 0.4]
    kept = [
        BestParameters(tmp_path).offer(make_params(steps), mean_return=value, steps=steps)
        for steps, value in enumerate(returns)
    ]
    assert kept == [False, True, False, True, False, True, False, False]
    found = BestParameters(tmp_path).read(params=shapes())
    assert (found.mean_return, found.steps) == (0.5, 5)
    chex.assert_trees_all_equal(found.params, jax.device_get(make_params(5)))
    chex.assert_trees_all_equal_dtypes(found.params, make_params(5))
    assert [path.name for path in tmp_path.iterdir()] == ["best.npz"]
    best = BestParameters(tmp_path)
    assert best.offer(make_params(6), mean_return=1e9 + 0.5, steps=6)
    assert not best.offer(make_params(7), mean_return=1e9, steps=7)  # equal in float32
    best.forget()
    assert not best.exists


@pytest.mark.parametrize("size", [3, 4])
def test_a_file_that_does_not_fit_is_named(tmp_path, size):
    """Damaged, or of another agent."""
    best, actor = BestParameters(tmp_path), actor_file(tmp_path, 1)
    best.offer(make_params(1), mean_return=9.0, steps=1)
    write_actor(tmp_path, 5)
    if size == 3:
        (tmp_path / "best.npz").write_bytes(b"PK")
        actor.write_bytes(actor.read_bytes()[:50])
    with pytest.raises(ValueError, match=r"The best parameters .*best\.npz cannot be read \(.*: r"):
        best.read(params=shapes(size))
    with pytest.raises(ValueError, match=f"{actor} cannot be read .*: remove the file"):
        read_actor(actor, make_state(5, size))
