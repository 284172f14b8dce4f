"""Reactor's configuration: the paper's values, and "ours" where the paper is silent."""

import dataclasses
from collections.abc import Callable
from typing import Any, Literal

from ..._validation import check_integer, check_one_of, check_range, check_sizes
from ...datatypes import ReplayConfig
from ...networks.torsos import REACTOR_CONVOLUTIONS

POLICY_GRADIENTS = ("beta_loo", "tislr", "islr")
INITIAL_STATES = ("zero", "stored")
_REPLAY = ReplayConfig(selector="contextual")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config:
    """Reactor. Sections are those of Gruslys et al. 2018; the defaults are `paper()`."""

    distributional: bool = True
    """Distributional Retrace (3.2); False is the paper's "Reactor ND": expected values."""

    policy_gradient: Literal["beta_loo", "tislr", "islr"] = "beta_loo"
    """The estimator (3.1): beta-leave-one-out, ACER's truncated one, or plain ISLR."""

    policy_gradient_cap: float = 1.0
    """c of beta = min(c, 1/mu) (3.1) and of TISLR, >= 1. Paper: beta = 1, which is c = 1."""

    retrace_lambda: float = 1.0
    """lambda of Retrace, in [0, 1]. Paper: 1.0."""

    discount: float = 0.99
    """gamma, in [0, 1]. Ours: the paper does not say; 0.99 is usual on Atari."""

    max_abs_reward: float = 1.0
    """Rewards are clipped to +- this in the update only. Paper: DQN's pre-processing, so 1."""

    num_atoms: int = 51
    """Atoms of the return distribution, >= 2. Ours: C51's; the paper's number was not found."""

    vmin: float = -10.0
    """Smallest atom. Ours: C51's."""

    vmax: float = 10.0
    """Largest atom. Ours: C51's."""

    policy_epsilon: float = 0.01
    """Share of the uniform distribution in the policy (3.5), in (0, 1). Ours: value not found."""

    entropy_cost: float = 0.01
    """Weight of the entropy bonus, >= 0. Ours: value not found."""

    learning_rate: float = 5e-5
    """Adam's learning rate (3.5). Paper: 5e-5."""

    adam_b1: float = 0.0
    """Adam's momentum, in [0, 1). Paper: zero (3.5)."""

    adam_b2: float = 0.999
    """Adam's decay of squares, in [0, 1). Ours: Adam's default; value not found."""

    adam_epsilon: float = 1e-4
    """Adam's epsilon, > 0. Ours: value not found; 1e-8 lets rare gradients take full steps."""

    target_update_period: int = 1000
    """Updates between copies into the target network. Paper: 1000 (4.1)."""

    sequence_length: int = 33
    """Rows of a sequence, one more than its transitions. Paper: 33 (3.4)."""

    sequence_period: int = 1
    """Rows between the starts of adjacent sequences. Paper: all overlapping ones, 1 (3.3)."""

    initial_state: Literal["zero", "stored"] = "zero"
    """Recurrent state at a sequence's first row: zeros, or the actor's own. Ours: not said."""

    replay: ReplayConfig = _REPLAY
    """Batches of 4, 4 to 6 acting steps an update (3.4), importance exponent 1 (3.3); capacity,
    first update and share of uniform draws are ours."""

    convolutions: tuple[tuple[int, int, int], ...] = REACTOR_CONVOLUTIONS
    """(channels, kernel, stride) of each convolution, for images (appendix)."""

    vector_sizes: tuple[int, ...] = (64,)
    """Hidden layers before the shared one, for float observations. Ours: the paper has images."""

    shared_size: int = 128
    """Units of the layer that both branches share (appendix)."""

    memory_size: int = 128
    """Units of each LSTM (appendix)."""

    head_size: int = 32
    """Hidden units of each head (appendix)."""

    recurrent: bool = True
    """LSTMs; False puts a layer without memory in their place (an ablation of ours)."""

    def __post_init__(self) -> None:
        check_one_of(self, "policy_gradient", POLICY_GRADIENTS)
        check_one_of(self, "initial_state", INITIAL_STATES)
        check_one_of(self, "distributional", (True, False))
        check_one_of(self, "recurrent", (True, False))
        check_range(self, "policy_gradient_cap", 1.0)
        check_range(self, "retrace_lambda", 0.0, 1.0)
        check_range(self, "discount", 0.0, 1.0)
        check_range(self, "max_abs_reward", 0.0, above=True)
        check_range(self, "policy_epsilon", 0.0, 1.0, above=True, below=True)
        check_range(self, "entropy_cost", 0.0)
        check_range(self, "learning_rate", 0.0, above=True)
        check_range(self, "adam_b1", 0.0, 1.0, below=True)
        check_range(self, "adam_b2", 0.0, 1.0, below=True)
        check_range(self, "adam_epsilon", 0.0, above=True)
        check_range(self, "vmin")
        check_range(self, "vmax")
        for field in ("num_atoms", "sequence_length"):
            check_integer(self, field, 2)
        for field in ("target_update_period", "sequence_period"):
            check_integer(self, field, 1)
        for field in ("shared_size", "memory_size", "head_size"):
            check_integer(self, field, 1)
        check_sizes(self, "convolutions")
        check_sizes(self, "vector_sizes")
        if self.vmin >= self.vmax:
            raise ValueError(
                f"Config.vmin must be less than vmax, got vmin {self.vmin}, vmax {self.vmax}."
            )
        if self.replay.capacity < self.sequence_length:
            raise ValueError(
                f"ReplayConfig.capacity must hold one sequence of {self.sequence_length} rows, got "
                f"{self.replay.capacity}."
            )

    @classmethod
    def paper(cls, **changes: Any) -> "Config":
        """The paper's agent, for Atari."""
        return dataclasses.replace(cls(), **changes)

    @classmethod
    def small(cls, **changes: Any) -> "Config":
        """For tiny tasks and vector observations: minutes on two cores. All values are ours."""
        return dataclasses.replace(
            cls(
                discount=0.97,
                vmin=-5.0,
                vmax=35.0,
                num_atoms=41,  # one apart, 0 and 1 among them
                learning_rate=1e-3,
                target_update_period=50,
                sequence_length=17,
                replay=ReplayConfig(
                    selector="contextual", capacity=100_000, batch_size=16, min_rows=500
                ),
                shared_size=32,
                memory_size=32,
            ),
            **changes,
        )

    @classmethod
    def non_distributional(cls) -> "Config":
        """Ablation (figure 3, "Reactor ND"): expected values in place of distributions."""
        return cls.paper(distributional=False)

    @classmethod
    def tislr(cls) -> "Config":
        """Ablation (figure 3): the truncated estimator of ACER in place of beta-LOO."""
        return cls.paper(policy_gradient="tislr")

    @classmethod
    def uniform_replay(cls) -> "Config":
        """Ablation (figure 3): no prioritisation."""
        return cls.paper(replay=dataclasses.replace(cls().replay, selector="uniform"))

    @classmethod
    def proportional_replay(cls) -> "Config":
        """Prioritised replay whose new sequences have the largest priority, as Rainbow's."""
        return cls.paper(replay=dataclasses.replace(cls().replay, selector="proportional"))


PRESETS: dict[str, Callable[[], Config]] = {
    "paper": Config.paper,
    "small": Config.small,
    "non_distributional": Config.non_distributional,
    "tislr": Config.tislr,
    "uniform_replay": Config.uniform_replay,
    "proportional_replay": Config.proportional_replay,
}
