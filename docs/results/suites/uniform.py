"""Mean returns of uniform play over legal actions: python docs/results/suites/uniform.py ID [SEED].

The first episode of each of 100 environments is played to its end.
"""

import sys

import numpy as np
from dm_env import specs

from retrax.environments import make
from retrax.evaluation import mean_and_interval

_EPISODES = 100


def returns(id: str, seed: int) -> np.ndarray:
    """The return of each environment's first episode."""
    environments, generator = make(id, num_envs=_EPISODES, seed=seed), np.random.default_rng(seed)
    spec, acts = environments.spec, environments.spec.actions
    timestep, totals, over = environments.reset(), np.zeros(_EPISODES), np.zeros(_EPISODES, bool)
    while not over.all():
        if isinstance(acts, specs.DiscreteArray):
            legal = np.ones((_EPISODES, acts.num_values), bool)
            if spec.masks_actions:  # a vector's last numbers
                legal = timestep.observation[:, -acts.num_values :] > 0.5
                legal |= ~legal.any(axis=1, keepdims=True)  # an episode is over
            actions = np.argmax(generator.random(legal.shape) * legal, axis=1).astype(np.int32)
        else:
            shape = (_EPISODES, *acts.shape)
            actions = generator.uniform(acts.minimum, acts.maximum, shape).astype(np.float32)
        timestep = environments.step(actions)
        totals += np.where(over, 0.0, timestep.reward)
        over |= timestep.last()
    return totals


if __name__ == "__main__":
    mean, low, high = mean_and_interval(returns(sys.argv[1], int([*sys.argv, "0"][2])))
    print(f"{mean:.2f} (95 %: {low:.2f} to {high:.2f}) over {_EPISODES} episodes")
