import numpy as np
import pytest

from retrax.environments import make
from retrax.environments.suites import as_pure
from retrax.testing import check_environment

from . import legal_actions
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


@pytest.mark.slow
@pytest.mark.parametrize(
    ("agent", "where", "environment"),
    [("acer", "process", "taxi"), ("agent57", "process", "ledge"), ("reactor", "device", "ledge")],
)
def test_no_agent_plays_an_illegal_action(agent, where, environment, tmp_path):
    found = legal_actions.play(agent, environment, where, tmp_path / "run", steps=800)
    for taken, illegal in found:
        assert taken >= 800
        assert illegal == 0


@pytest.mark.parametrize("environment", ["ledge", "taxi"])
def test_illegal_actions_are_counted(environment):
    """Those of uniform play, step by step and by the mean return of episodes."""
    illegal = legal_actions.uniform(environment, 60)
    assert 10 < illegal < 60
    assert legal_actions.count(np.array([2, 1, 5]), np.array([-1.5e9, 3.0, np.nan])) == 3
    assert legal_actions.count(400, 4000.0) == 0  # of Game2048


def test_the_mask_in_taxis_info_is_put_into_its_observations():
    environment = make("Taxi-v4")
    check_environment(environment, steps=30)
    taxi, timestep = environment._environments[0].unwrapped, environment.reset()
    for _ in range(20):
        state, mask = np.split(timestep.observation[0], [500])
        np.testing.assert_array_equal(mask, taxi.action_mask(state.argmax()))
        timestep = environment.step(mask.argmax()[None])
