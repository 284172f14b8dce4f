"""Sizes of a new Reactor's features on Pong: `python docs/results/atari/features.py`.

Over 260 frames of uniform play, the mean of three seeds: the root mean square of each layer's
outputs, and their standard deviation over the frames (the mean of a layer's units).
"""

from typing import Any

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np

from retrax import environments
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


def sizes(spec: Any, frames: jax.Array, seed: int, **changes: Any) -> dict[str, np.ndarray]:
    """From layer to root mean square and deviation over frames, with new weights."""
    config = Config()
    network = make_reactor_network(
        spec.observations,
        num_actions=spec.actions.num_values,
        num_atoms=config.num_atoms,
        policy_epsilon=config.policy_epsilon,
        **changes,
    )
    found = {}

    def see(call: Any, arguments: Any, options: Any, context: Any) -> Any:
        outputs = call(*arguments, **options)
        kind = type(context.module).__name__
        if context.method_name == "__call__" and kind in ("Convolution", "Linear", "Memory"):
            found[context.module.name] = outputs[0] if kind == "Memory" else outputs
        return outputs

    params, state = network.init(jax.random.key(seed)), network.initial_state()
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
    trials: dict[str, dict[str, Any]] = {
        "Haiku's weights": {},
        "orthogonal": {"orthogonal_gain": 1.41},
        "LayerNorm": {"torso": NormedTorso},
    }
    means = {}
    for name, changes in trials.items():
        each = [sizes(spec, frames, seed, **changes) for seed in range(SEEDS)]
        means[name] = {layer: np.mean([x[layer] for x in each], axis=0) for layer in each[0]}
    for layer in means["orthogonal"]:
        print(layer, *(f"{x:.4f}" for name in trials for x in means[name][layer]), sep=" | ")


if __name__ == "__main__":
    main()
