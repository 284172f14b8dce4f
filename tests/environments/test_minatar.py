"""MinAtar's games, by their Gymnasium ids."""

import subprocess
import sys

import gymnasium
import numpy as np
import pytest

import retrax
from retrax.testing import check_environment

pytest.importorskip("minatar", reason="needs the extra minatar")
ALL_ACTIONS = "use_minimal_action_set=False"


@pytest.mark.parametrize(
    ("game", "channels"),
    [("Asterix", 4), ("Breakout", 4), ("Freeway", 7), ("Seaquest", 10), ("SpaceInvaders", 6)],
)
def test_games(game, channels):
    environment = retrax.environments.make(f"MinAtar/{game}-v1,{ALL_ACTIONS}", num_envs=2, seed=3)
    assert environment.spec.observations.shape == (10, 10, channels)
    assert environment.spec.observations.dtype == np.uint8
    assert environment.spec.actions.num_values == 6
    check_environment(environment, steps=30)


def test_a_seed_repeats_the_episodes_and_another_does_not():
    def play(seed):
        environment = retrax.environments.make("MinAtar/Breakout-v1", num_envs=2, seed=seed)
        rng, frames = np.random.default_rng(0), [environment.reset().observation]
        for _ in range(60):
            frames.append(environment.step(rng.integers(3, size=2)).observation)
        return np.stack(frames)

    assert (play(1) == play(1)).all()
    assert (play(1) != play(2)).any()


def test_the_package_is_imported_for_its_ids_alone():
    program = """
import sys
from retrax.environments import make
make("CartPole-v1")
assert "minatar" not in sys.modules
make("MinAtar/Asterix-v1")
assert "minatar" in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_without_the_package_the_error_names_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "minatar.gym", None)
    with pytest.raises(
        ImportError, match=r"MinAtar/Asterix-v1 needs the package minatar \(GPL-3\)"
    ):
        retrax.environments.make("MinAtar/Asterix-v1")


def test_a_game_that_there_is_not():
    with pytest.raises(ValueError, match="MinAtar/Asterisk-v1"):
        retrax.environments.make("MinAtar/Asterisk-v1")
    assert "MinAtar/Asterix-v1" in gymnasium.registry
