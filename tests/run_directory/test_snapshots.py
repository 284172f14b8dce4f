"""Snapshots: exact, whole or not at all, and clear when damaged."""

import shutil
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from retrax.run_directory import numbered_folders
from retrax.run_directory.snapshots import Snapshots
from retrax.runtime.learner import Snapshot


class Learner(NamedTuple):
    params: Any
    key: jax.Array
    count: jax.Array


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


def save(directory, *steps, keep=2, returns=None):
    """Saves snapshots; `returns` has those of the steps that were evaluated."""
    snapshots = Snapshots(directory, keep=keep)
    for step in steps:
        evaluated = (returns or {}).get(step)
        snapshots.save(step, make_snapshot(step), evaluation_return=evaluated)
    snapshots.close()


@pytest.fixture
def reader(tmp_path):
    """Opens snapshots to read, and closes them."""
    opened = []

    def open_(directory=tmp_path):
        opened.append(Snapshots(directory, writable=False))
        return opened[-1]

    yield open_
    for snapshots in opened:
        snapshots.close()


def test_restores_what_was_saved(tmp_path, reader):
    save(tmp_path, 7)
    found, saved = reader().restore(template()), make_snapshot(7)
    assert isinstance(found.learner, Learner)
    chex.assert_trees_all_equal(found.learner, saved.learner)
    chex.assert_trees_all_equal_dtypes(found.learner, saved.learner)
    chex.assert_trees_all_equal(found.replay, saved.replay)
    assert found.replay["rows"]["reward"].dtype == np.float64
    assert found.counters == saved.counters
    assert found.actors is None


def test_restores_actors_with_their_keys(tmp_path, reader):
    actors = {"key": jax.random.split(jax.random.key(3), 2), "count": jnp.arange(2)}
    snapshots = Snapshots(tmp_path)
    snapshots.save(7, make_snapshot(7)._replace(actors=actors))
    snapshots.close()
    shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), actors)
    found = reader().restore(template(), shapes).actors
    chex.assert_trees_all_equal(found, actors)
    shapes["count"] = jax.ShapeDtypeStruct((3,), jnp.int32)
    with pytest.raises(ValueError, match="is of another agent, config or version"):
        reader().restore(template(), shapes)


def test_typed_keys_are_restored_as_keys(tmp_path, reader):
    keys = {"one": jax.random.key(3), "many": jax.random.split(jax.random.key(4), (2, 3))}
    snapshots = Snapshots(tmp_path)
    snapshots.save(1, Snapshot(keys, {"rows": np.zeros(1)}, {}))
    snapshots.close()
    found = reader().restore(jax.eval_shape(lambda: keys)).learner
    for name, key in keys.items():
        assert found[name].dtype == key.dtype
        np.testing.assert_array_equal(*map(jax.random.key_data, (found[name], key)))


def test_learner_alone(tmp_path, reader):
    save(tmp_path, 7)
    learner, counters = reader().restore_learner(template())
    chex.assert_trees_all_equal(learner, make_snapshot(7).learner)
    assert counters["steps"] == 7


def test_the_newest_two_are_kept(tmp_path, reader):
    save(tmp_path, 1, 2, 10)
    assert reader().steps() == [2, 10]
    assert reader().newest() == 10
    learner, _ = reader().restore_learner(template())
    assert learner.count == 10


def test_as_many_are_kept_as_asked_for(tmp_path, reader):
    save(tmp_path, 1, 2, 3, 4, keep=3)
    assert reader().steps() == [2, 3, 4]
    save(tmp_path, 5, keep=1)
    assert reader().steps() == [5]
    save(tmp_path, 6, 7, 8, keep=None)
    assert reader().steps() == [5, 6, 7, 8]


def test_the_best_one_is_kept_beside_the_newest(tmp_path, reader):
    save(tmp_path, 1, 2, 3, 4, 5, 6, returns={1: 0.1, 2: 0.7, 4: 0.3})
    assert reader().steps() == [2, 5, 6]
    assert reader().best() == (2, 0.7)
    save(tmp_path, 7, 8, 9, returns={7: 0.6, 8: 0.7})  # as after a resume; equal returns: the newer
    assert reader().best() == (8, 0.7)
    assert reader().steps() == [8, 9]


def test_what_was_not_evaluated_is_never_the_best(tmp_path, reader):
    save(tmp_path, 1, 2, 3, returns={1: -5.0, 2: float("nan")})
    assert reader().best() == (1, -5.0)
    assert reader().steps() == [1, 2, 3]
    save(tmp_path / "other", 1, 2, returns={1: float("nan")})
    assert reader(tmp_path / "other").best() is None


@pytest.mark.parametrize("seed", range(3))
def test_what_is_kept_of_random_evaluations(tmp_path, reader, seed):
    random = np.random.default_rng(seed)
    keep, steps = int(random.integers(1, 4)), list(range(1, 9))
    returns = {step: float(random.integers(3)) for step in steps if random.random() < 0.6}
    save(tmp_path, *steps, keep=keep, returns=returns)
    best = max(returns, key=lambda step: (returns[step], step))
    assert reader().best() == (best, returns[best])
    assert reader().steps() == sorted({*steps[-keep:], best})


def test_a_chosen_snapshot_is_found_and_read(tmp_path, reader):
    save(tmp_path, 1, 2, 3, 4, returns={1: 0.5, 4: 0.1})
    found = {"newest": 4, "best": 1, 1: 1, 3: 3, "3": 3, 4: 4}
    assert {which: reader().find(which) for which in found} == found
    for which, step in found.items():
        learner, counters = reader().restore_learner(template(), which)
        assert (learner.count, counters["steps"]) == (step, step)


@pytest.mark.parametrize("which", [2, "2", 0, "wrong", "-1", ""])
def test_another_snapshot_is_refused_with_those_there_are(tmp_path, reader, which):
    save(tmp_path, 1, 2, 3, 4, returns={1: 0.5})
    expected = rf"snapshots holds no snapshot {which!r}: allowed are newest, best, 1, 3, 4\.$"
    with pytest.raises(ValueError, match=expected):
        reader().find(which)


def test_the_best_of_none_that_were_evaluated(tmp_path, reader):
    save(tmp_path, 1, 2)
    expected = r"no snapshot of an evaluation \(--evaluate-every\): allowed are newest, 1, 2\.$"
    with pytest.raises(ValueError, match=expected):
        reader().find("best")


def test_a_damaged_older_one_is_told(tmp_path, reader):
    save(tmp_path, 1, 2, 3, returns={1: 0.5})
    shutil.rmtree(tmp_path / "snapshots" / "1" / "learner")
    with pytest.raises(ValueError, match=r"1 steps is damaged \(.*_METADATA is missing\): no old"):
        reader().restore_learner(template(), "best")
    assert reader().restore_learner(template())[1]["steps"] == 3


def test_a_damaged_evaluation_is_told_to_those_who_want_the_best(tmp_path, reader):
    save(tmp_path, 1, 2, 3, returns={1: 0.5, 2: 0.2})
    path = tmp_path / "snapshots" / "1" / "evaluation.txt"
    path.write_text(path.read_text().replace("0.5", "0.1"))
    with pytest.raises(ValueError, match=r"at 1 steps is damaged \(.*evaluation.txt is not what"):
        reader().find("best")
    assert reader().find("newest") == reader().newest_whole() == 3
    save(tmp_path, 4, keep=1)
    assert reader().steps() == [2, 4]


def test_reading_changes_nothing(tmp_path, reader, contents):
    save(tmp_path, 1, 2)
    unfinished = tmp_path / "snapshots" / "3.orbax-checkpoint-tmp-1"
    unfinished.mkdir()
    (unfinished / "file").write_text("half")
    before = contents(tmp_path)
    snapshots = reader()
    assert snapshots.newest() == 2
    snapshots.restore(template())
    assert contents(tmp_path) == before


def test_what_was_not_finished_is_ignored_and_cleaned(tmp_path):
    save(tmp_path, 1)
    for name in ("3.partial.orbax-checkpoint-tmp-1", "3.partial", "3.orbax-checkpoint-tmp-1"):
        (tmp_path / "snapshots" / name).mkdir()
    assert Snapshots(tmp_path, writable=False).steps() == [1]
    assert numbered_folders.newest_snapshot(tmp_path) == 1
    save(tmp_path, 2)
    assert numbered_folders.newest_snapshot(tmp_path) == 2
    assert sorted(path.name for path in (tmp_path / "snapshots").iterdir()) == ["1", "2"]


def test_nothing_is_printed(tmp_path, capfd, reader):
    save(tmp_path, 1, 2, 3)
    reader().restore(template())
    assert capfd.readouterr() == ("", "")


def test_no_snapshots(tmp_path, reader):
    with pytest.raises(ValueError, match=r"holds no complete snapshot: training was stopped"):
        reader()
    assert numbered_folders.newest_snapshot(tmp_path) is None
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "snapshots").mkdir()
    with pytest.raises(ValueError, match=r"holds no complete snapshot"):
        reader().restore(template())


def test_another_shape_is_refused(tmp_path, reader):
    save(tmp_path, 7)
    with pytest.raises(ValueError, match=r"7 is of another agent, config or version \(.*shape"):
        reader().restore(template(size=4))


def test_another_structure_is_refused(tmp_path, reader):
    save(tmp_path, 7)
    other = template()._replace(params={"other": jax.ShapeDtypeStruct((1,), jnp.float32)})
    with pytest.raises(ValueError, match=r"7 is of another agent, config or version"):
        reader().restore(other)


def largest(directory):
    return max((p for p in directory.rglob("*") if p.is_file()), key=lambda p: p.stat().st_size)


@pytest.mark.parametrize(
    "part", ["learner/_METADATA", "learner/d", "replay/_METADATA", "replay/d", "counters/metadata"]
)
@pytest.mark.parametrize("how", ["truncated", "missing"])
def test_damage_is_told_in_one_sentence(tmp_path, reader, part, how):
    save(tmp_path, 6, 7)
    path = tmp_path / "snapshots" / "7" / part
    path = largest(path) if path.is_dir() else path
    kept = path.read_bytes()[: path.stat().st_size // 2]
    path.unlink()
    if how == "truncated":
        path.write_bytes(kept)
    with pytest.raises(
        ValueError, match=r"newest older one that is whole is at 6 steps, and --resume goes back"
    ) as error:
        reader().restore_learner(template())
    assert str(path) in str(error.value)
    assert reader().restore(template()).counters["steps"] == 6
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 400 + len(str(tmp_path))


@pytest.mark.parametrize("part", ["learner", "replay", "counters"])
def test_a_missing_part_is_told(tmp_path, reader, part):
    save(tmp_path, 7)
    shutil.rmtree(tmp_path / "snapshots" / "7" / part)
    with pytest.raises(
        ValueError, match=r"is damaged .* must be trained again in another directory"
    ):
        reader().restore(template())


def flip(path, bit):
    data = bytearray(path.read_bytes())
    data[bit // 8] ^= 1 << bit % 8
    path.write_bytes(data)


def test_100_of_100_flipped_bits_are_refused(tmp_path, reader):
    save(tmp_path, 5, 6, 7, keep=None)
    flip(largest(tmp_path / "snapshots" / "6" / "learner"), 0)
    files = [path for path in (tmp_path / "snapshots" / "7").rglob("*") if path.is_file()]
    random = np.random.default_rng(0)
    for path in (files[int(i)] for i in random.integers(len(files), size=100)):
        bit = random.integers(8 * path.stat().st_size)
        flip(path, bit)
        snapshots = reader()
        with pytest.raises(ValueError, match=f"{path} is not what .* whole is at 5 steps"):
            snapshots.restore_learner(template())
        assert snapshots.newest_whole() == 5
        first, second = snapshots.passed_over()
        assert "at 6 steps is damaged" in first
        assert second.startswith(f"The snapshot at 7 steps is damaged ({path} is not")
        assert second.endswith(": going back to the one at 5 steps.")
        flip(path, bit)
    assert reader().newest_whole() == 7
    assert reader().passed_over() == []


def test_a_snapshot_without_checksums_does_not_count(tmp_path, reader):
    """A kill after orbax, before the manifest; or another version of retrax."""
    save(tmp_path, 6, 7)
    (tmp_path / "snapshots" / "7" / "manifest.txt").unlink()
    assert reader().newest_whole() == 6
    with pytest.raises(ValueError, match=r"7 steps is damaged \(.*manifest.txt is missing: "):
        reader().restore_learner(template())


@pytest.mark.parametrize("call", ["write_manifest", "rename"])
def test_a_kill_while_saving_leaves_the_older_ones(tmp_path, reader, monkeypatch, call):
    class Killed(BaseException):
        pass

    def kill(*arguments):
        raise Killed

    save(tmp_path, 6, keep=1)
    where = numbered_folders if call == "write_manifest" else numbered_folders.Path
    with monkeypatch.context() as patch:
        patch.setattr(where, call, kill)
        with pytest.raises(Killed):
            save(tmp_path, 7, keep=1)
    assert reader().steps() == [6]
    assert reader().restore(template()).counters["steps"] == 6
    save(tmp_path, 7, keep=1)
    assert reader().steps() == [7]


def test_newer_ones_are_removed_when_a_run_goes_back(tmp_path):
    save(tmp_path, 5, 6, 7, keep=None)
    snapshots = Snapshots(tmp_path, keep=None)
    snapshots.remove_newer(5)
    assert snapshots.steps() == [5]
    snapshots.save(6, make_snapshot(6))
    assert snapshots.newest_whole() == 6
    snapshots.close()


def test_a_further_check_counts_too(tmp_path):
    def also(steps):
        if steps == 7:
            raise ValueError("its checkpoint is missing")

    save(tmp_path, 6, 7)
    snapshots = Snapshots(tmp_path, writable=False, also=also)
    assert snapshots.newest_whole() == 6
    assert "(its checkpoint is missing)" in snapshots.passed_over()[0]
    snapshots.close()


@pytest.mark.parametrize(
    "state", [jax.random.key(5), (), {"key": jax.random.key(5), "empty": ()}, jnp.arange(3)]
)
def test_any_pytree_is_a_learner_or_an_actor(tmp_path, reader, state):
    """A bare key and an empty tuple included."""
    snapshots = Snapshots(tmp_path)
    snapshots.save(1, Snapshot(state, {"rows": np.zeros(1)}, {"steps": 1}, state))
    snapshots.close()
    shapes = jax.eval_shape(lambda: state)
    found = reader().restore(shapes, shapes)
    assert reader().restore_learner(shapes)[1] == {"steps": 1}
    for restored in (found.learner, found.actors, reader().restore_actors(shapes)):
        assert jax.tree.structure(restored) == jax.tree.structure(state)
        chex.assert_trees_all_equal(restored, state)
