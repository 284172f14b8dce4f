"""One run of Stable Baselines 3 or SBX; benchmarks/peers.py starts it, by a Python that has them.

Standard input: JSON with `module`, `algorithm`, `environment`, `num_envs`, `steps`, `seed`,
`evaluated`, a number of episodes, and `options` of the algorithm, of which ["linear", x] falls from
x to 0 during the run. Standard output: a line of JSON for each training episode: steps, seconds of
learning, return; then the mean return of the evaluated ones, without noise.
"""

import importlib
import json
import sys
import time

from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy


class Episodes(BaseCallback):
    def __init__(self, started):
        super().__init__()
        self._started = started

    def _on_step(self):
        for info in self.locals["infos"]:
            if "episode" in info:
                seconds = time.perf_counter() - self._started
                row = [self.num_timesteps, seconds, float(info["episode"]["r"])]
                print(json.dumps(row), flush=True)
        return True


def _schedule(value):
    """A function of the share of steps that are left, if the option falls linearly."""
    if isinstance(value, list) and value[0] == "linear":
        return lambda left: left * value[1]
    return value


def main():
    given = json.load(sys.stdin)
    algorithm = getattr(importlib.import_module(given["module"]), given["algorithm"])
    environment = make_vec_env(given["environment"], given["num_envs"])
    options = {name: _schedule(value) for name, value in given["options"].items()}
    started = time.perf_counter()
    model = algorithm("MlpPolicy", environment, seed=given["seed"], **options)
    model.learn(given["steps"], callback=Episodes(started))
    mean, _ = evaluate_policy(model, model.get_env(), given["evaluated"], deterministic=True)
    print(json.dumps(float(mean)))


if __name__ == "__main__":
    main()
