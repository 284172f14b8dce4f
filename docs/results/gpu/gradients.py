"""How large ACER's gradients and steps are on Pong: `python docs/results/gpu/gradients.py`.

150 updates of three optimisers on the same 24 batches of a uniform policy's segments. Columns: root
mean squares of a layer's weights, of their gradient and of their step.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from retrax.training import RunConfig
from retrax.training.assembly import make_environments, make_loop

PONG = "ALE/Pong-v5,repeat_action_probability=0.25,max_noops=0"
LAYERS = ("conv2_d_2", "hidden", "q")
OPTIMIZERS = {"paper_atari": {}, "16 times its learning rate": {"learning_rate": 1.12e-2}}
BATCHES, UPDATES = 24, 150


def batches(run: RunConfig) -> tuple:
    """The resolved run, the spec of Pong, and segments of the first policy, nearly uniform."""
    environments = make_environments(run, resumed_at=None)
    run = run.resolve(environments[0].spec)
    replay = dataclasses.replace(run.agent_config.replay, capacity=400, min_rows=6_000)
    run = dataclasses.replace(
        run, agent_config=dataclasses.replace(run.agent_config, replay=replay)
    )
    agent = run.entry.make_agent(environments[0].spec, run.agent_config)
    loop = make_loop(run, agent, environments)
    (local,) = loop.replays
    while local.num_rows < replay.min_rows:
        loop.advance()
    samples = [local.packing.sample(local.draw_now()) for _ in range(BATCHES)]
    drawn = [jax.tree.map(np.asarray, sample) for sample in samples]
    loop.close()
    return run, environments[0].spec, drawn


def size(x: jax.Array) -> float:
    """The root mean square."""
    return float(jnp.sqrt(jnp.mean(jnp.square(x))))


def main() -> None:
    """Prints a line for each optimiser, layer, and the first, 40th and last update."""
    run = RunConfig(agent="acer", environment=PONG, preset="paper_atari", num_envs=16)
    run, spec, drawn = batches(run)
    atari = run.entry.presets["atari"]()
    configs = {name: dataclasses.replace(run.agent_config, **x) for name, x in OPTIMIZERS.items()}
    for name, config in (configs | {"atari": atari}).items():
        agent = run.entry.make_agent(spec, config)
        gradients, apply = jax.jit(agent.gradients), jax.jit(agent.apply)
        state = jax.jit(agent.init)(jax.random.key(5))
        for number in range(UPDATES):
            grads, _ = gradients(state, drawn[number % BATCHES])
            new = apply(state, grads)
            if number in (0, 39, UPDATES - 1):
                for module in grads["network"]:
                    if (layer := module.rsplit("/", 1)[-1]) in LAYERS:
                        old, now = (x.params["network"][module]["w"] for x in (state, new))
                        sizes = size(old), size(grads["network"][module]["w"]), size(now - old)
                        print(name, number + 1, layer, *(f"{x:.1e}" for x in sizes))
            state = new


if __name__ == "__main__":
    main()
