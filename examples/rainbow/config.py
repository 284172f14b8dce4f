"""Rainbow's hyper-parameters."""

import dataclasses

from retrax.datatypes import ReplayConfig

_REPLAY = ReplayConfig(
    selector="proportional",
    min_rows=20_000,
    batch_size=32,
    acting_steps_per_update=4.0,
    priority_exponent=0.5,
    uniform_fraction=0.01,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config:
    """Rainbow. The defaults are from Hessel et al. 2018, table 1, for Atari.

    The table counts frames: four frames are an agent step, four steps an update. The clipped
    gradient (of the dueling network's paper) and the replay's uniform fraction are not in it.

    Attributes:
      n_step: N of the N-step returns.
      discount: gamma.
      num_atoms: atoms of the return distribution, from vmin to vmax.
      vmin: the smallest atom.
      vmax: the largest atom.
      max_abs_reward: rewards are clipped to +- this.
      epsilon: probability of a random action after epsilon_steps, without noisy networks.
      epsilon_steps: time steps of all environments in which epsilon decreases linearly from 1.
      importance_exponent: beta of the importance weights at the first update.
      importance_updates: updates in which beta increases linearly to 1.
      learning_rate: Adam's learning rate.
      adam_epsilon: Adam's epsilon.
      target_update_period: updates between copies into the target network.
      hidden_size: units of the hidden layer of each stream and, for vectors, of the layer before.
      replay: its importance_exponent must be 1, since the agent anneals beta.
    """

    n_step: int = 3
    discount: float = 0.99
    num_atoms: int = 51
    vmin: float = -10.0
    vmax: float = 10.0
    max_abs_reward: float = 1.0
    epsilon: float = 0.01
    epsilon_steps: int = 250_000 // 4
    importance_exponent: float = 0.4
    importance_updates: int = 200_000_000 // 16
    learning_rate: float = 6.25e-5
    adam_epsilon: float = 1.5e-4
    target_update_period: int = 32_000 // 16
    hidden_size: int = 512
    replay: ReplayConfig = _REPLAY

    def __post_init__(self) -> None:
        if not self.vmin < self.vmax:
            raise ValueError(f"vmin must be less than vmax, got {self.vmin} and {self.vmax}.")
        if (beta := self.replay.importance_exponent) != 1:
            raise ValueError(f"replay.importance_exponent must be 1, got {beta}.")


def small() -> Config:
    """For tiny tasks and vectors of floats: minutes on two cores."""
    return Config(
        n_step=10,
        vmin=0.0,
        vmax=100.0,
        epsilon_steps=10_000,
        importance_updates=10_000,
        learning_rate=5e-4,
        target_update_period=200,
        hidden_size=64,
        replay=dataclasses.replace(_REPLAY, capacity=50_000, min_rows=1_000, batch_size=64),
    )


PRESETS = {"paper": Config, "small": small}
