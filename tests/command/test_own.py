"""Agents and environments of one's own: two files in a directory, and the same commands."""

import json
import os
import re
import sysconfig
from pathlib import Path

import average_agent
import gymnasium
import pytest
from benchmark_modules import forget
from fresh_python import run_python

import retrax

AGENTS = (
    Path(average_agent.__file__).read_text()
    + """


def make_counting_agent(spec, config, *, step=1, more=0):
    agent = make_agent(spec, config)

    def gradients(state, sample):
        errors, update = agent.gradients(state, sample)
        return errors, update._replace(priorities=jnp.ones(sample.weights.shape[0] + more))

    def apply(state, gradients):
        return agent.apply(state, gradients)._replace(applied=state.applied + step)

    changes = {"gradients": gradients, "apply": apply}
    return agent._replace(acting_params=lambda state: state.applied, **changes)


RANDOM = dataclasses.replace(
    ENTRY, name="random", make_agent=make_counting_agent, default_steps=lambda *_: 300
)
FASTER = RANDOM.override("faster", step=2)
TOO_MANY = RANDOM.override("too_many", more=1)
NUMBER = 3


def key():
    return {}["x"]

def late():
    return hk.Sequential([hk.Flatten(), hk.Linear("32")])

def norm():
    return hk.Sequential([hk.Flatten(), lambda x: hk.BatchNorm(True, True, 0.9)(x, True)])

def ends():
    raise SystemExit(3)

def broken_agent(spec, config):
    return ENTRY.make_agent(spec, config)._replace(begin=lambda *_: 1 // 0)
import haiku as hk
from retrax.agents import acer, reactor
KEY, LATE = acer.AGENT.override("key", torso=key), reactor.AGENT.override("late", torso=late)
NORM, ENDS = acer.AGENT.override("norm", torso=norm), acer.AGENT.override("ends", torso=ends)
NETWORK = reactor.AGENT.override("network", network=3)
BROKEN = dataclasses.replace(ENTRY, name="broken", make_agent=broken_agent)
"""
)

ENVIRONMENTS = '''
"""A corridor, as a Gymnasium environment, registered and as a class."""

import gymnasium
import numpy as np


class Corridor(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(0.0, 1.0, (3,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, length=5):
        self._length = length

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._at = 0
        return self._observe(), {}

    def step(self, action):
        self._at += int(action)
        ended = self._at == self._length
        return self._observe(), float(ended), ended, False, {}

    def _observe(self):
        return np.full(3, self._at / self._length, np.float32)


gymnasium.register("MyEnv-v0", entry_point=Corridor, max_episode_steps=20)
print("imported")
'''


@pytest.fixture
def scratch(own_modules):
    """A directory with both files, which is the current one and not on any path."""
    (own_modules / "my_agents.py").write_text(AGENTS)
    (own_modules / "my_envs.py").write_text(ENVIRONMENTS)
    yield own_modules
    gymnasium.registry.pop("MyEnv-v0", None)


def succeeds(*arguments, cwd):
    """The installed command in a process of its own, which finds no module by PYTHONPATH."""
    script = Path(sysconfig.get_path("scripts")) / "retrax"
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    # A checkout that is not the installed one is found through PYTHONPATH by its own tests.
    if "PYTHONPATH" in os.environ:
        kept["PYTHONPATH"] = str(Path(retrax.__file__).parents[1])
    return run_python(script, *arguments, cwd=cwd, env=kept)


def test_train_evaluate_resume_plot(scratch, retrax, monkeypatch, tmp_path_factory):
    run = scratch / "run"

    def told(*arguments):
        status, out, err = retrax(*arguments)
        assert status == 0, err
        return out

    names = "my_agents:RANDOM --environment my_envs:MyEnv-v0"
    start = f"train {names} --agent.rate 0.5 --run-directory run".split()
    assert "--agent.rate" in told("train", "my_agents:FASTER", "--help")
    succeeds(*start, "--num-envs", 2, cwd=scratch)
    config = json.loads((run / "config.json").read_text())
    assert (config["agent"], config["environment"]) == ("my_agents:RANDOM", "my_envs:MyEnv-v0")
    assert (config["steps"], config["agent_config"]["rate"]) == (300, 0.5)
    assert config["search_path"] == str(scratch)
    # The run remembers where its modules are.
    gymnasium.registry.pop("MyEnv-v0", None)
    forget(scratch)
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    assert json.loads(told("evaluate", run, "--episodes", 3, "--json"))["steps"] == 300
    next_ = f"Run in {run}. Next: retrax evaluate {run}; retrax plot {run}\n"
    assert told("train", "--resume", run, "--steps", 340) == next_
    assert told("plot", run, "--window", 2, "--output", "curves.png") == "curves.png\n"
    assert Path("curves.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
@pytest.mark.distributed
def test_launch_and_resume(scratch, tmp_path_factory):
    pytest.importorskip("launchpad", reason="needs the distributed tier (Python 3.10, Linux)")
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    start = ("launch", "my_agents:RANDOM", "--environment", "my_envs:Corridor,length=4")
    succeeds(*start, "--num-actors", 2, "--run-directory", "run", "--plain", cwd=scratch)
    succeeds("launch", "--resume", scratch / "run", "--steps", 350, "--plain", cwd=elsewhere)
    found = succeeds("evaluate", scratch / "run", "--episodes", 3, "--json", cwd=elsewhere)
    assert json.loads(found)["steps"] >= 350


@pytest.mark.parametrize(
    ("agent", "sentence"),
    [
        ("my_agents:NOTHING", "module 'my_agents' has no attribute 'NOTHING'; its agents are"),
        ("my_agents:NUMBER", "my_agents:NUMBER must be an AgentEntry; its type is int"),
        ("my_agent:RANDOM", "module 'my_agent' cannot be imported"),
        ("broken:RANDOM", "module 'broken' cannot be imported"),
        ("my_agents:TOO_MANY", "Agent.gradients: priorities must"),
        ("my_agents:KEY", "my_agents:KEY fails: KeyError: 'x' ({}:return {)"),
        ("my_agents:LATE", "concrete values of integer type, got [50, '32'] ({}:def late)"),
        ("my_agents:NORM", "hk.LayerNorm needs neither ({}:def norm)"),
        ("my_agents:ENDS", "my_agents:ENDS called sys.exit(3) ({}:raise SystemExit)"),
        ("my_agents:NETWORK", "my_agents:NETWORK fails: AttributeError: 'int' object has no att"),
        ("my_agents:BROKEN", "ZeroDivisionError: integer division or modulo by zero ({}:1 // 0)"),
    ],
)
@pytest.mark.parametrize("verb", ["train", "launch"])
def test_a_wrong_agent_is_one_sentence_and_nothing_is_written(
    scratch, refused, verb, agent, sentence
):
    (scratch / "broken.py").write_text("raise RuntimeError('no good')\n")
    threads = ("--engine", "threads") if verb == "launch" else ()
    sentence, _, line = sentence.partition("({}:")
    if line:  # what stands in the named line of the file
        lines = [n for n, text in enumerate(AGENTS.splitlines(), 1) if line[:-1] in text]
        sentence += f"({scratch / 'my_agents.py'}, line {lines[0]})"
    assert sentence in refused(verb, agent, "--environment", "catch", *threads)


RUN = retrax.RunConfig(agent="reactor", environment="catch")


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: retrax.plot("runs/x"), "runs must be a list of paths, got 'runs/x'."),
        (lambda: retrax.plot([3]), "runs must be a list of paths, got [3]."),
        (lambda: retrax.plot(["x"], metric=3), "metric must be text, got 3."),
        (lambda: retrax.plot(["x"], window=2.5), "window must be an integer >= 1, got 2.5."),
        (lambda: retrax.evaluate(None), "run must be a path, got None."),
        (lambda: retrax.evaluate("x", episodes=2.5), "episodes must be an integer >= 1, got 2.5."),
        (lambda: retrax.evaluate("x", starts="noop"), "starts must be a list of texts, got 'noop'"),
        (lambda: retrax.evaluate("x", snapshot=2.5), "snapshot must be an integer or text, got 2."),
        (lambda: retrax.export("x", "y", platforms="cpu"), "platforms must be a list of texts, go"),
        (lambda: retrax.train({}), "config must be of type RunConfig, got {}."),
        (lambda: retrax.train(RUN, 3), "directory must be a path or None, got 3."),
        (lambda: retrax.train(RUN, plain=1), "plain must be True or False, got 1."),
        (lambda: retrax.train(RUN, on_metrics=3), "on_metrics must be a function of steps and"),
        (lambda: retrax.train(RUN, data=3), "data must be an iterable or None, got 3."),
        (lambda: retrax.train(RUN, resume=True), "directory must be the run's if resume is True"),
        (lambda: retrax.launch(RUN, engine="ray"), "engine must be of type EngineOptions, got 'ra"),
    ],
)
def test_arguments_of_wrong_types_are_one_sentence(tmp_path, monkeypatch, call, sentence):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}"):
        call()
    assert list(tmp_path.iterdir()) == []
