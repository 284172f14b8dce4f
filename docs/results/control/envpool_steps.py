"""EnvPool's control suite beside dm_control's: the same steps, and steps per processor second.

From one state, 1,000 random actions are given to both. Then eight environments take 3,000 steps
each on one thread, in turn with dm_control's, three times; a ratio is of medians.

    python docs/results/control/envpool_steps.py
"""

import ctypes
import importlib.metadata
import os
import statistics
import time

import numpy as np

from retrax.environments import make
from retrax.environments.mujoco import choose_backend

choose_backend()

import mujoco  # noqa: E402
from dm_control import suite  # noqa: E402
from envpool.mujoco import mujoco_dmc_envpool  # noqa: E402

# MuJoCo's positions and velocities, by task, from an observation that has all of them.
STATES = {
    "cheetah-run": lambda seen: ([0.0, *seen[:8]], seen[8:]),
    "ball_in_cup-catch": lambda seen: (seen[:4], seen[4:]),
    "cartpole-swingup": lambda seen: ([seen[0], np.arctan2(seen[2], seen[1])], seen[3:]),
    "pendulum-swingup": lambda seen: ([np.arctan2(seen[1], seen[0])], seen[2:]),
    "hopper-hop": lambda seen: ([0.0, *seen[:6]], seen[6:13]),
}
TIMED = ("cheetah-run", "walker-run", "finger-turn_hard", "cartpole-swingup")


def compare(task, state_of):
    """Largest differences of observations and rewards over 100 and 1,000 steps."""
    pool, one = make(f"envpool:{task}", seed=1), suite.load(*task.split("-"))
    began = pool.reset().observation[0]
    one.reset()
    with one.physics.reset_context():
        one.physics.data.qpos[:], one.physics.data.qvel[:] = state_of(began)
    rng, spec, seen, reward = np.random.default_rng(0), pool.spec.actions, 0.0, 0.0
    for step in range(1, 1001):
        action = rng.uniform(spec.minimum, spec.maximum).astype(np.float32)
        found, wanted = pool.step(action[None]), one.step(action)
        flat = np.hstack([*wanted.observation.values()])
        seen = max(seen, np.abs(found.observation[0] - flat).max())
        reward = max(reward, abs(found.reward[0] - wanted.reward))
        assert found.step_type[0] == wanted.step_type
        assert found.discount[0] == wanted.discount
        if step in (100, 1000):
            print(f"{task}, {step} steps: observations {seen:.1e}, rewards {reward:.1e}")


def speed(id, steps=3000):
    """Steps of environments per second of the processor, through retrax."""
    vector = make(id, num_envs=8, seed=1)
    spec = vector.spec.actions
    actions = np.random.default_rng(0).uniform(spec.minimum, spec.maximum, (steps, 8, *spec.shape))
    vector.reset()
    began = time.process_time()
    for each in actions.astype(np.float32):
        vector.step(each)
    return 8 * steps / (time.process_time() - began)


def main():
    """Prints versions, differences and rates."""
    library = ctypes.CDLL(mujoco_dmc_envpool.__file__)
    library.mj_versionString.restype = ctypes.c_char_p
    names = [f"{x} {importlib.metadata.version(x)}" for x in ("envpool", "dm_control")]
    theirs = library.mj_versionString().decode()
    print(*names, f"MuJoCo: EnvPool's {theirs}, dm_control's {mujoco.__version__}", sep=", ")
    for task, state_of in STATES.items():
        compare(task, state_of)
    for task in TIMED:
        ids = (f"envpool:{task},num_threads=1", f"dm_control:{task.replace('-', '/')}")
        rates = [[speed(id) for id in ids] for _ in range(3)]
        pool, other = (statistics.median(each) for each in zip(*rates, strict=True))
        each = ", ".join(f"{one / two:.2f}" for one, two in rates)
        load = f"load {os.getloadavg()[0]:.1f}"
        print(f"{task}: {pool:.0f} and {other:.0f} steps/s, {pool / other:.2f} ({each}), {load}")


if __name__ == "__main__":
    main()
