import numpy as np
import pytest

from retrax import RunConfig, load_metrics, train
from retrax.environments import make
from retrax.environments.suites import as_pure
from retrax.testing import check_environment

from .ledge import LEGAL, Ledge


def test_the_mask_tells_the_moves_that_do_not_fall():
    environment = make("grid_worlds:Ledge", num_envs=4)
    check_environment(environment)
    timestep = environment.reset()
    for move in (1, 2, 2, 1, 1, 1, 2, 2, 3, 3, 2, 2, 1, 1):
        mask = timestep.observation[:, -4:]
        np.testing.assert_array_equal(mask, LEGAL[timestep.observation[:, :-4].argmax(1)])
        assert (mask[:, move] == 1).all()
        timestep = environment.step(np.full(4, move))
    assert (timestep.reward == 1).all()
    assert (timestep.discount == 0).all()
    environment.reset()
    assert (environment.step(np.zeros(4, int)).reward == -1).all()
    assert as_pure(Ledge()).spec.masks_actions


@pytest.mark.once
@pytest.mark.parametrize("agent", ["acer", "agent57", "reactor"])
def test_no_agent_ever_falls(agent, tmp_path):
    """No mean return, in training and in an evaluation, is below 0: a fall has -1."""
    config = RunConfig(agent=agent, environment="grid_worlds:Ledge", steps=800, log_every=100)
    train(config, tmp_path, plain=True)
    metrics = load_metrics(tmp_path)
    for name in ("episode_return", "evaluation_return"):
        found = metrics[name][~np.isnan(metrics[name])]
        assert len(found)
        assert found.min() >= 0


def test_the_mask_in_taxis_info_is_put_into_its_observations():
    environment = make("Taxi-v4")
    check_environment(environment, steps=30)
    taxi, timestep = environment._environments[0].unwrapped, environment.reset()
    for _ in range(20):
        state, mask = np.split(timestep.observation[0], [500])
        np.testing.assert_array_equal(mask, taxi.action_mask(state.argmax()))
        timestep = environment.step(mask.argmax()[None])
