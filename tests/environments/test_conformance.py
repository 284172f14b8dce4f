"""What every kind of environment promises: the interface, seeds, ends, states and pictures."""

import gymnasium
import numpy as np
import pytest
from plain_values import same
from stepping import FIRST, LAST, history, normalised, random_actions

from retrax.environments import atari, check_environment, make
from retrax.environments.plain_data import pack, unpack
from retrax.environments.suites import SUITES


def vector(num_envs, seed):
    return gymnasium.make_vec("CartPole-v1", num_envs, "sync", render_mode="rgb_array")


SUITE, LQR, VECTOR = "dm_control:reacher/easy,time_limit=0.5", "dm_control:lqr/lqr_2_1", "vector"
# From an id to the package that it needs.
KINDS = {
    "catch": "jax",
    "CartPole-v1": "gymnasium",
    "Pendulum-v1,max_episode_steps=20": "gymnasium",
    "FrozenLake-v1": "gymnasium",
    "Blackjack-v1": "gymnasium",
    "normalised": "gymnasium",
    VECTOR: "gymnasium",
    "ALE/Pong-v5,max_frames=60,repeat_action_probability=0.25": "ale_py",
    "ALE/Breakout-v5,episodic_life=True,frame_stack=2": "ale_py",
    "Hopper-v5": "mujoco",  # rewards use the position before the step
    "dm_control:finger/turn_hard,time_limit=0.5": "dm_control",  # scalars
    SUITE: "dm_control",  # an episode changes the model
    LQR: "dm_control",  # the seed makes the model
    **{
        f"bsuite:{id}": "bsuite"
        for id in ("catch/0", "cartpole/3", "deep_sea_stochastic/1", "memory_len/2")
    },
    "envpool:finger-turn_hard,max_episode_steps=25": "envpool",
    "MinAtar/Seaquest-v1,use_minimal_action_set=False": "minatar",
    "brax:inverted_pendulum,max_episode_steps=20": "brax",
    "craftax:Craftax-Classic-Symbolic-v1,max_episode_steps=20": "craftax",
    "gymnax:CartPole-v1": "gymnax",
    "jumanji:Maze-v0,time_limit=20": "jumanji",
    "pgx:minatar-breakout": "pgx",
    "xminigrid:MiniGrid-Empty-5x5,max_steps=20": "xminigrid",
}
KIND = pytest.mark.parametrize("id", KINDS)


def made(id, **arguments):
    pytest.importorskip(KINDS[id], reason=f"{id} needs it")
    return make({"normalised": normalised, VECTOR: vector}.get(id, id), **arguments)


@KIND
def test_the_interface(id, caplog):
    environment = made(id, num_envs=2, seed=2)
    actions = random_actions(environment, 2)
    began = environment.step(actions[0])  # without a reset
    assert (began.step_type == FIRST).all()
    if id != LQR and KINDS[id] != "envpool":  # they cannot bear their own bounds
        check_environment(environment, steps=300 if KINDS[id] == "jax" else 60)
        assert "step() must not reset" not in caplog.text
    with pytest.raises(ValueError, match=r"actions must be \[2.*\], got \[2, 7\]"):
        environment.step(np.zeros((2, 7), actions.dtype))
    if actions.ndim == 2:  # another one would hang ale-py's emulator
        count = environment.spec.actions.num_values
        with pytest.raises(ValueError, match=f"action of environment 1 must be 0 to {count - 1}"):
            environment.step(np.array([0, count]))
        with pytest.raises(ValueError, match="actions must be integers, got float64"):
            environment.step(actions[0].astype(float))
    environment.close()
    environment.close()
    for wrong, sentence in (
        ({"num_envs": 0}, "num_envs must be at least 1, got 0"),
        ({"seed": -1}, "seed must not be negative, got -1"),
    ):
        with pytest.raises(ValueError, match=sentence):
            made(id, **wrong)


@KIND
def test_seeds_are_reproducible_and_do_not_depend_on_the_number(id):
    sizes = ((3, 1), (2, 1), (3, 2))
    environments = [made(id, num_envs=number, seed=seed) for number, seed in sizes]
    actions = random_actions(environments[0], 60)
    one, few, other = (history(each, actions[:, : each.num_envs]) for each in environments)
    for name in one:
        np.testing.assert_array_equal(one[name][:, :2], few[name])
    if not id.startswith(("bsuite:deep_sea", "ALE/Breakout")):  # nothing is random in so few steps
        assert (one["observation"] != other["observation"]).any()
        assert (one["observation"][:, 0] != one["observation"][:, 1]).any()
        # Environment 1 of one seed is not environment 0 of the next seed.
        neighbours = (one["observation"][:, 1], other["observation"][:, 0])
        assert (neighbours[0] != neighbours[1]).any() or id == VECTOR


@KIND
def test_the_step_after_a_last_one_ignores_the_action(id):
    one, two = (made(id, num_envs=2, seed=4) for _ in range(2))
    actions, found, wanted = random_actions(one, 120), two.reset(), one.reset()
    for action in actions:
        last = found.step_type == LAST
        other = np.where(last.reshape(-1, *[1] * (action.ndim - 1)), 0, action)
        found, wanted = two.step(other.astype(action.dtype)), one.step(action)
        same(list(map(np.asarray, found)), list(map(np.asarray, wanted)))
        assert ((found.step_type == FIRST) == last).all()


def continued(one, other, *, before, after):
    """Restores a state of one in the other, which has to go on as that one; episodes that end."""
    for environment, steps in ((one, before // 3), (one, before - before // 3), (other, 5)):
        environment.reset()
        for action in random_actions(one, steps):
            environment.step(action)
    state = pack(one.state())
    other.restore(unpack(state))
    same(other.state(), unpack(state))
    ended = 0
    for action in random_actions(one, after, seed=1):
        wanted, found = one.step(action), other.step(action)
        same(list(wanted), list(found))
        ended += (wanted.step_type == LAST).sum()
    same(one.state(), other.state())
    return ended


@KIND
def test_a_restored_environment_goes_on_bit_for_bit(id):
    one, other = (made(id, seed=seed, num_envs=2) for seed in (3, 4))
    one.reset()
    if id == VECTOR or KINDS[id] in ("envpool", "minatar"):
        with pytest.raises(ValueError, match=r"has no state that can be saved|is a minatar\."):
            pack(one.state())
        return
    ended = continued(one, other, before=37, after=60)  # one of two Blackjacks begins
    assert ended > 1 or id in (LQR, "bsuite:cartpole/3"), "whose episodes are long"
    early = made(id, seed=6, num_envs=2)
    one.reset()
    early.restore(unpack(pack(one.state())))  # before the first reset
    same(early.state(), one.state())


def test_atari_games_are_played_again(monkeypatch):
    """Over new games of new seeds, sticky actions and lives."""
    monkeypatch.setattr(atari, "RENEWAL", 100)
    options = "episodic_life=True,repeat_action_probability=0.25,frame_stack=2"
    games = [make(f"ALE/Breakout-v5,{options}", num_envs=2, seed=seed) for seed in (3, 4)]
    assert continued(*games, before=250, after=150) > 2


@KIND
def test_every_kind_draws_itself(id, request):
    if KINDS[id] in ("mujoco", "dm_control"):
        request.getfixturevalue("opengl_works")
    if KINDS[id] in ("bsuite", "minatar", *SUITES):
        pytest.skip("it has no pictures")
    pictures = []
    for _ in range(2):
        environment = made(id, seed=2, render=True)
        environment.reset()
        pictures.append(environment.render())
        environment.close()
    height, width, channels = pictures[0].shape
    assert (height % 2, width % 2, channels) == (0, 0, 3)  # video codecs want even sides
    assert pictures[0].dtype == np.uint8
    assert len(np.unique(pictures[0])) > 1
    if id != VECTOR:
        np.testing.assert_array_equal(*pictures)
