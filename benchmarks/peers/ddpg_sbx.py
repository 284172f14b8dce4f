"""The update of SBX's DDPG on resident data; benchmarks/d4pg_beside_sbx.py runs it.

By a Python that has SBX (`pip install sbx-rl`) and nothing of retrax. The first line on standard
input has the sizes, in JSON; each further line asks for one call of `DDPG._train`, and the seconds
per update are printed.
"""

import json
import sys
import time
from importlib import metadata

import gymnasium
import jax
import numpy as np
from sbx import DDPG
from sbx.common.type_aliases import ReplayBufferSamplesNp

SOFT_UPDATE = 0.005  # SBX's default
DISCOUNT = 0.99


class Shapes(gymnasium.Env):
    """Spaces; nothing is ever played."""

    def __init__(self, observation, action):
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (observation,), np.float32)
        self.action_space = gymnasium.spaces.Box(-1.0, 1.0, (action,), np.float32)

    def reset(self, *, seed=None, options=None):
        raise NotImplementedError

    def step(self, action):
        raise NotImplementedError


class Learner:
    """SBX's learner, and the batches of one call."""

    def __init__(self, sizes):
        self._updates, rows = sizes["updates"], sizes["updates"] * sizes["batch"]
        self._model = DDPG(
            "MlpPolicy",
            Shapes(sizes["observation"], sizes["action"]),
            buffer_size=1,
            policy_kwargs={"net_arch": sizes["layers"]},
            seed=0,
        )
        rng = np.random.default_rng(0)
        observations, others = (
            rng.standard_normal((rows, sizes["observation"]), np.float32) for _ in range(2)
        )
        self._data = jax.device_put(
            ReplayBufferSamplesNp(
                observations,
                rng.uniform(-1, 1, (rows, sizes["action"])).astype(np.float32),
                others,
                np.zeros(rows, np.float32),
                rng.random(rows, np.float32),
                np.full(rows, DISCOUNT, np.float32),
            )
        )

    def parameters(self):
        policy = self._model.policy
        trained = policy.actor_state.params, policy.qf_state.params
        return sum(x.size for x in jax.tree.leaves(trained))

    def seconds(self):
        """Seconds per update of one call."""
        model, policy = self._model, self._model.policy
        started = time.perf_counter()
        policy.qf_state, policy.actor_state, model.key, _ = jax.block_until_ready(
            model._train(
                SOFT_UPDATE,
                self._updates,
                self._data,
                model.policy_delay,
                0,
                model.target_policy_noise,
                model.target_noise_clip,
                policy.qf_state,
                policy.actor_state,
                model.key,
            )
        )
        return (time.perf_counter() - started) / self._updates


def main():
    learner = Learner(json.loads(sys.stdin.readline()))
    about = {
        "parameters": learner.parameters(),
        "jax": jax.__version__,
        "sbx": metadata.version("sbx-rl"),
    }
    print(json.dumps(about), flush=True)
    for _ in sys.stdin:
        print(json.dumps(learner.seconds()), flush=True)


if __name__ == "__main__":
    main()
