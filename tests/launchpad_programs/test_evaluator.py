"""The evaluator's node by hand."""

import dataclasses
import threading

import average_agent
import numpy as np
import pytest
from node_fakes import Clock, Counter, DirectPeers, Parameters, acting_agent
from program_configs import make_config

from retrax.agents.base import Decision
from retrax.environments import make
from retrax.evaluation import evaluations
from retrax.evaluation.evaluations import EpisodeResults
from retrax.launchpad_programs import evaluator
from retrax.launchpad_programs.evaluator import EvaluatorNode
from retrax.replay.interface import REAL, Stopped
from retrax.training.run_config import RunConfig
from retrax.training.snapshots import BestParameters


def exploit(params, state, timestep):
    return Decision(np.int32(1), {"greedy": np.bool_(True), "other": np.bool_(False)}, state)


@pytest.fixture
def make_node(tmp_path, monkeypatch):
    """Makes a node; `episodes(before_step)` may play the episodes: their mean return."""

    def make_node(counter, stop=None, modes=(), resumed_at=None, episodes=None, clock=REAL):
        entry = dataclasses.replace(average_agent.ENTRY, evaluation_modes=modes)
        monkeypatch.setattr(RunConfig, "entry", entry)
        if episodes is not None:

            def run_episodes(agent, params, environment, *, before_step, **options):
                return EpisodeResults(np.array([episodes(before_step)]), np.array([9]), {}, {})

            monkeypatch.setattr(evaluations, "run_episodes", run_episodes)
        config = make_config(tmp_path, evaluation_episodes=4, resumed_at=resumed_at)
        world = acting_agent(exploit), make("catch", seed=1, num_envs=2), Parameters()
        return EvaluatorNode(config, *world, DirectPeers(counter, stop=stop, clock=clock))

    return make_node


def reported(counter):
    return [values for _, values in counter.reports if "return" in values]


def test_each_version_is_evaluated_once_and_the_last_one_again_at_the_end(make_node):
    """Modes that occurred are reported separately."""
    counter = Counter()
    node = make_node(counter, modes=("greedy", "other"))
    node.evaluate()
    node.evaluate()
    (values,) = reported(counter)
    assert (values["version"], values["length"], values["final"]) == (7, 9.0, False)
    assert values["metrics"] == {"evaluator_return_greedy": values["return"]}
    counter.phase, counter.learned = "evaluating", False
    node.evaluate()
    assert len(reported(counter)) == 1, "it waits for the last update"
    counter.learned = True
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


def test_the_best_parameters_are_kept_with_the_steps_at_which_they_were_fetched(
    make_node, tmp_path
):
    counter, returns, best = Counter(), [0.5, 0.25, 0.75], BestParameters(tmp_path)
    counter.phase = "evaluating"  # each step is an evaluation

    def episodes(before_step):
        counter.steps += 7  # while they run
        return returns.pop(0)

    node = make_node(counter, episodes=episodes)
    for steps, expected in ((100, (0.5, 100)), (200, (0.5, 100))):
        counter.steps = steps
        node.evaluate()
        assert best.read()[:2] == expected
    counter.steps = 300
    make_node(counter, resumed_at=250, episodes=episodes).evaluate()
    assert best.read()[:2] == (0.75, 300)
    make_node(counter)  # which forgets it
    assert not best.exists


@pytest.mark.parametrize(("phase", "share"), [("learning", 0.1), ("evaluating", 1.0)])
def test_an_evaluation_takes_a_tenth_of_the_time_until_the_last_step_is_taken(
    make_node, phase, share
):
    clock, counter, shares = Clock(100.0), Counter(), []
    counter.phase = phase

    def episodes(before_step):
        began = clock.now
        for _ in range(1000):
            clock.now += 0.01  # the work of a step
            before_step(None)
            shares.append(0.01 * (len(shares) + 1) / (clock.now - began))
        return 1.0

    make_node(counter, stop=clock, episodes=episodes, clock=clock).evaluate()
    assert shares[-1] == pytest.approx(share, rel=0.05)
    assert max(shares[100:]) == pytest.approx(share, rel=0.2)  # at no time much more
    assert all(seconds <= 0.5 for seconds in clock.waits)  # it notices the end of the run


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
    with pytest.raises(Stopped):
        evaluator.make_evaluator(make_config(tmp_path, evaluation_episodes=3), 0, DirectPeers())
    assert (asked["evaluation"], asked["num_envs"]) == (True, 3)
