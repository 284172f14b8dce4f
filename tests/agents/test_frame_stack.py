"""Stacks of frames: actors and replays show what the environment's own stacks show."""

import jax
import numpy as np
import pytest
from dm_env import StepType, specs

from retrax.agents import acer
from retrax.agents.frame_stack import stacked_spec
from retrax.datatypes import EnvironmentSpec, rows_of
from retrax.environments import make
from retrax.replay import LocalReplay, ReplayConfig

STACK = 4
GAME = "ALE/Breakout-v5,max_frames=120"
SMALL = {"hidden_size": 8, "convolutions": ((4, 8, 8),), "sequence_length": 6}
REPLAY = ReplayConfig(pace="rounds", on_policy=True, capacity=400, min_rows=1, batch_size=6)


def config(frame_stack):
    return acer.Config(frame_stack=frame_stack, replay=REPLAY, **SMALL)


def test_actors_and_replay_show_what_an_environment_that_stacks_its_frames_shows():
    single, stacking = make(GAME, num_envs=2), make(f"{GAME},frame_stack={STACK}", num_envs=2)
    agents = [
        acer.make_agent(single.spec, config(STACK)),
        acer.make_agent(stacking.spec, config(1)),
    ]
    learners = [jax.jit(agent.init)(jax.random.key(0)) for agent in agents]
    jax.tree.map(np.testing.assert_array_equal, *(jax.tree.map(np.shape, x) for x in learners))
    params = agents[0].acting_params(learners[0])
    replays = [
        LocalReplay(e.spec, agent.sequence, REPLAY, num_envs=2, seed=0)
        for e, agent in zip((single, stacking), agents, strict=True)
    ]
    keys = jax.random.split(jax.random.key(1), 2)
    begin = [jax.jit(jax.vmap(lambda key, agent=a: agent.begin(key, 0, 2))) for a in agents]
    states = [function(keys) for function in begin]
    explore = [jax.jit(jax.vmap(agent.explore, in_axes=(None, 0, 0))) for agent in agents]
    timesteps, ends = [single.reset(), stacking.reset()], 0
    for _ in range(45):
        each = zip(explore, states, timesteps, strict=True)
        decisions = [act(params, state, timestep) for act, state, timestep in each]
        one, other = (jax.device_get((d.action, d.extras)) for d in decisions)
        jax.tree.map(np.testing.assert_array_equal, one, other)
        for replay, timestep in zip(replays, timesteps, strict=True):
            replay.writer([0, 1]).write(rows_of(timestep, *one))
        ends += int(np.sum(timesteps[0].step_type == StepType.LAST))
        states = [decision.state for decision in decisions]
        timesteps = [environment.step(one[0]) for environment in (single, stacking)]
    assert ends == 2
    assert replays[0].nbytes < replays[1].nbytes / 3.5
    for _ in range(4):
        drawn = [replay.packing.sample(replay.draw_now()) for replay in replays]
        assert drawn[0].rows.observation.shape == (6, 6, 84, 84, STACK)
        # The environment's stacks end with the newest frame of the sequence's own episode.
        jax.tree.map(np.testing.assert_array_equal, *drawn)


SPEC = EnvironmentSpec(
    specs.BoundedArray((3,), np.float32, [-1, -2, -3], [1, 2, 3]), specs.DiscreteArray(3)
)


def test_the_spec_of_a_stack_repeats_the_bounds():
    seen = stacked_spec(SPEC, 2).observations
    np.testing.assert_array_equal(seen.maximum, [1, 2, 3, 1, 2, 3])
    np.testing.assert_array_equal(seen.minimum, [-1, -2, -3, -1, -2, -3])
    free = EnvironmentSpec(specs.Array((4, 4, 2), np.float32), specs.DiscreteArray(2))
    assert stacked_spec(free, 3).observations.shape == (4, 4, 6)
    scalar = EnvironmentSpec(specs.Array((), np.float32), specs.DiscreteArray(2))
    with pytest.raises(ValueError, match="frame_stack must be 1 for observations without axes"):
        stacked_spec(scalar, 2)
