"""Life-long novelty of cells of deep_sea by the visits to them, for windows and learning rates.

Uniform play in eight environments, the predictor of the preset `small` trained on uniform draws
from all steps so far, one update each four steps. Prints a CSV: the mean of min(max(alpha, 1), 5)
over the cells with so many visits before, at so many steps. No values are learned.

Usage: python novelty.py > novelty.csv
"""

import csv
import sys

import jax
import jax.numpy as jnp
import numpy as np
import optax

from retrax.agents.agent57 import novelty
from retrax.environments import make
from retrax.networks import make_agent57_networks

SIZE, ENVS, STEPS, BATCH = 10, 8, 12_000, 320
WINDOWS = (50, 100, 200, 10**9)
RATES = (1e-4, 3e-4, 1e-3)
VISITS = ((0, 0), (1, 2), (3, 10), (11, 30), (31, 100), (101, 10**9))


def play(seed: int) -> np.ndarray:
    """Observations `[T, ENVS, SIZE * SIZE]` of uniform play."""
    environment = make("deep_sea", size=SIZE, num_envs=ENVS, seed=seed)
    rng = np.random.default_rng(seed)
    timestep, seen = environment.reset(), []
    for _ in range(STEPS // ENVS):
        seen.append(timestep.observation)
        timestep = environment.step(rng.integers(2, size=ENVS))
    return np.stack(seen)


def alphas(seen: np.ndarray, rate: float, seed: int) -> np.ndarray:
    """Alpha of every cell by actor 0's moments, `[T, windows, SIZE * SIZE]`."""
    spec = make("deep_sea", size=SIZE).spec
    network = make_agent57_networks(
        spec.observations, num_actions=2, num_arms=8, vector_sizes=(64,), novelty_size=32
    ).novelty
    predictor, random = (network.init(key) for key in jax.random.split(jax.random.key(seed)))
    optimizer, cells = optax.adam(rate, eps=1e-4), jnp.eye(SIZE * SIZE)
    flat = jnp.asarray(seen).reshape(-1, SIZE * SIZE)

    def error(params, observations):
        outputs = (network.apply(part, observations) for part in (params, random))
        return novelty.distillation_error(*outputs)

    def update(carry, key):
        params, state, count = carry
        rows = flat[jax.random.randint(key, (BATCH,), 0, count)]
        grads = jax.grad(lambda p: jnp.mean(error(p, rows)))(params)
        changes, state = optimizer.update(grads, state)
        return (optax.apply_updates(params, changes), state, count), None

    def step(carry, inputs):
        params, state, moments = carry
        now, key, t = inputs
        errors = error(params, now[:1])[0]  # of actor 0

        def judge(kept, window):
            _, kept = novelty.modulator(kept, errors, window, True)
            return kept, jax.vmap(lambda e: novelty.modulator(kept, e, window, True)[0])(
                error(params, cells)
            )

        moments, found = jax.vmap(judge)(moments, jnp.array(WINDOWS))
        keys = jax.random.split(key, ENVS // 4)
        (params, state, _), _ = jax.lax.scan(update, (params, state, (t + 1) * ENVS), keys)
        return (params, state, moments), found

    length = len(seen)
    inputs = (jnp.asarray(seen), jax.random.split(jax.random.key(seed + 1), length))
    moments = jax.tree.map(lambda x: jnp.broadcast_to(x, (len(WINDOWS),)), novelty.init())
    carry = (predictor, optimizer.init(predictor), moments)
    return np.asarray(
        jax.jit(jax.lax.scan, static_argnums=0)(step, carry, (*inputs, jnp.arange(length)))[1]
    )


def main() -> None:
    """Prints the CSV."""
    table = csv.writer(sys.stdout, lineterminator="\n")
    table.writerow(["seed", "learning_rate", "window", "steps", "least_visits", "cells", "alpha"])
    for seed in range(3):
        seen = play(seed)
        visits = np.cumsum(seen.sum(axis=1), axis=0)
        reachable = np.tril(np.ones((SIZE, SIZE))).astype(bool).reshape(-1)
        for rate in RATES:
            found = np.clip(alphas(seen, rate, seed), 1, 5)
            for steps in (1_000, 3_000, 6_000, 12_000):
                t = steps // ENVS - 1
                for index, window in enumerate(WINDOWS):
                    for least, most in VISITS:
                        those = (visits[t] >= least) & (visits[t] <= most) & reachable
                        if those.any():
                            mean = f"{found[t, index, those].mean():.3f}"
                            table.writerow([seed, rate, window, steps, least, those.sum(), mean])


if __name__ == "__main__":
    main()
