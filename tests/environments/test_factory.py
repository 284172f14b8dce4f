import sys

import pytest
from fresh_python import run_python
from scripted import played

from retrax.environments import known_environments, make
from retrax.environments.pure_tasks import PureCatch, PureMemory
from retrax.environments.suites import SUITES

OURS = ["catch", "memory", "deep_sea", "noisy_deep_sea"]
KINDS = [*OURS, "CartPole-v1", "ALE/Pong-v5"]


def test_ids_choose_the_class_and_switches_reach_it():
    assert make("catch").pure == PureCatch()
    assert make("deep_sea,size=4", screen=3, size=5).spec.observations.shape == (5 * 5 + 3,)
    memory = make("memory", length=2)
    assert memory.pure == PureMemory(2)
    assert [int(step.step_type[0]) for step in played(memory, 3)] == [0, 1, 1, 2]
    # Sutton and Barto pay nothing until the pole falls, which is cut off.
    steps = played(make("CartPole-v1", max_episode_steps=3, sutton_barto_reward=True), 3)
    fields = [(int(step.step_type[0]), step.reward[0], step.discount[0]) for step in steps]
    assert fields == [(0, 0, 1), (1, 0, 1), (1, 0, 1), (2, 0, 1)]
    atari = make("ALE/MsPacman-v5", full_action_set=True, frame_stack=4)
    assert atari.spec.actions.num_values == 18
    assert atari.spec.observations.shape == (84, 84, 4)


def test_atari_is_drawn_in_colour_unless_a_switch_is_of_the_vector_alone():
    def shape(**switches):
        environment = make("ALE/Pong-v5", **switches)
        environment.reset()
        return environment.render().shape

    assert shape(render=True, frame_stack=2) == (210, 160, 3)
    assert shape(render=True, repeat_action_probability=0.25) == shape() == (336, 336, 3)


def test_known_environments_are_all_of_them_once():
    known = known_environments()
    assert {*KINDS, "ALE/MontezumaRevenge-v5"} <= set(known)
    assert len(set(known)) == len(known)
    # What ale-py registers with Gymnasium depends on who imported it; what we list does not.
    assert not any("NoFrameskip" in id for id in known)


@pytest.mark.parametrize(
    ("id", "nearest"),
    [
        ("Catch", "catch"),
        ("pong", "ALE/Pong-v5"),
        ("ALE/MsPacMan-v5", "ALE/MsPacman-v5"),
        ("ALE/Pong-v4", "ALE/Pong-v5"),
        ("PongNoFrameskip-v4", "ALE/Pong-v5"),
        ("dm_control:cartpole/swingp", "dm_control:cartpole/swingup, "),
        ("dm_control:Humanoid/walk", "dm_control:humanoid/walk, "),
        ("dm_control:cartpole", "dm_control:cartpole/"),
    ],
)
def test_unknown_ids_are_refused_with_the_nearest(id, nearest):
    if id.startswith("dm_control"):
        pytest.importorskip("dm_control", reason="the mujoco extra is not installed")
    with pytest.raises(ValueError, match=f"unknown environment '{id}' \\(did you .*{nearest}"):
        make(id)


def test_an_id_like_no_other_is_refused_with_the_way_to_the_list():
    with pytest.raises(ValueError, match=r"unknown environment 'zzzzzz': see known_environments"):
        make("zzzzzz")


MUJOCO = r'needs .*, which is .*: pip install "retrax\[mujoco\]"'
FLAX = "^phys2d/CartPole-v1 cannot be made: it needs the module flax, .*: pip install flax$"


@pytest.mark.parametrize(
    ("missing", "again", "id", "message"),
    [
        ("dm_control", "dm_control", "dm_control:cartpole/swingup", MUJOCO),
        ("mujoco", "dm_control", "dm_control:cartpole/swingup", MUJOCO),
        ("mujoco", "gymnasium.envs.mujoco", "HalfCheetah-v5", MUJOCO),
        ("flax", "gymnasium.envs.phys2d", "phys2d/CartPole-v1", FLAX),
        ("minatar.gym", None, "MinAtar/Asterix-v1", r'minatar.gym, .* "retrax\[minatar\]"'),
        ("envpool", None, "envpool:cheetah-run", r'envpool, .* "retrax\[envpool\]"$'),
        *((x, None, f"{x}:a", f"^{x}:a cannot .* .retrax.{x}..$") for x in ("bsuite", *SUITES)),
    ],
)
def test_what_is_not_installed_is_named(monkeypatch, missing, again, id, message):
    for name in [name for name in sys.modules if f"{name}.".startswith(f"{again}.")]:
        monkeypatch.delitem(sys.modules, name)  # so that it is imported again
    monkeypatch.setitem(sys.modules, missing, None)  # makes its import fail
    with pytest.raises(ImportError, match=message):
        make(id)
    if again == "dm_control":
        known = known_environments()
        assert "CartPole-v1" in known
        assert not any(id.startswith("dm_control:") for id in known)


def test_what_an_id_does_not_need_is_not_imported():
    """MinAtar's license is another one; the others take long."""
    code = (
        "import sys; from retrax.environments import make\n"
        "make('catch').reset()\n"
        "print({'gymnasium', 'ale_py', 'dm_control', 'mujoco', 'minatar'} & sys.modules.keys())\n"
        "make('CartPole-v1').reset()\n"
        "print({'gymnasium', 'minatar'} & sys.modules.keys())"
    )
    assert run_python("-c", code) == "set()\n{'gymnasium'}\n"
