"""The evaluator's node by hand."""

import threading

import numpy as np
import pytest
from node_fakes import Counter, DirectPeers, Parameters, acting_agent
from program_configs import make_config

from retrax.agents.base import Decision
from retrax.agents.entry import AgentEntry
from retrax.environments import make
from retrax.evaluation import evaluations
from retrax.evaluation.episodes import EpisodeResults
from retrax.launchpad_programs import evaluator
from retrax.launchpad_programs.evaluator import EvaluatorNode
from retrax.replay.interface import Stopped
from retrax.training.run_config import RunConfig
from retrax.training.snapshots import BestParameters


def exploit(params, state, timestep):
    return Decision(np.int32(1), {"greedy": np.bool_(True), "other": np.bool_(False)}, state)


AGENT = acting_agent(exploit)


@pytest.fixture
def make_node(tmp_path, monkeypatch):
    def make_node(counter, stop=None, modes=(), resumed_at=None):
        entry = AgentEntry(
            name="a", make_agent=None, Config=int, presets={"a": int}, evaluation_modes=modes
        )
        monkeypatch.setattr(RunConfig, "entry", entry)
        environment, parameters = make("catch", seed=1, num_envs=2), Parameters()
        return EvaluatorNode(
            make_config(tmp_path, evaluation_episodes=4, resumed_at=resumed_at),
            AGENT,
            environment,
            parameters,
            DirectPeers(counter),
            stop=stop or threading.Event(),
        )

    return make_node


def reported(counter):
    return [values for _, values in counter.reports if "return" in values]


def test_each_version_is_evaluated_once_and_the_last_one_again_at_the_end(make_node):
    counter = Counter()
    node = make_node(counter)
    node.evaluate()
    node.evaluate()
    assert [(e["version"], e["length"], e["final"]) for e in reported(counter)] == [(7, 9.0, False)]
    counter.phase = "evaluating"
    node.evaluate()
    assert [e["final"] for e in reported(counter)] == [False, True]
    counter.phase = "finished"
    node.evaluate()
    assert len(reported(counter)) == 2


def test_the_last_evaluation_takes_limited_time(make_node, monkeypatch):
    """Of the processor: the others may leave it none for long."""
    monkeypatch.setattr(evaluator, "_FINAL_SECONDS", 0.0)
    counter = Counter()
    counter.phase = "evaluating"
    node = make_node(counter)
    for _ in range(2):  # until the counter has heard it; actor states are donated
        node.evaluate()
    assert reported(counter) == []
    assert counter.reports[-1][1] == {"state": "waiting", "final": True}


def test_modes_that_occurred_are_reported_separately(make_node):
    counter = Counter()
    node = make_node(counter, modes=("greedy", "other"))
    node.evaluate()
    (values,) = reported(counter)
    assert values["metrics"] == {"evaluator_return_greedy": values["return"]}


def test_the_best_parameters_are_kept_with_the_steps_at_which_they_were_fetched(
    make_node, tmp_path, monkeypatch
):
    counter, returns = Counter(), [0.5, 0.25, 0.75]
    counter.phase = "evaluating"  # each step is an evaluation

    def run_episodes(agent, params, environment, **options):
        counter.steps += 7  # while the episodes run
        return EpisodeResults(np.array([returns.pop(0)]), np.array([9]), {}, {})

    monkeypatch.setattr(evaluations, "run_episodes", run_episodes)
    node, best = make_node(counter), BestParameters(tmp_path)
    for steps, expected in ((100, (0.5, 100)), (200, (0.5, 100))):
        counter.steps = steps
        node.evaluate()
        assert best.read()[:2] == expected
    counter.steps = 300
    make_node(counter, resumed_at=250).evaluate()
    assert best.read()[:2] == (0.75, 300)
    make_node(counter)  # which forgets it
    assert not best.exists


class Clock:
    """In place of `time` and of the stop event: waits take no time."""

    def __init__(self):
        self.now, self.rests = 100.0, []

    def monotonic(self):
        return self.now

    process_time = monotonic

    def is_set(self):
        return False

    def wait(self, seconds):
        self.rests.append(seconds)
        self.now += seconds
        return False


@pytest.mark.parametrize(("phase", "share"), [("learning", 0.1), ("evaluating", 1.0)])
def test_an_evaluation_takes_a_tenth_of_the_time_until_the_last_step_is_taken(
    make_node, monkeypatch, phase, share
):
    clock, counter = Clock(), Counter()
    counter.phase = phase
    monkeypatch.setattr(evaluator, "time", clock)
    shares = []

    def run_episodes(agent, params, environment, *, before_step, **options):
        began = clock.now
        for _ in range(1000):
            clock.now += 0.01  # the work of a step
            before_step(None)
            shares.append(0.01 * (len(shares) + 1) / (clock.now - began))
        return EpisodeResults(np.array([1.0]), np.array([9]), {}, {})

    monkeypatch.setattr(evaluations, "run_episodes", run_episodes)
    make_node(counter, stop=clock).evaluate()
    assert shares[-1] == pytest.approx(share, rel=0.05)
    assert max(shares[100:]) == pytest.approx(share, rel=0.2)  # at no time much more
    assert all(seconds <= 0.5 for seconds in clock.rests)  # it notices the end of the run


def test_it_is_stopped_in_the_middle_of_an_episode(make_node):
    stop = threading.Event()
    stop.set()
    with pytest.raises(Stopped, match="in the middle of an episode"):
        make_node(Counter(), stop).evaluate()


def test_its_environments_are_without_switches_for_training_only(tmp_path, monkeypatch):
    asked = {}

    def make_environment(self, **options):
        asked.update(options)
        raise Stopped

    monkeypatch.setattr(RunConfig, "make_environment", make_environment)
    config = make_config(tmp_path, evaluation_episodes=3)
    with pytest.raises(Stopped):
        evaluator.make_evaluator(config, 0, DirectPeers(), stop=threading.Event())
    assert (asked["evaluation"], asked["num_envs"]) == (True, 3)
