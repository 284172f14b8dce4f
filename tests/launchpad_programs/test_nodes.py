"""The nodes by hand: no Launchpad, no processes, stand-ins for the other nodes."""

import threading

import dm_env
import numpy as np
import pytest

pytest.importorskip("launchpad", reason="needs the distributed tier (Python 3.10, Linux)")

from retrax.experiments.snapshots import Snapshot, Snapshots
from retrax.launchpad_programs.calls import patient
from retrax.launchpad_programs.nodes import ActorNode, EvaluatorNode, LearnerNode
from retrax.replay.waiting import Stopped

pytestmark = pytest.mark.distributed


class Counter:
    """Grants what it is told to, and remembers what it hears."""

    def __init__(self, grants=()):
        self.grants, self.claims, self.reports = list(grants), [], []
        self.phase, self.started, self.steps = "learning", None, 0

    def start(self, counters, metric_names):
        self.started = (dict(counters), metric_names)

    def claim(self, name, number, taken, values):
        self.arms = [*getattr(self, "arms", []), *values["episodes"].get("arm", [])]
        self.claims.append((number, taken, values["episodes"].get("return", [])))
        return self.grants.pop(0) if self.grants else 0

    def report(self, name, values):
        self.reports.append((name, dict(values)))
        return {"phase": self.phase, "counters": {"steps": self.steps, "episodes": 0}}


class Environments:
    """Two of them, whose episodes have two and three transitions, each with the reward 1."""

    num_envs, lengths, closed = 2, np.array([2, 3]), False

    def reset(self):
        self.times = np.zeros(2, np.int64)
        return self.timesteps()

    def step(self, actions):
        self.times = np.where(self.times == self.lengths, 0, self.times + 1)
        return self.timesteps()

    def timesteps(self):
        kind = np.where(self.times == 0, 0, np.where(self.times == self.lengths, 2, 1))
        reward = np.where(kind == 0, 0.0, 1.0).astype(np.float32)
        return dm_env.TimeStep(kind.astype(np.int32), reward, np.float32(kind != 2), self.times)

    def close(self):
        self.closed = True


class Actor:
    """Writes down the order of its calls."""

    def __init__(self):
        self.calls, self.state, self.episode_extras = "", "begun", {}

    def compile(self, timesteps):
        self.calls += "c"

    def act(self, timesteps):
        self.calls += "a"
        self.state = "acted"
        self.episode_extras = {"arm": [3.0] * int(np.sum(timesteps.step_type == 2))}
        return np.zeros(2, np.int32)

    def update(self):
        self.calls += "u"


class States(list):
    save = list.append


class Client:
    staleness, failures, version, params = 2, 0, 7, None

    def wait(self):
        self.version = 1

    def step(self):
        """Nothing new."""

    def close(self):
        self.closed = True


@pytest.fixture
def stop():
    return threading.Event()


def make_actor(counter, stop, save_every=100):
    actor, states = Actor(), States()
    options = {"states": states, "save_every": save_every, "stop": stop}
    return actor, ActorNode("actor/0", Environments(), actor, Client(), counter, **options)


def test_an_actor_takes_what_it_is_granted_in_all_its_environments(stop):
    counter = Counter(grants=[4, 5])
    actor, node = make_actor(counter, stop)
    stepped = [node.step() for _ in range(10)]
    # Transitions: 2 + 2, and then 1, 1, 2, 1, for an environment that restarts takes none.
    assert [sum(stepped), actor.calls] == [6, "au" * 6]
    assert [claim[1] for claim in counter.claims[:3]] == [0, 4, 5]
    assert [claim[2] for claim in counter.claims[:3]] == [[], [2.0], [3.0, 2.0]]
    assert counter.arms == [3.0] * 3  # each when its last time step was acted on
    numbers = [claim[0] for claim in counter.claims]
    assert numbers == sorted(set(numbers))


def test_an_actor_keeps_its_state_now_and_then_and_at_its_end(stop):
    _, node = make_actor(Counter(grants=[100]), stop, save_every=4)
    kept = []
    for _ in range(5):
        node.step()
        kept.append(len(node._states))
    assert kept == [0, 1, 1, 1, 2]
    node.close()
    assert node._states == ["acted"] * 3


def test_an_actor_that_is_stopped_while_it_writes_ends_well(stop):
    counter = Counter(grants=[100])
    actor, node = make_actor(counter, stop)

    def act(timesteps):
        raise Stopped("while waiting for the queue")

    actor.act = act
    node.run()
    assert actor.calls == "c"
    assert node._environment.closed
    assert node._states == ["begun"]


def test_an_evaluator_that_is_stopped_leaves_its_episode(stop):
    class Endless:
        num_envs = 1

        def __getattr__(self, name):
            return lambda *arguments: None

    counter = Counter()
    node = EvaluatorNode(None, Endless(), Client(), counter, episodes=1, key=None, stop=stop)
    stop.set()
    with pytest.raises(Stopped, match="in the middle of an episode"):
        node._environment.step(np.zeros(1))


class Learner:
    """Counts its updates."""

    def __init__(self):
        self.updates, self.saves = 0, 0

    def compile(self):
        self.updates = 0

    def step(self):
        self.updates += 1

    def look(self):
        return {"loss": 0.5, "updates_per_second": 1.0, "idle_share": float("nan")}

    def save(self):
        self.saves += 1
        array = np.zeros(2, np.float32)
        return Snapshot({"w": array}, {"rows": array}, {"updates": self.updates, "steps": -1})


class Replay:
    num_rows, num_sequences = 10, 9

    def counters(self):
        return {"learning_since": 3}

    def close(self):
        self.closed = True


class Parameters:
    version = 5


@pytest.fixture
def make_learner(tmp_path, stop):
    def make(counter, **options):
        learner = Learner()
        node = LearnerNode(
            learner,
            Replay(),
            Parameters(),
            counter,
            tmp_path,
            metric_names=["loss"],
            counters={},
            snapshot_every=100,
            report_seconds=0.0,
            stop=stop,
            **options,
        )
        return learner, node

    return make


def test_a_learner_reports_and_saves_at_its_steps(make_learner, tmp_path):
    counter = Counter()
    learner, node = make_learner(counter)
    node.start()
    assert counter.started == ({}, ["loss"])
    for counter.steps in (50, 99, 100, 150, 230):
        node.step()
    node.close()
    snapshots = Snapshots(tmp_path, writable=False)
    assert snapshots.steps() == [100, 230]
    snapshots.close()
    assert learner.saves == 2  # not once more at the end: there is one at this step
    reports = [values for _, values in counter.reports if "updates" in values]
    assert reports[1]["updates"] == 2
    assert reports[1]["metrics"] == {"loss": 0.5}
    assert "idle_share" not in reports[1]  # JSON has no NaN


def test_a_learner_stops_while_it_compiles_and_saves_nothing(make_learner, stop, tmp_path):
    learner, node = make_learner(Counter())
    compiling = threading.Event()
    learner.compile = compiling.wait
    threading.Timer(0.2, stop.set).start()
    node.run()
    compiling.set()
    assert learner.saves == 0


def test_what_fails_while_compiling_is_raised(make_learner):
    learner, node = make_learner(Counter())

    def fail():
        raise ValueError("cannot compile")

    learner.compile = fail
    with pytest.raises(ValueError, match="cannot compile"):
        node.run()


class StatusError(Exception):
    """As Courier's error, which cannot be made in Python."""

    class code:  # noqa: N801
        name = "DEADLINE_EXCEEDED"


@pytest.fixture
def no_answer(monkeypatch):
    monkeypatch.setattr("retrax.launchpad_programs.calls.StatusNotOk", StatusError)
    answers = [StatusError(), StatusError(), 3]

    def method():
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    return method


def test_calls_are_repeated_until_they_are_answered(no_answer, stop):
    assert patient(no_answer, "The counter", stop)() == 3


def test_calls_end_with_the_program_and_with_the_patience(no_answer, stop):
    with pytest.raises(TimeoutError, match="The counter gave no answer for 0 s"):
        patient(no_answer, "The counter", stop, patience=0.0)()
    stop.set()
    with pytest.raises(Stopped, match="The counter gave no answer before"):
        patient(no_answer, "The counter", stop)()
