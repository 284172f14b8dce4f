"""Agent57's update beside a stand-in in PyTorch, in turns on the same cores.

    python benchmarks/agent57_beside_torch.py --torch PYTHON [--batch 16] [--trace 80]

PYTHON is the interpreter of an environment that has PyTorch and NumPy (`pip install torch numpy`).
Atari's shapes and the paper's networks, with as many trained parameters on both sides, which is
checked. Each side's random batch lies in its memory already. See peers/agent57_torch.py for what
the stand-in leaves out.
"""

import argparse
import dataclasses
import pathlib
import time

import jax
from agent57_step import SPEC, random_sample
from stand_in import StandIn, check_parameters, compare

from retrax.agents import update
from retrax.agents.agent57 import Config, make_agent
from retrax.networks.torsos import DQN_CONVOLUTIONS

STAND_IN = pathlib.Path(__file__).parent / "peers" / "agent57_torch.py"


class Ours:
    """Our learner, and a batch on its device."""

    def __init__(self, agent, config):
        self._sample = random_sample(agent, config)
        self._update = jax.jit(update(agent), donate_argnums=0)
        self._learner = jax.jit(agent.init)(jax.random.key(0))

    def seconds(self):
        started = time.perf_counter()
        self._learner, _ = jax.block_until_ready(self._update(self._learner, self._sample))
        return time.perf_counter() - started


def sizes_of(config):
    """What the stand-in is told."""
    return {
        "actions": SPEC.actions.num_values,
        "arms": config.num_arms,
        "batch": config.replay.batch_size,
        "rows": config.sequence_length,
        "frames": config.auxiliary_frames,
        "convolutions": DQN_CONVOLUTIONS,
        "torso": config.torso_size,
        "lstm": config.lstm_size,
        "head": config.head_size,
        "embedding": config.embedding_size,
        "classifier": config.classifier_size,
        "novelty": config.novelty_size,
    }


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--torch", required=True, metavar="PYTHON", help="a Python with PyTorch")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--trace", type=int, default=80)
    parser.add_argument("--updates", type=int, default=10)
    options = parser.parse_args(arguments)
    paper = Config()
    replay = dataclasses.replace(paper.replay, capacity=1000, min_rows=1, batch_size=options.batch)
    period = max(1, options.trace // 2)
    config = dataclasses.replace(
        paper, trace_length=options.trace, replay_period=period, replay=replay
    )
    theirs = StandIn(options.torch, STAND_IN, sizes_of(config), "torch and numpy")
    agent = make_agent(SPEC, config)
    learner = jax.eval_shape(agent.init, jax.random.key(0))
    parameters = sum(x.size for x in jax.tree.leaves((learner.params, learner.auxiliary_params)))
    check_parameters(parameters, theirs)
    print(f"jax {jax.__version__}, torch {theirs.about['torch']}; {parameters:,} parameters")
    ratio = compare(Ours(agent, config).seconds, theirs, options.updates)
    theirs.close()
    print(f"stand-in / retrax {ratio:>8.2f}")


if __name__ == "__main__":
    main()
