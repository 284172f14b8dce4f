"""Agent57's update beside a stand-in in PyTorch, in turns on the same cores.

    python benchmarks/agent57_beside_torch.py --torch PYTHON [--batch 16] [--trace 80]

PYTHON is the interpreter of an environment that has PyTorch and NumPy (`pip install torch numpy`).
Atari's shapes and the paper's networks, with as many trained parameters on both sides, which is
checked. Each side's random batch lies in its memory already. See peers/agent57_torch.py for what
the stand-in leaves out.
"""

import argparse
import contextlib
import dataclasses
import json
import pathlib
import statistics
import subprocess
import sys
import time

import jax
from agent57_step import SPEC, random_sample

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


class Theirs:
    """The stand-in, in a process of another Python."""

    def __init__(self, python, config):
        self._process = subprocess.Popen(
            [python, str(STAND_IN)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        sizes = {
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
        self.about = self._ask(sizes)

    def seconds(self):
        return self._ask("update")

    def close(self):
        self._process.stdin.close()
        self._process.wait()

    def _ask(self, line):
        try:
            self._process.stdin.write(json.dumps(line) + "\n")
            self._process.stdin.flush()
            answer = self._process.stdout.readline()
        except BrokenPipeError:
            answer = ""
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()  # else it is tried again, and told, at the exit
        if not answer:
            sys.exit(f"The stand-in ended: does {self._process.args[0]} have torch and numpy?")
        return json.loads(answer)


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--torch", required=True, metavar="PYTHON", help="a Python with PyTorch")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--trace", type=int, default=80)
    parser.add_argument("--updates", type=int, default=10)
    options = parser.parse_args(arguments)
    paper = Config.paper()
    replay = dataclasses.replace(paper.replay, capacity=1000, min_rows=1, batch_size=options.batch)
    period = max(1, options.trace // 2)
    config = dataclasses.replace(
        paper, trace_length=options.trace, replay_period=period, replay=replay
    )
    theirs = Theirs(options.torch, config)
    agent = make_agent(SPEC, config)
    learner = jax.eval_shape(agent.init, jax.random.key(0))
    parameters = sum(x.size for x in jax.tree.leaves((learner.params, learner.auxiliary_params)))
    if parameters != theirs.about["parameters"]:
        sys.exit(f"{parameters} parameters here, {theirs.about['parameters']} in the stand-in.")
    ours = Ours(agent, config)
    times = {"retrax": [], "stand-in": []}
    for _ in range(options.updates + 1):
        times["retrax"].append(ours.seconds())
        times["stand-in"].append(theirs.seconds())
    theirs.close()
    print(f"jax {jax.__version__}, torch {theirs.about['torch']}; {parameters:,} parameters")
    medians = {name: statistics.median(found[1:]) for name, found in times.items()}
    for name, median in medians.items():
        spread = f"{1e3 * min(times[name][1:]):.0f} to {1e3 * max(times[name][1:]):.0f}"
        print(f"{name:<10} {1e3 * median:>8.1f} ms an update ({spread})")
    print(f"stand-in / retrax {medians['stand-in'] / medians['retrax']:>8.2f}")


if __name__ == "__main__":
    main()
