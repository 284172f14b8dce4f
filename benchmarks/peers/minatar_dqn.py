"""DQN on a game of MinAtar: what others reach after as many frames as one of our runs.

    PYTHON benchmarks/peers/minatar_dqn.py GAME EPISODES.csv [--steps 300000] [--seed 0]

PYTHON is the interpreter of an environment of its own: `pip install stable-baselines3 minatar`.
GAME is asterix, breakout, freeway, seaquest or space_invaders, with all six actions and sticky ones
(0.1). The algorithm is Stable Baselines 3's; network, optimizer and options are those of the DQN
that comes with MinAtar (examples/dqn.py of commit 3f078e5). One difference: epsilon falls from the
first frame on, there from the first update on, which is 5,000 frames later. EPISODES.csv gets the
frame and the return of each training episode; the last line that is printed is the mean return of
those that ended in the last tenth of the frames.
"""

import argparse
import csv
import itertools
import statistics
import sys

import torch
from minatar.gym import BaseEnv
from stable_baselines3 import DQN
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor

EXPLORATION_FRAMES = 100_000
OPTIONS = {
    "learning_rate": 2.5e-4,
    "buffer_size": 100_000,
    "learning_starts": 5_000,
    "batch_size": 32,
    "gamma": 0.99,
    "train_freq": 1,
    "gradient_steps": 1,
    "target_update_interval": 1_000,
    "exploration_initial_eps": 1.0,
    "exploration_final_eps": 0.1,
    "max_grad_norm": float("inf"),
}


class Convolution(BaseFeaturesExtractor):
    """16 filters of 3 x 3; images come with their channels last."""

    def __init__(self, observation_space):
        height, width, channels = observation_space.shape
        super().__init__(observation_space, 16 * (height - 2) * (width - 2))
        self._convolution = torch.nn.Conv2d(channels, 16, kernel_size=3)

    def forward(self, images):
        return torch.relu(self._convolution(images.permute(0, 3, 1, 2))).flatten(1)


POLICY = {
    "features_extractor_class": Convolution,
    "net_arch": [128],
    "optimizer_class": torch.optim.RMSprop,
    "optimizer_kwargs": {"alpha": 0.95, "eps": 0.01, "momentum": 0.95, "centered": True},
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("game")
    parser.add_argument("episodes")
    parser.add_argument("--steps", type=int, default=300_000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    torch.set_num_threads(1)
    environment = Monitor(BaseEnv(given.game))
    fraction = min(1.0, EXPLORATION_FRAMES / given.steps)
    model = DQN(
        "CnnPolicy",
        environment,
        seed=given.seed,
        exploration_fraction=fraction,
        policy_kwargs=POLICY,
        **OPTIONS,
    )
    model.learn(given.steps)
    ends = itertools.accumulate(environment.get_episode_lengths())
    episodes = list(zip(ends, environment.get_episode_rewards(), strict=True))
    with open(given.episodes, "w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([("steps", "return"), *episodes])
    last = [value for steps, value in episodes if steps > 0.9 * given.steps]
    if not last:
        sys.exit(f"No episode of {given.game} ended in the last tenth of {given.steps} frames.")
    print(f"{given.game} {statistics.mean(last):.2f}")


if __name__ == "__main__":
    main()
