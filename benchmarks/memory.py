"""Time of an LSTM's unroll and of its gradients, compared with Haiku's.

    python benchmarks/memory.py [--repeats 20] [--only small]

Both have the same parameters and results; sizes are those of Agent57 and Reactor, of the paper and
`small`.
"""

import argparse
import statistics
import time

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np

from retrax.networks import Memory

SIZES = {  # batch, time, inputs, hidden units
    "agent57 paper_atari, a quarter": (16, 81, 560, 512),
    "reactor paper": (4, 33, 256, 128),
    "agent57 small": (32, 21, 40, 32),
    "reactor small": (16, 17, 64, 32),
}


def haikus(size):
    return lambda inputs, is_first, state: hk.dynamic_unroll(
        hk.ResetCore(hk.LSTM(size)), (inputs, is_first), state
    )


def ours(size):
    return lambda inputs, is_first, state: Memory(size)(inputs, is_first, state)


def gradients_of(unroll, inputs, is_first, size):
    """A jitted function without arguments: gradients by parameters and inputs."""
    network = hk.without_apply_rng(hk.transform(unroll(size)))
    state = hk.LSTMState(np.zeros(size, np.float32), np.zeros(size, np.float32))
    params = network.init(jax.random.key(0), inputs[0], is_first[0], state)

    def loss(params, inputs):
        outputs, _ = jax.vmap(lambda x, y: network.apply(params, x, y, state))(inputs, is_first)
        return jnp.sum(jnp.sin(outputs))

    jitted = jax.jit(jax.grad(loss, argnums=(0, 1)))
    return lambda: jax.block_until_ready(jitted(params, inputs))


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--only", default="", help="sizes whose name has this word")
    options = parser.parse_args(arguments)
    print(f"jax {jax.__version__} on {jax.devices()[0]}; medians, both sides in turn")
    rng = np.random.default_rng(0)
    chosen = {name: sizes for name, sizes in SIZES.items() if options.only in name}
    for name, (batch, num_steps, num_inputs, size) in chosen.items():
        inputs = rng.normal(size=(batch, num_steps, num_inputs)).astype(np.float32)
        is_first = rng.random((batch, num_steps)) < 0.05
        sides = {side: gradients_of(side, inputs, is_first, size) for side in (haikus, ours)}
        times = {side: [] for side in sides}
        for function in sides.values():
            function()
        for _ in range(options.repeats):
            for side, function in sides.items():
                started = time.perf_counter()
                function()
                times[side].append(time.perf_counter() - started)
        theirs, mine = (1e3 * statistics.median(each) for each in times.values())
        print(f"{name:<32} haiku {theirs:8.2f} ms   ours {mine:8.2f} ms   x {theirs / mine:.2f}")


if __name__ == "__main__":
    main()
