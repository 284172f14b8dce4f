import numpy as np
import pytest

from retrax import RunConfig, train
from retrax.environments import make
from retrax.environments.pure_adapters import as_pure
from retrax.testing import check_environment

from .ledge import LEGAL, Ledge


def test_the_mask_tells_the_moves_that_do_not_fall():
    environment = make("grid_worlds:Ledge", num_envs=4)
    check_environment(environment)
    timestep = environment.reset()
    for move in (1, 2, 2, 1, 1, 1, 2, 2, 3, 2, 2, 1, 1):
        mask = timestep.observation[:, -4:]
        np.testing.assert_array_equal(mask, LEGAL[timestep.observation[:, :-4].argmax(1)])
        assert (mask[:, move] == 1).all()
        timestep = environment.step(np.full(4, move))
    assert (timestep.reward == 1).all()
    assert (timestep.discount == 0).all()
    environment.reset()
    assert (environment.step(np.zeros(4, int)).reward == -1).all()
    assert as_pure(Ledge()).spec.masks_actions


@pytest.mark.parametrize("agent", ["acer", "agent57", "reactor"])
def test_no_agent_ever_falls(agent, tmp_path):
    """The least return of an episode, in training and in evaluations, is that of a truncation."""
    config = RunConfig(agent=agent, environment="grid_worlds:Ledge", steps=1500, log_every=100)
    train(config, tmp_path, plain=True)
    rows = (tmp_path / "metrics.csv").read_text().splitlines()
    names = rows[0].split(",")
    returns = [row.split(",")[names.index("episode_return")] for row in rows[1:]]
    found = [float(x) for x in returns if x]
    assert found
    assert min(found) >= 0


def test_the_mask_in_taxis_info_is_put_into_its_observations():
    environment = make("Taxi-v4")
    check_environment(environment, steps=30)
    taxi, timestep = environment._environments[0].unwrapped, environment.reset()
    for _ in range(20):
        state, mask = np.split(timestep.observation[0], [500])
        np.testing.assert_array_equal(mask, taxi.action_mask(state.argmax()))
        timestep = environment.step(mask.argmax()[None])
