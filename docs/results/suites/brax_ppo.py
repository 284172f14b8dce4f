"""brax's own PPO on halfcheetah: python docs/results/suites/brax_ppo.py STEPS EVALUATIONS.

Its hyper-parameters are those of brax's training notebook for halfcheetah; an update takes 327,680
steps. It needs flax.
"""

import sys
import time

import jax
import jax.numpy as jnp


def _replicated(tree: object, devices: list[jax.Device]) -> object:
    return jax.tree.map(lambda x: jnp.stack([x] * len(devices)), tree)


jax.device_put_replicated = _replicated  # brax 0.14.2 calls it, and JAX 0.12 has it no more


def main(steps: int, evaluations: int) -> None:
    """Prints the return and the time of each evaluation."""
    from brax import envs
    from brax.training.agents.ppo import train as ppo

    started = time.perf_counter()

    def progress(step: int, metrics: dict[str, float]) -> None:
        seconds, score = time.perf_counter() - started, metrics["eval/episode_reward"]
        used = f"{seconds:.0f} s, {time.process_time():.0f} s of processor time"
        print(f"{step:,} steps, {used}: return {score:.0f}", flush=True)

    ppo.train(
        environment=envs.get_environment("halfcheetah"),
        num_timesteps=steps,
        num_evals=evaluations,
        reward_scaling=1,
        episode_length=1000,
        normalize_observations=True,
        action_repeat=1,
        unroll_length=20,
        num_minibatches=32,
        num_updates_per_batch=8,
        discounting=0.95,
        learning_rate=3e-4,
        entropy_cost=1e-3,
        num_envs=2048,
        batch_size=512,
        seed=0,
        progress_fn=progress,
    )


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
