"""Sizes of Reactor's features on Pong: `python docs/results/atari/features.py [RUN ...]`.

Over 260 frames of uniform play: the root mean square of each layer's outputs, and their standard
deviation over the frames (the mean of a layer's units). Of runs, or the mean of three new networks.
"""

import sys
from collections import OrderedDict  # in whose order `jax.lax.scan` returns its entries
from typing import Any

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
from dm_env import StepType
from torsos import NormedTorso

from retrax import environments, load_agent
from retrax.agents.base import Agent
from retrax.agents.reactor import Config, make_agent
from retrax.datatypes import TimeStep
from retrax.networks.memory import Memory
from retrax.networks.reactor import ReactorModule
from retrax.networks.torsos import Convolution

PONG = "ALE/Pong-v5,repeat_action_probability=0.25,max_noops=0"
SKIPPED, FRAMES, SEEDS = 100, 260, 3
LAYERS = Convolution, hk.Linear, Memory, ReactorModule


def play() -> tuple[environments.EnvironmentSpec, jax.Array]:
    """The environment's spec, and frames of one episode of uniformly random actions."""
    environment, rng = environments.make(PONG, num_envs=1, seed=0), np.random.default_rng(0)
    environment.reset()
    actions = rng.integers(0, environment.spec.actions.num_values, (SKIPPED + FRAMES, 1), np.int32)
    frames = [np.array(environment.step(action).observation[0]) for action in actions]
    environment.close()
    return environment.spec, jnp.asarray(np.stack(frames[SKIPPED:]))


def sizes(agent: Agent, params: Any, config: Config, frames: jax.Array) -> dict[str, np.ndarray]:
    """From layer to root mean square and deviation over the frames."""

    def step(state: Any, frame: jax.Array) -> tuple[Any, Any]:
        found = OrderedDict()

        def see(call: Any, arguments: Any, options: Any, context: Any) -> Any:
            outputs = call(*arguments, **options)
            if context.method_name == "__call__" and isinstance(context.module, LAYERS):
                has_state = isinstance(outputs, tuple)
                found[context.module.name] = outputs[0] if has_state else outputs
            return outputs

        timestep = TimeStep(np.int32(StepType.MID), np.float32(0), np.float32(1), frame)
        with hk.intercept_methods(see):
            return agent.exploit(params, state, timestep).state, found

    _, found = jax.lax.scan(step, agent.begin(jax.random.key(0), jnp.int32(0), 1), frames)
    atoms = jnp.linspace(config.vmin, config.vmax, config.num_atoms)
    found["action values"] = jax.nn.softmax(found.pop("reactor_module").logits) @ atoms
    flat = {name: np.asarray(x).reshape(len(frames), -1) for name, x in found.items()}
    return {
        name: np.array([np.sqrt(np.mean(x**2)), x.std(axis=0).mean()]) for name, x in flat.items()
    }


def main() -> None:
    """Prints a row for each layer."""
    spec, frames = play()
    found = {}
    for run in sys.argv[1:]:
        trained = load_agent(run)
        config = trained.config.agent_config
        found[run] = [sizes(trained.agent, trained.params, config, frames)]
    new = {
        "Haiku's weights": (Config(), None),
        "orthogonal": (Config(orthogonal_gain=1.41), None),
        "LayerNorm": (Config(), NormedTorso),
    }
    for name, (config, torso) in new.items() if not found else ():
        agent = make_agent(spec, config, torso=torso)
        states = [agent.init(jax.random.key(seed)) for seed in range(SEEDS)]
        found[name] = [sizes(agent, agent.acting_params(x), config, frames) for x in states]
    for layer in next(iter(found.values()))[0]:
        means = (np.mean([x[layer] for x in each], axis=0) for each in found.values())
        print(layer, *(f"{x:.4f}" for mean in means for x in mean), sep=" | ")


if __name__ == "__main__":
    main()
