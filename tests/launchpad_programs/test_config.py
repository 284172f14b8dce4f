"""What a program refuses to run, before any process starts."""

import dataclasses

import pytest

from retrax.agents import acer
from retrax.experiments.config import RunConfig
from retrax.launchpad_programs.config import ProgramConfig


def make_program_config(tmp_path, agent_config):
    run = RunConfig(
        agent="acer",
        environment="catch",
        preset="small",
        steps=10,
        seed=0,
        num_envs=2,
        snapshot_every=5,
        log_every=5,
        agent_config=agent_config,
    )
    return ProgramConfig(run=run, directory=tmp_path)


def test_on_policy_updates_are_refused(tmp_path):
    with pytest.raises(ValueError, match="A program has no queue for on-policy updates yet: give"):
        make_program_config(tmp_path, acer.Config.small())


def test_replay_alone_is_not(tmp_path):
    config = acer.Config.small()
    off_policy = dataclasses.replace(config.replay, on_policy=False)
    make_program_config(tmp_path, dataclasses.replace(config, replay=off_policy))
