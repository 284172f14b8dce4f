"""Sizes of Reactor's features on Pong: `python docs/results/atari/features.py [RUN ...]`.

Over 260 frames of uniform play: the root mean square of each layer's outputs, and their standard
deviation over the frames (the mean of a layer's units). Of runs, or the mean of three new networks.
"""

import sys
from typing import Any

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np

from retrax import environments, load_agent
from retrax.agents.reactor import Config
from retrax.networks import ImageTorso, make_reactor_network

PONG = "ALE/Pong-v5,repeat_action_probability=0.25,max_noops=0"
SKIPPED, FRAMES, SEEDS = 100, 260, 3


class NormedTorso(ImageTorso):
    """Reactor's torso, with a LayerNorm after it."""

    def __call__(self, images: jax.Array) -> jax.Array:
        """`[T, height, width, channels]` -> `[T, D]`."""
        return hk.LayerNorm(-1, create_scale=True, create_offset=True)(super().__call__(images))


def play() -> tuple[environments.EnvironmentSpec, jax.Array]:
    """The environment's spec, and frames of one episode of uniformly random actions."""
    environment, rng = environments.make(PONG, num_envs=1, seed=0), np.random.default_rng(0)
    environment.reset()
    actions = rng.integers(0, environment.spec.actions.num_values, (SKIPPED + FRAMES, 1), np.int32)
    frames = [np.array(environment.step(action).observation[0]) for action in actions]
    environment.close()
    return environment.spec, jnp.asarray(np.stack(frames[SKIPPED:]))


def sizes(
    spec: Any, frames: jax.Array, config: Config, params: Any = 0, torso: Any = None
) -> dict[str, np.ndarray]:
    """From layer to root mean square and deviation over frames; new weights if a seed is given."""
    network = make_reactor_network(
        spec.observations,
        num_actions=spec.actions.num_values,
        num_atoms=config.num_atoms,
        policy_epsilon=config.policy_epsilon,
        convolutions=config.convolutions,
        shared_size=config.shared_size,
        memory_size=config.memory_size,
        orthogonal_gain=config.orthogonal_gain,
        torso=torso,
    )
    found = {}

    def see(call: Any, arguments: Any, options: Any, context: Any) -> Any:
        outputs = call(*arguments, **options)
        kind = type(context.module).__name__
        if context.method_name == "__call__" and kind in ("Convolution", "Linear", "Memory"):
            found[context.module.name] = outputs[0] if kind == "Memory" else outputs
        return outputs

    params = network.init(jax.random.key(params)) if isinstance(params, int) else params
    state = network.initial_state()
    with hk.intercept_methods(see):
        outputs, _ = network.unroll(params, frames, jnp.zeros(len(frames), bool), state)
    atoms = jnp.linspace(config.vmin, config.vmax, config.num_atoms)
    found["action values"] = jax.nn.softmax(outputs.logits) @ atoms
    flat = {name: np.asarray(x).reshape(len(frames), -1) for name, x in found.items()}
    return {
        name: np.array([np.sqrt(np.mean(x**2)), x.std(axis=0).mean()]) for name, x in flat.items()
    }


def main() -> None:
    """Prints a row for each layer."""
    spec, frames = play()
    new = {
        "Haiku's weights": (Config(), None),
        "orthogonal": (Config(orthogonal_gain=1.41), None),
        "LayerNorm": (Config(), NormedTorso),
    }
    found = {}
    for run in sys.argv[1:]:
        agent = load_agent(run)
        found[run] = [sizes(spec, frames, agent.config.agent_config, agent.params)]
    for name, (config, torso) in new.items() if not found else ():
        found[name] = [sizes(spec, frames, config, seed, torso) for seed in range(SEEDS)]
    for layer in next(iter(found.values()))[0]:
        means = (np.mean([x[layer] for x in each], axis=0) for each in found.values())
        print(layer, *(f"{x:.4f}" for mean in means for x in mean), sep=" | ")


if __name__ == "__main__":
    main()
