"""D4PG's update, as DDPG, beside that of SBX's DDPG, in turns on the same cores.

    python benchmarks/d4pg_beside_sbx.py --sbx PYTHON [--updates 50] [--per-call 8]

PYTHON is the interpreter of an environment that has SBX (`pip install sbx-rl`). Both have a scalar
critic of one-step returns, layers of 400 and 300 units, batches of 256, observations of 17 numbers
and actions of 6, as HalfCheetah's, and as many trained parameters, which is checked; each makes
several updates in a call, on random data that lie in its memory. Drawing them is left out on both
sides. SBX moves its target networks at each update; ours are copied every 100. The last line is the
time of the update's matrix products and activations alone, without losses, Adam and targets: no
library can be faster than that, so SBX / products bounds the ratio.
"""

import argparse
import dataclasses
import pathlib

import jax
import jax.numpy as jnp
from d4pg_step import SPEC, fill, resident_rounds, seconds
from stand_in import StandIn, check_parameters, compare

from retrax.agents.d4pg import Config, make_agent
from retrax.replay import LocalReplay

LIMIT = 1.4
LAYERS = (400, 300)
STAND_IN = pathlib.Path(__file__).parent / "peers" / "ddpg_sbx.py"


def make_config(per_call):
    """DDPG with SBX's network."""
    config = Config(
        critic="scalar",
        n_step=1,
        policy_sizes=LAYERS,
        critic_sizes=LAYERS,
        action_input="concatenated",
    )
    replay = dataclasses.replace(config.replay, updates_per_call=per_call)
    return dataclasses.replace(config, replay=replay)


def resident_sample(agent, config):
    """Random sequences for the updates of one call."""
    replay = LocalReplay(SPEC, agent.sequence, config.replay, num_envs=8, seed=0)
    fill(replay, 4096, agent.sequence.extras)
    return replay.packing.sample(replay.draw_now())


def products(policy, critic, observations, actions):
    """All matrix products of an update of DDPG: gradients of both networks, from linear losses."""

    def layers(params, x):
        *hidden, last = params.values()
        for layer in hidden:
            x = jax.nn.relu(x @ layer["w"])
        return x @ last["w"]

    def values(params, actions):
        return layers(params, jnp.concatenate([observations, actions], axis=1))

    target = values(critic, layers(policy, observations))

    def critic_loss(params):
        return jnp.mean(values(params, actions) * target)

    def policy_loss(params):
        return jnp.mean(values(critic, layers(params, observations)))

    return jax.grad(critic_loss)(critic), jax.grad(policy_loss)(policy)


def seconds_of_products(params, batch, repeats):
    """Median seconds of `products`."""
    keys = jax.random.split(jax.random.key(0))
    observations = jax.random.normal(keys[0], (batch, *SPEC.observations.shape))
    actions = jax.random.normal(keys[1], (batch, *SPEC.actions.shape))
    jitted = jax.jit(products)

    def call():
        jax.block_until_ready(jitted(params.policy, params.critic, observations, actions))

    call()
    return seconds(call, repeats)


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sbx", required=True, metavar="PYTHON", help="a Python with SBX")
    parser.add_argument("--updates", type=int, default=50, help="measured calls of each side")
    parser.add_argument("--per-call", type=int, default=8, help="updates in one call")
    options = parser.parse_args(arguments)
    config = make_config(options.per_call)
    sizes = {
        "observation": SPEC.observations.shape[0],
        "action": SPEC.actions.shape[0],
        "layers": LAYERS,
        "batch": config.replay.batch_size,
        "updates": options.per_call,
    }
    theirs = StandIn(options.sbx, STAND_IN, sizes, "sbx-rl")
    agent = make_agent(SPEC, config)
    learner = jax.jit(agent.init)(jax.random.key(0))
    parameters = sum(x.size for x in jax.tree.leaves(learner.params))
    check_parameters(parameters, theirs)
    print(
        f"jax {jax.__version__}, SBX {theirs.about['sbx']} with jax {theirs.about['jax']}; "
        f"{parameters:,} parameters, {options.per_call} updates in a call"
    )
    sample = resident_sample(agent, config)
    rate = resident_rounds(agent, learner, sample, options.per_call, options.per_call)
    ratio = compare(lambda: 1 / rate(), theirs, options.updates)
    theirs.close()
    verdict = "ok" if ratio >= LIMIT else "MISSED"
    print(f"SBX / retrax {ratio:>8.2f} (limit {LIMIT}: {verdict})")
    alone = seconds_of_products(learner.params, config.replay.batch_size, 4 * options.updates)
    print(f"the products alone {1e3 * alone:>8.2f} ms")


if __name__ == "__main__":
    main()
