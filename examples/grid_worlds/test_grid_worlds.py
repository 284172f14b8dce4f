import numpy as np
import pytest
from stepping import history, random_actions

from retrax.environments import check_environment, make
from retrax.environments.plain_data import pack, unpack

IDS = ["grid_worlds:RandomCoin,side=3", "grid_worlds:RandomDiscoMaze"]


@pytest.mark.parametrize("id", [*IDS, "grid_worlds:RandomDiscoMaze,pixels=True"])
def test_they_conform(id):
    check_environment(make(id, num_envs=2))


@pytest.mark.parametrize("id", IDS)
def test_seeds_are_reproducible_and_different(id):
    actions = random_actions(make(id, num_envs=4), 100)
    one, two, three = (history(make(id, num_envs=4, seed=s), actions) for s in (1, 1, 2))
    np.testing.assert_array_equal(one["observation"], two["observation"])
    assert (one["observation"] != three["observation"]).any()
    assert (one["observation"][:, 0] != one["observation"][:, 1]).any()


@pytest.mark.parametrize("id", IDS)
def test_a_restored_environment_goes_on_bit_for_bit(id):
    one, other = (make(id, num_envs=2, seed=seed) for seed in (3, 4))
    history(one, random_actions(one, 12))
    other.restore(unpack(pack(one.state())))
    for actions in random_actions(one, 60, seed=1):
        for x, y in zip(one.step(actions), other.step(actions), strict=True):
            assert x.tobytes() == y.tobytes()
