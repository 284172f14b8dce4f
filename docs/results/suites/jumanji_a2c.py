"""jumanji's own A2C on Game2048, with its own config: python docs/results/suites/jumanji_a2c.py.

It needs omegaconf. jumanji's loggers import neptune, a service that is not used here.
"""

import sys
import time
import types
from pathlib import Path

import jax
import jax.numpy as jnp

_EPOCHS, _LEARNER_STEPS = 5, 125  # of 1,600 environment steps: 1,000,000 in all


def _replicated(tree: object, devices: list[jax.Device]) -> object:
    return jax.tree.map(lambda x: jnp.stack([x] * len(devices)), tree)


jax.device_put_replicated = _replicated  # jumanji 1.1.2 calls it, and JAX 0.12 has it no more
sys.modules["neptune"] = types.ModuleType("neptune")
sys.modules["neptune"].new = None


def main() -> None:
    """Prints steps per second of each epoch, and the mean return of greedy episodes."""
    import jumanji.training
    from jumanji.training.setup_train import (
        setup_agent,
        setup_env,
        setup_evaluators,
        setup_training_state,
    )
    from omegaconf import OmegaConf

    file = Path(jumanji.training.__file__).parent / "configs" / "env" / "game_2048.yaml"
    config = OmegaConf.create({"agent": "a2c", "seed": 0, "env": OmegaConf.load(file)})
    key, init_key = jax.random.split(jax.random.PRNGKey(config.seed))
    environment = setup_env(config)
    agent = setup_agent(config, environment)
    state = setup_training_state(environment, agent, init_key)

    def epoch(state: object) -> tuple[object, object]:
        return jax.lax.scan(lambda s, _: agent.run_epoch(s), state, None, _LEARNER_STEPS)

    train = jax.pmap(epoch, axis_name="devices")
    sizes = config.env.training
    steps = _LEARNER_STEPS * sizes.n_steps * sizes.total_batch_size
    for number in range(1, _EPOCHS + 1):
        started, processor = time.perf_counter(), time.process_time()
        state, _ = jax.block_until_ready(train(state))
        seconds, processor = time.perf_counter() - started, time.process_time() - processor
        print(f"{number * steps:,} steps: {seconds:.1f} s, {processor:.1f} s of processor time")
    _, greedy = setup_evaluators(config, agent)
    found = greedy.run_evaluation(state.params_state, key)
    print({name: float(jnp.mean(value)) for name, value in found.items()})


if __name__ == "__main__":
    main()
