"""Agent57's configuration: the papers' values, and "ours" where they are silent."""

import dataclasses
from collections.abc import Callable
from typing import Any, Literal

from ..._validation import check_integer, check_one_of, check_range, check_sizes
from ...datatypes import ReplayConfig
from ...networks.agent57 import DQN_CONVOLUTIONS

VALUES = ("split", "mixed", "extrinsic")
TARGETS = ("retrace", "double_q")
ARM_CHOICES = ("bandit", "uniform", "actor", "zero")
EVALUATIONS = ("alternate", "greedy", "arm_0")
_REPLAY = ReplayConfig(
    selector="proportional",
    capacity=5_000_000,
    min_rows=500_000,
    batch_size=64,
    acting_steps_per_update=5120.0,
    priority_exponent=0.9,
    importance_exponent=0.0,
    uniform_fraction=0.0,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config:
    """Agent57. "Paper" is Badia et al. 2020; NGU and R2D2 are named. The defaults are `paper()`."""

    values: Literal["split", "mixed", "extrinsic"] = "split"
    """Two networks, for extrinsic and intrinsic value (paper); one for r^e + beta r^i (NGU); or one
    for r^e without any intrinsic reward (R2D2)."""

    target: Literal["retrace", "double_q"] = "retrace"
    """Transformed Retrace (paper, NGU), or R2D2's n-step double Q-learning."""

    arm_choice: Literal["bandit", "uniform", "actor", "zero"] = "bandit"
    """How an actor chooses its arm for an episode: meta-controller (paper); at random (NGU, as the
    paper tells it); by the actor's number (NGU, as printed); or always arm 0 (R2D2)."""

    evaluation: Literal["alternate", "greedy", "arm_0"] = "alternate"
    """An evaluator's arm: of its own bandit and the best one in turn (paper); always the best one;
    or arm 0, which is not curious (NGU)."""

    num_arms: int = 32
    """N >= 2 pairs (beta_j, gamma_j). Paper: 32."""

    intrinsic_weight: float = 0.3
    """beta, the largest beta_j, >= 0. NGU: 0.3."""

    discounts: Literal["agent57", "ngu"] = "agent57"
    """The family gamma_j: the paper's, or NGU's from `discount_middle` to `discount_low`."""

    discount_high: float = 0.9999
    """gamma_0 of the paper's family. Paper: 0.9999."""

    discount_middle: float = 0.997
    """Where the two parts of the paper's family meet; NGU's largest. Paper, NGU: 0.997."""

    discount_low: float = 0.99
    """gamma_{N-1}. Paper, NGU: 0.99."""

    transformed_mix: bool = False
    """Mix the values as h(h^-1(Q^e) + beta h^-1(Q^i)). Paper: the plain sum, no difference seen."""

    rescale: bool = True
    """Learn rescaled values h(Q). Paper; False is NGU's for its maze."""

    rescaling_epsilon: float = 1e-3
    """epsilon of h, > 0. R2D2: 1e-3; NGU: 1e-2 in its text, 1e-3 in its table."""

    retrace_lambda: float = 0.95
    """lambda of Retrace, in [0, 1]. Paper, NGU: 0.95."""

    n_step: int = 5
    """n of the double Q target, >= 1. R2D2: 5."""

    target_epsilon: float = 0.0
    """Share of random actions in the target policy. Paper: greedy, 0; NGU's table: 0.01."""

    actor_epsilon: float = 0.4
    """epsilon of epsilon_l = epsilon^(1 + alpha l / (L - 1)), in (0, 1]. Paper: 0.4."""

    actor_epsilon_exponent: float = 8.0
    """alpha of the same, >= 0. 8 (not confirmed; R2D2: 7)."""

    evaluation_epsilon: float = 0.01
    """Share of random actions in evaluation. NGU: 0.01."""

    bandit_window: int = 160
    """Pulls that count, tau >= N. Paper: 160 in its text, 90 in table 3."""

    bandit_bonus: float = 1.0
    """beta_UCB >= 0. Paper: 1."""

    bandit_epsilon: float = 0.5
    """epsilon_UCB, in [0, 1]. Paper: 0.5."""

    evaluator_window: int = 3600
    """tau of the evaluator's bandit. Paper: 3600."""

    evaluator_epsilon: float = 0.01
    """epsilon_UCB of the evaluator's bandit. Paper: 0.01."""

    episodic_capacity: int = 30_000
    """States that an episode's memory holds. NGU: 30,000."""

    num_neighbours: int = 10
    """k, at most the capacity. NGU: 10. An episode's first k states are paid nothing (ours)."""

    cluster_distance: float = 0.008
    """xi >= 0. NGU: 0.008."""

    kernel_epsilon: float = 1e-4
    """epsilon of the kernel, > 0. NGU: 1e-3 in its text, 1e-4 in its table."""

    pseudo_count: float = 1e-3
    """c > 0. NGU: 0.001."""

    max_similarity: float = 8.0
    """s_m > 0: states more similar are paid nothing. NGU: 8."""

    max_modulator: float = 5.0
    """L >= 1, the most that life-long novelty multiplies. NGU: 5."""

    embedding_refresh: Literal["episode", "step"] = "episode"
    """When actors take over a new embedding. NGU: once an episode, so each actor keeps a copy."""

    auxiliary_frames: int = 5
    """Last transitions of a sequence that train embedding and novelty. NGU: 5."""

    learning_rate: float = 1e-4
    """Adam's, for the values. NGU: 1e-4."""

    auxiliary_learning_rate: float = 5e-4
    """Adam's, for embedding and novelty. NGU: 5e-4."""

    embedding_weight_decay: float = 1e-5
    """L2 regularisation of the action prediction, >= 0. NGU: 1e-5."""

    adam_b1: float = 0.9
    """Adam's momentum. NGU: 0.9."""

    adam_b2: float = 0.999
    """Adam's decay of squares. NGU: 0.999."""

    adam_epsilon: float = 1e-4
    """Adam's epsilon, > 0. NGU: 1e-4; R2D2: 1e-3."""

    gradient_clip: float = 40.0
    """Largest norm of each network's gradient. NGU: 40."""

    target_update_period: int = 1500
    """Updates between copies into the target networks. Paper: 1500; R2D2: 2500."""

    trace_length: int = 160
    """Transitions of a sequence. Paper: 160, or 80; R2D2, NGU: 80."""

    replay_period: int = 80
    """Rows between the starts of adjacent sequences. Paper: 80, or 40."""

    burn_in: int = 0
    """Rows before the trace that only warm up the memory. Paper: none told; R2D2: 40. Sequences
    that begin with their episode need none: all their steps are learned from (ours)."""

    priority_eta: float = 0.9
    """Share of the largest error in a priority, in [0, 1]. R2D2: 0.9."""

    replay: ReplayConfig = _REPLAY
    """NGU: batches of 64, 5e6 steps, first update at 6250 sequences, exponent 0.9; importance
    exponent 0 (R2D2: 0.6). Acting steps an update are ours: each sequence is seen about once."""

    network_scale: float = 1.0
    """Multiplies channels and units of all networks, > 0. Ours, for smaller machines."""

    convolutions: tuple[tuple[int, int, int], ...] = DQN_CONVOLUTIONS
    """(channels, kernel, stride) of each convolution, for images. NGU, R2D2: DQN's."""

    vector_sizes: tuple[int, ...] = (64,)
    """Hidden layers of each torso, for float observations. Ours: the papers have images."""

    torso_size: int = 512
    """Units of the layer behind the torso (not confirmed)."""

    lstm_size: int = 512
    """Units of each LSTM. R2D2: 512."""

    head_size: int = 512
    """Hidden units of each dueling head. R2D2: 512."""

    embedding_size: int = 32
    """Size of the controllable state. NGU: 32."""

    classifier_size: int = 128
    """Hidden units of the action's classifier. NGU: 128 (not confirmed)."""

    novelty_size: int = 128
    """Outputs of the random network. NGU: 128 (not confirmed)."""

    recurrent: bool = True
    """LSTMs; False puts a layer without memory in their place (an ablation of ours)."""

    def __post_init__(self) -> None:
        check_one_of(self, "values", VALUES)
        check_one_of(self, "target", TARGETS)
        check_one_of(self, "arm_choice", ARM_CHOICES)
        check_one_of(self, "evaluation", EVALUATIONS)
        check_one_of(self, "discounts", ("agent57", "ngu"))
        check_one_of(self, "embedding_refresh", ("episode", "step"))
        for field in ("transformed_mix", "rescale", "recurrent"):
            check_one_of(self, field, (True, False))
        for field in _SHARES:
            check_range(self, field, 0.0, 1.0)
        for field in _DISCOUNTS:
            check_range(self, field, 0.0, 1.0, below=True)
        for field in ("adam_b1", "adam_b2"):
            check_range(self, field, 0.0, 1.0, below=True)
        for field in _NOT_NEGATIVE:
            check_range(self, field, 0.0)
        for field in _POSITIVE:
            check_range(self, field, 0.0, above=True)
        check_range(self, "actor_epsilon", 0.0, 1.0, above=True)
        check_range(self, "max_modulator", 1.0)
        check_integer(self, "num_arms", 2)
        check_integer(self, "burn_in", 0)
        for field in _COUNTS:
            check_integer(self, field, 1)
        check_integer(self, "bandit_window", self.num_arms)
        check_integer(self, "evaluator_window", self.num_arms)
        check_integer(self, "num_neighbours", 1, self.episodic_capacity)
        check_integer(self, "replay_period", 1, self.trace_length)
        check_sizes(self, "convolutions")
        check_sizes(self, "vector_sizes")
        self._check_relations()

    def _check_relations(self) -> None:
        if not self.discount_high >= self.discount_middle >= self.discount_low:
            raise ValueError(
                "Config.discount_high, discount_middle, discount_low must not increase, got "
                f"{self.discount_high}, {self.discount_middle}, {self.discount_low}."
            )
        if self.replay.capacity < self.sequence_length:
            raise ValueError(
                f"ReplayConfig.capacity must hold one sequence of {self.sequence_length} rows, got "
                f"{self.replay.capacity}."
            )

    @property
    def sequence_length(self) -> int:
        """Rows of a sequence: burn-in, trace and the row behind it."""
        return self.burn_in + self.trace_length + 1

    @classmethod
    def paper(cls, **changes: Any) -> "Config":
        """The paper's agent, for Atari."""
        return dataclasses.replace(cls(), **changes)

    @classmethod
    def small(cls, **changes: Any) -> "Config":
        """For tiny tasks and vector observations: minutes on two cores. All values are ours."""
        return dataclasses.replace(cls(**_SMALL), **changes)


_SHARES = (
    "retrace_lambda",
    "target_epsilon",
    "evaluation_epsilon",
    "bandit_epsilon",
    "evaluator_epsilon",
    "priority_eta",
)
_DISCOUNTS = ("discount_high", "discount_middle", "discount_low")
_NOT_NEGATIVE = (
    "intrinsic_weight",
    "actor_epsilon_exponent",
    "bandit_bonus",
    "cluster_distance",
    "embedding_weight_decay",
)
_POSITIVE = (
    "rescaling_epsilon",
    "kernel_epsilon",
    "pseudo_count",
    "max_similarity",
    "learning_rate",
    "auxiliary_learning_rate",
    "adam_epsilon",
    "gradient_clip",
    "network_scale",
)
_COUNTS = (
    "n_step",
    "auxiliary_frames",
    "target_update_period",
    "trace_length",
    "episodic_capacity",
    "torso_size",
    "lstm_size",
    "head_size",
    "embedding_size",
    "classifier_size",
    "novelty_size",
)
_SMALL: dict[str, Any] = {
    "num_arms": 8,
    "discount_high": 0.97,
    "discount_middle": 0.95,
    "discount_low": 0.9,
    "bandit_window": 40,
    "bandit_bonus": 0.1,  # returns are at most 1
    "evaluator_window": 200,
    "episodic_capacity": 500,
    "num_neighbours": 3,
    # States are paid about 1 whatever their neighbours, not 60; what is new for life then matters.
    "kernel_epsilon": 1.0,
    # A state that novelty never learns looks new for ever; one learned at once is not new for long
    # enough that the values hear of it: on the way back that is one target update for each step.
    "auxiliary_frames": 20,
    "auxiliary_learning_rate": 1e-4,
    "target_update_period": 25,
    "embedding_refresh": "step",
    "learning_rate": 1e-3,
    "trace_length": 20,
    "replay_period": 10,
    "replay": ReplayConfig(
        selector="proportional",
        capacity=200_000,
        min_rows=1_000,
        batch_size=32,
        acting_steps_per_update=4.0,
        priority_exponent=0.9,
        importance_exponent=0.0,
    ),
    "torso_size": 64,
    "lstm_size": 32,
    "head_size": 64,
    "embedding_size": 8,
    "classifier_size": 32,
    "novelty_size": 32,
}

# The ladder (paper, section 4.1): each rung lacks what the rung before it lacks, and one part more.
_WITHOUT: dict[str, dict[str, Any]] = {
    "meta_controller": {"trace_length": 80, "replay_period": 40},
    "split": {"arm_choice": "uniform", "evaluation": "arm_0", "discounts": "ngu"},
    "ngu": {"values": "mixed"},
    "r2d2_retrace": {"values": "extrinsic", "arm_choice": "zero"},
    "r2d2": {"target": "double_q"},
}
_SMALL_SHORT_TRACE = {"trace_length": 10, "replay_period": 5}


def _rung(make: Callable[..., Config], last: str, **changes: Any) -> Callable[[], Config]:
    """A preset without all parts down to `last`; `changes` take precedence."""
    lacking: dict[str, Any] = {}
    for name, missing in _WITHOUT.items():
        lacking |= missing
        if name == last:
            break
    return lambda: make(**(lacking | changes))


PRESETS: dict[str, Callable[[], Config]] = {
    "paper": Config.paper,
    "small": Config.small,
    **{name: _rung(Config.paper, name) for name in _WITHOUT},
    **{f"small_{name}": _rung(Config.small, name, **_SMALL_SHORT_TRACE) for name in _WITHOUT},
}
