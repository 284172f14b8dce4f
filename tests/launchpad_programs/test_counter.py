"""The counter: granted steps, phases, rows of metrics.csv, status.json."""

import contextlib
import dataclasses
import importlib
import itertools
import json

import pytest
from node_fakes import Clock, DirectPeers
from program_configs import make_config

from retrax.agents import reactor
from retrax.basics.files import write_json
from retrax.evaluation.suites import read_rows
from retrax.launchpad_programs import counter as counter_module
from retrax.launchpad_programs.config import RESTARTS, STATUS, read_json
from retrax.launchpad_programs.counter import Counter
from retrax.launchpad_programs.kinds import program_columns
from retrax.replay.interface import REAL
from retrax.training.run_config import RunConfig


@pytest.fixture
def make_counter(monkeypatch, tmp_path):
    """Makes counters, opens them for a new run with `names`, and closes their files."""
    counters = []

    def make(seconds=60.0, names=None, clock=REAL, **changes):
        monkeypatch.setattr(counter_module, "_FINAL_SECONDS", seconds)
        monkeypatch.setattr(counter_module, "_STATUS_SECONDS", 0.0)
        counter = Counter(make_config(tmp_path, **changes), DirectPeers(clock=clock))
        counters.append(counter)
        if names is not None:
            counter.open({}, names)
        return counter

    yield make
    for counter in counters:
        with contextlib.suppress(ValueError):  # the test has closed it
            counter.close()


def act(counter, name, number, taken, *, restarts=0, **values):
    """The steps that are granted to an actor."""
    return counter.report(name, (restarts, number), values, taken)["granted"]


NUMBERS = itertools.count()


def report(counter, name, key="phase", **values):
    """The phase, or another part, of the answer to a node that reports under a new number."""
    return counter.report(name, (0, next(NUMBERS)), values)[key]


def steps_in_rows(directory):
    return [int(row["steps"]) for row in read_rows(directory / "metrics.csv")]


def test_nothing_is_granted_before_the_learner_has_started(make_counter):
    """Then a fast actor is granted the steps of a quarter of a second."""
    counter = make_counter()
    assert act(counter, "actor/0", 0, 0) == 0
    assert counter.status()["phase"] == "starting"
    counter.open({}, ["loss"])
    assert act(counter, "actor/0", 1, 0) == 5  # a hundredth, over two actors
    counter = make_counter(steps=1_000_000, names=["loss"])
    rates = enumerate([0.0, 100.0, 2000.0, 1e6])
    grants = [act(counter, "actor/0", number, 0, steps_per_second=rate) for number, rate in rates]
    assert grants == [50, 50, 500, 5000], "a two-hundredth of the run at most"
    act(counter, "actor/0", 0, 5, restarts=1)  # of the next process
    act(counter, "actor/0", 9, 7)  # a late call of the dead one
    assert counter.status()["steps"] == 5


@pytest.mark.parametrize("together", [1, 8])
def test_actors_take_exactly_the_steps_of_the_run(make_counter, together):
    """Or a few more: they take whole steps of all their environments."""
    counter = make_counter(steps=3003, names=[])
    total, grants = 0, {"actor/0": 0, "actor/1": 0}
    for number in range(1000):
        for name, granted in grants.items():
            taken = -(-granted // together) * together
            total += taken
            grants[name] = act(counter, name, number, taken)
            assert grants[name] >= 0
    assert 3003 <= total == counter.status()["steps"] <= 3003 + 2 * (together - 1)
    counter.step()
    assert counter.status()["phase"] == "evaluating"


def test_phases(make_counter, tmp_path):
    """The end waits for the learner's last snapshot, but not for the last evaluation for ever."""
    counter = make_counter(steps=10, names=[])
    seen = [counter.status()["phase"]]
    report(counter, "learner/0", updates=1, learning_since=3)
    seen.append(counter.status()["phase"])
    for number in range(11):
        act(counter, "actor/0", number, min(number, 1))
    report(counter, "evaluator/0", final=True)  # too early to count
    report(counter, "learner/0", final=True)
    for values in ({}, {"final": True}, {"return": 1.0}):
        counter.step()
        seen.append(report(counter, "evaluator/0", **values))
    for final in (False, True):
        report(counter, "learner/0", final=final)
        counter.step()
        seen.append(counter.status()["phase"])
    assert seen == ["collecting", "learning", *["evaluating"] * 4, "finished"]
    counter = make_counter(steps=1, seconds=0.0, names=[])
    for taken in range(2):
        act(counter, "actor/0", taken, taken)
        counter.step()
    counter.step()
    assert not report(counter, "actor/0", "learned")
    assert report(counter, "learner/0", final=True) == "evaluating"
    assert [report(counter, "worker/0", "learned", due=x) for x in (True, False)] == [False, True]
    counter.step()
    assert read_json(tmp_path / STATUS)["phase"] == "finished"


MODES = ("greedy_arm", "sampled_arm")
BANDIT = dataclasses.replace(reactor.AGENT, episode_metrics=("arm",), evaluation_modes=MODES)


def test_rows_by_hand(make_counter, tmp_path, monkeypatch):
    counter = make_counter()
    monkeypatch.setattr(RunConfig, "entry", BANDIT)
    run = make_config(tmp_path).run
    counter.open({}, ["loss", *program_columns(run)])
    act(counter, "actor/0", 0, 0)
    ended = {"return": [1.0, -1.0], "length": [9, 9], "arm": [3.0]}
    act(counter, "actor/0", 1, 60, episodes=ended, staleness=2)
    counter.step()  # no row yet
    for call, updates, weight, loss in ((0, 6, 6, 0.5), (1, 8, 2, 2.5), (1, 8, 2, 2.5)):
        values = {"updates": updates, "learning_since": 50, "metrics": {"loss": loss}}
        counter.report("learner/0", (0, call), {**values, "weight": weight})  # the last is repeated
    metrics = {"evaluator_return_greedy_arm": 0.9}
    report(counter, "evaluator/0", **{"return": 0.75, "metrics": metrics})
    act(counter, "actor/1", 0, 60, episodes={"return": [0.6], "arm": [5.0]}, staleness=4)
    counter.step()
    counter.close()
    (first,) = read_rows(tmp_path / "metrics.csv")
    expected = {
        "steps": "120",
        "episodes": "3",
        "updates": "8",
        "learning_since": "50",
        "episode_return": "0.2",
        "episode_arm": "4.0",
        "loss": "1.0",
        "actor_0_episode_return": "0.0",
        "actor_0_episode_arm": "3.0",
        "actor_1_episode_return": "0.6",
        "actor_1_episode_arm": "5.0",
        "evaluator_return": "0.75",
        "evaluator_return_greedy_arm": "0.9",
        "evaluator_return_sampled_arm": "",
        "parameter_staleness": "3.0",
        "replay_rows": "",
        "node_restarts": "0.0",
    }
    assert {name: first[name] for name in expected} == expected
    status = read_json(tmp_path / STATUS)
    assert status["nodes"]["actor/1"]["return"] == 0.6
    json.dumps(status, allow_nan=False)


LOGGER = """
rows = []

def log(steps, row):
    rows.append((steps, row.get("loss")))
    if steps >= 200:
        return True
    raise RuntimeError("no network")

log.begin = lambda *_: rows.append("begun")
"""


def test_a_users_logger_receives_rows_and_ends_the_program(make_counter, tmp_path, monkeypatch):
    """It fails once, which the launcher is told; calls of nodes are answered beside it."""
    (tmp_path / "my_rows.py").write_text(LOGGER)
    monkeypatch.syspath_prepend(tmp_path)
    counter = make_counter(logger="my_rows:log", search_path=str(tmp_path), names=["loss"])
    act(counter, "actor/0", 0, 0)
    for number, loss in enumerate((0.5, 0.25), start=1):
        report(counter, "learner/0", metrics={"loss": loss})
        act(counter, "actor/0", number, 100)
        counter.step()
        status = counter.status()
        assert status["stop"] == (number == 2)
    assert importlib.import_module("my_rows").rows == ["begun", (100, 0.5), (200, 0.25)]
    (failed, shown), (traceback, hidden) = status["notes"]
    assert "A logger of metrics failed (RuntimeError: no network)" in failed
    assert "no network" in traceback
    assert (shown, hidden) == (False, True)


def test_a_run_that_is_resumed_without_a_snapshot_starts_from_the_beginning(make_counter, tmp_path):
    for taken in (150, 110):
        counter = make_counter(names=["loss"])
        act(counter, "actor/0", 0, 0)
        act(counter, "actor/0", 1, taken)
        counter.step()
        counter.close()
    assert steps_in_rows(tmp_path) == [110]


def test_a_resumed_run_continues_counting(make_counter, tmp_path, caplog):
    """Without metrics it starts them again."""
    counter = make_counter(names=["loss"])
    for number in range(40):
        act(counter, "actor/0", number, 10)
        counter.step()
    counter.close()
    kept = {"steps": 200, "episodes": 3, "updates": 40, "learning_since": 50, "seconds": 9.5}
    counter = make_counter()
    counter.open(kept, ["loss"])
    status = counter.status()
    assert status == status | kept | {"seconds": pytest.approx(9.5, abs=1.0)}
    act(counter, "actor/0", 0, 0)
    act(counter, "actor/0", 1, 100)
    counter.step()
    counter.close()
    steps = steps_in_rows(tmp_path)
    assert steps == sorted(steps)
    assert steps[-1] == 300
    counter = make_counter(steps=150)  # fewer than before, of which none is lost
    counter.open(kept | {"steps": 300}, ["loss"])
    counter.close()
    assert steps_in_rows(tmp_path) == steps
    (tmp_path / "metrics.csv").unlink()
    counter = make_counter()
    counter.open(kept, ["loss"])
    counter.close()
    assert steps_in_rows(tmp_path) == [200]
    assert f"{tmp_path / 'metrics.csv'} was missing or empty" in caplog.text


@pytest.mark.parametrize("restarts", [0, 1])
def test_restored_counts_are_no_rate(make_counter, restarts):
    """A resumed program takes ten steps a second, and a learner that dies updates again."""
    clock = Clock(100.0)
    counter = make_counter(steps=2_000_000, clock=clock)
    counter.step()
    clock.now += 1.0
    counter.open({"steps": 1_000_000, "updates": 5000}, [])
    if restarts:
        counter.step()
        counter = make_counter(steps=2_000_000, clock=clock, restarts=1)
    for number, updates in enumerate([5000, 5004, 5008, 5012, 4800, 4804, 4808]):
        act(counter, "actor/0", number, 10 if number else 0)
        report(counter, "learner/0", updates=updates)
        counter.step()
        status = counter.status()
        assert status["steps_per_second"] == pytest.approx(10.0 if number else 0.0)
        assert status["updates_per_second"] in (0.0, pytest.approx(4.0))
        clock.now += 1.0
    assert status["eta_seconds"] == pytest.approx(99_994.0)


def test_a_restarted_counter_continues(make_counter, tmp_path):
    counter = make_counter(steps=20)
    counter.open({"steps": 3, "seconds": 9.5}, ["evaluator_return", "node_restarts"])
    act(counter, "actor/0", 0, 0)
    act(counter, "actor/0", 1, 1)
    report(counter, "learner/0", updates=7, learning_since=2)
    report(counter, "evaluator/0", **{"return": 0.25})
    counter.step()  # and dies
    write_json(tmp_path / RESTARTS, {"counter/0": 1, "learner/0": 2})
    counter = make_counter(steps=20, restarts=1)
    counter.open({"steps": 0}, [])  # of a learner that was restarted too: ignored
    status = counter.status()
    assert status["nodes"]["learner/0"]["state"] == "starting again"
    assert status == status | {"phase": "learning", "steps": 4, "updates": 7, "learning_since": 2}
    assert status["seconds"] >= 9.5
    assert act(counter, "actor/0", 1, 1) == 1  # answered before
    assert counter.status()["steps"] == 4
    total, number = 4, 2
    while granted := act(counter, "actor/0", number, 1):
        assert granted == 1
        number, total = number + 1, total + 1
    assert total + 1 == counter.status()["steps"] == 20
    counter.close()
    last = read_rows(tmp_path / "metrics.csv")[-1]
    assert (last["evaluator_return"], last["node_restarts"]) == ("0.25", "3.0")
    counter = make_counter(steps=20)  # of a run that was stopped in the last evaluation
    counter.open({"steps": 20}, ["evaluator_return", "node_restarts"])
    report(counter, "evaluator/0", **{"return": 0.5})
    counter.close()
    assert read_rows(tmp_path / "metrics.csv")[-1]["evaluator_return"] == "0.5"


def test_states_of_actors_are_kept_in_the_run_directory(make_counter, tmp_path):
    counter = make_counter()
    assert counter.kept(1) is None
    counter.keep(1, b"first")
    counter.keep(1, b"second")
    counter.keep(0, b"other")
    restarted = make_counter(restarts=1)
    assert (restarted.kept(1), restarted.kept(0)) == (b"second", b"other")
    assert sorted(path.name for path in (tmp_path / "actors").iterdir()) == ["0.npz", "1.npz"]
    (tmp_path / "actors" / "1.npz").write_bytes(b"damaged")
    with pytest.raises(ValueError, match=r"1\.npz is not what was written"):
        counter.kept(1)
