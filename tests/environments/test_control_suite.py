import os
from unittest.mock import Mock

import numpy as np
import pytest
from fresh_python import run_python
from stepping import FIRST, LAST, MID, history, random_actions

from retrax.environments import TimeStep, check_environment, known_environments, make, mujoco
from retrax.environments.arrival import integer_seeds

pytest.importorskip("dm_control", reason="the mujoco extra is not installed")
mujoco.choose_backend()  # dm_control looks once, when it is imported

from dm_control import suite  # noqa: E402

from retrax.environments.dm_env_adapter import ControlSuite, tasks  # noqa: E402

# One for each trouble: plain, scalars, parts with two axes, bounds of their own, OpenGL, repeats.
KINDS = [
    ("cartpole", "swingup", 1),
    ("finger", "turn_hard", 3),
    ("manipulator", "bring_ball", 2),
    ("quadruped", "walk", 1),
    ("lqr", "lqr_2_1", 4),
]


def by_hand(domain, task, seed, actions, time_limit, repeat):
    """dm_control itself, flattening by itself: what its time steps should become."""
    environment = suite.load(
        domain,
        task,
        task_kwargs={"random": seed, "time_limit": time_limit},
        environment_kwargs={"flat_observation": True},
    )
    bounds = environment.action_spec()
    steps = [environment.reset()._replace(reward=0.0)]
    for action in actions:
        action = np.clip(action.astype(np.float64), bounds.minimum, bounds.maximum)
        taken = [environment.step(action)]
        while taken[-1].mid() and len(taken) < repeat:
            taken.append(environment.step(action))
        steps.append(taken[-1]._replace(reward=sum(step.reward or 0 for step in taken)))
    discounts = [1.0 if step.first() else step.discount for step in steps]
    seen = [step.observation["observations"] for step in steps]
    return [step.step_type for step in steps], [step.reward for step in steps], discounts, seen


@pytest.mark.parametrize(("domain", "task", "repeat"), KINDS)
def test_it_equals_dm_control_stepped_by_hand(domain, task, repeat):
    environment = ControlSuite(domain, task, num_envs=2, seed=3, time_limit=0.2, repeat=repeat)
    actions = random_actions(environment, 30)
    found = history(environment, actions)
    assert (found["step_type"] == LAST).any()
    for e, seed in enumerate(integer_seeds(3, 2)):
        wanted = by_hand(domain, task, int(seed), actions[:, e], 0.2, repeat)
        for name, values in zip(TimeStep._fields, wanted, strict=True):
            np.testing.assert_array_equal(found[name][:, e], np.array(values, found[name].dtype))


def test_envpool_takes_the_steps_of_dm_control():
    pytest.importorskip("envpool", reason="the envpool extra is not installed")
    pool, one = make("envpool:cheetah-run", num_envs=2, seed=1), suite.load("cheetah", "run")
    began = pool.reset()
    one.reset()
    with one.physics.reset_context():
        one.physics.data.qpos[1:], one.physics.data.qvel[:] = np.split(began.observation[1], [8])
    for actions in random_actions(pool, 1000):
        *found, seen = (field[1] for field in pool.step(actions))
        wanted = one.step(actions[1])
        numbers = np.hstack([*wanted[:3], *wanted.observation.values()])
        np.testing.assert_allclose([*found, *seen], numbers, atol=1e-5)
    assert wanted.last()


def test_lqr_ends_by_termination():
    environment = make("dm_control:lqr/lqr_2_1", num_envs=2)
    environment.reset()
    physics = environment._environments[1].physics
    with physics.reset_context():  # at rest: the state's norm is 0
        physics.data.qpos[:], physics.data.qvel[:] = 0, 0
    timestep = environment.step(np.zeros((2, 1)))
    np.testing.assert_array_equal(timestep.step_type, [MID, LAST])
    np.testing.assert_array_equal(timestep.discount, [1, 0])
    np.testing.assert_array_equal(environment.step(np.zeros((2, 1))).step_type, [MID, FIRST])


def test_known_environments_list_every_task():
    known = [id for id in known_environments() if id.startswith("dm_control:")]
    assert known == [f"dm_control:{domain}/{task}" for domain, task in suite.ALL_TASKS]


@pytest.mark.slow
@pytest.mark.parametrize("id", tasks())
def test_every_task_can_be_played(id, request):
    if id == "dm_control:quadruped/escape":
        request.getfixturevalue("opengl_works")
    environment = make(id, num_envs=2, seed=1)
    if "lqr" in id:
        found = history(environment, random_actions(environment, 60))
        assert np.isfinite(found["observation"]).all()
    else:
        check_environment(environment, steps=60)
    environment.close()


def test_physics_that_fail_name_environment_and_step(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # MuJoCo writes a log where it is
    environment = ControlSuite("lqr", "lqr_2_1", num_envs=2)
    environment.reset()
    physics = environment._environments[1].physics
    with physics.reset_context():
        physics.data.qvel[:] = 1e12  # MuJoCo bears 1e10
    with pytest.raises(ValueError, match=r"environment 1 failed at step 1: PhysicsError: .*BAD"):
        environment.step(np.zeros((2, 1)))


DRAWING = {
    "disable": [
        "e = make('dm_control:cartpole/balance'); e.reset(); e.step([[0]]); e.render()",
        "e = make('Hopper-v5', render=True); e.reset(); e.step([[0] * 3]); e.render()",
        "make('dm_control:quadruped/escape').reset()",
    ],
    "directx": ["make('dm_control:cartpole/swingup')"],
}


@pytest.mark.parametrize(("backend", "codes"), DRAWING.items(), ids=DRAWING)
def test_without_opengl_everything_but_drawing_works(backend, codes):
    """In a process that chose its OpenGL beforehand."""
    tries = "".join(f"try:\n  {code}\nexcept ImportError as e:\n  print(e)\n" for code in codes)
    program = f"from retrax.environments import make\n{tries}"
    environ = {**os.environ, "MUJOCO_GL": backend}
    output = run_python("-c", program, env=environ, timeout=120)
    said = [line for line in output.splitlines() if line.startswith("MuJoCo cannot draw")]
    assert len(said) == len(codes)
    for line in said:
        assert line.startswith(f"MuJoCo cannot draw with MUJOCO_GL={backend} (")
        assert "MUJOCO_GL=egl before Python starts" in line


def test_another_mujoco_is_named(monkeypatch):
    lacking = AttributeError("'MjModel' object has no attribute 'flex_vertedge'")
    monkeypatch.setattr(suite, "load", Mock(side_effect=lacking))
    with pytest.raises(ValueError, match=r"cannot be made with MuJoCo \d.* \(dm_control needs MuJ"):
        make("dm_control:cartpole/swingup")
