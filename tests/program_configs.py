"""Configs of small programs."""

import pathlib

import average_agent

from retrax.agents.reactor import AGENT
from retrax.launchpad_programs.config import ProgramConfig
from retrax.training.run_config import RunConfig, WorkerOptions


def make_run(**changes):
    """Reactor on catch, resolved."""
    fields = {
        "agent": "retrax.agents.reactor:AGENT",
        "environment": "catch",
        "preset": "small",
        "steps": 1000,
        "num_envs": 2,
        "num_actors": 2,
        "actor_update_period": 50,
        "snapshot_every": 500,
        "log_every": 100,
        "agent_config": AGENT.presets["small"](),
    }
    return RunConfig(**{**fields, **changes})


def make_workers(**changes):
    """A run of two workers around a parameter server, whose agent NumPy can follow."""
    fields = {
        "agent": "average_agent:ENTRY",
        "preset": "default",
        "agent_config": average_agent.Config(),
        "actor_update_period": None,
        "workers": WorkerOptions(num_workers=2),
        "search_path": str(pathlib.Path(__file__).parent),
    }
    return make_run(**{**fields, **changes})


def make_config(directory, *, resumed_at=None, acme=None, run=None, **changes):
    """A program of it; `changes` are fields of the run, or of the program alone."""
    own = {name: changes.pop(name) for name in ("max_lead", "restarts") if name in changes}
    return ProgramConfig(
        run=run or make_run(**changes), directory=directory, resumed_at=resumed_at, acme=acme, **own
    )
