"""ACER's configuration: the paper's values, and "ours" where the paper is silent."""

import dataclasses
from collections.abc import Callable
from typing import Any, Literal

from dm_env import specs

from ..._validation import check_integer, check_one_of, check_range, check_sizes
from ...datatypes import EnvironmentSpec, ReplayConfig
from ...networks.torsos import DQN_CONVOLUTIONS

ESTIMATORS = ("acer", "tis")
RETURNS = ("retrace", "importance")
UNLIMITED = 1e9  # in JSON there is no infinity
_THREADS = 16  # of the paper: environments that are stepped together, and segments in a batch
_ATARI_REPLAY = ReplayConfig(
    pace="rounds",
    on_policy=True,
    replay_ratio=4.0,
    capacity=50_000 * _THREADS,
    min_rows=10_000,
    batch_size=_THREADS,
)
_MUJOCO_REPLAY = ReplayConfig(
    pace="rounds",
    replay_ratio=4.0,
    capacity=5_000 * _THREADS,
    min_rows=1_000,
    batch_size=_THREADS,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config:
    """ACER. Sections are those of Wang et al. 2017; the defaults are `paper_atari()`."""

    estimator: Literal["acer", "tis"] = "acer"
    """ACER's update, or that of the baseline TIS (E.2), which with on-policy data is A3C's."""

    returns: Literal["retrace", "importance"] = "retrace"
    """Retrace and Q_opc, or, an ablation (E.4), importance sampling in place of both."""

    trust_region: bool = True
    """Whether gradients are projected (3.3)."""

    delta: float = 1.0
    """The constraint of the trust region, > 0. Paper: 1 (4); continuous: drawn from [0.1, 2]."""

    average_decay: float = 0.99
    """alpha of the average policy, alpha * average + (1 - alpha) * params, in [0, 1]. Paper: 0.99
    (4); continuous: 0.995 (6)."""

    truncation: float = 10.0
    """c of the policy's importance weights, > 0. Paper: 10 (4); continuous: 5 (6), of TIS too."""

    stochastic_dueling: bool = True
    """Continuous only: Q and V of one dueling network (5.1), or, an ablation (E.4), of two."""

    num_dueling_samples: int = 5
    """Continuous only: n, actions drawn for a dueling network's mean. Paper: 5 (6)."""

    policy_std: float = 0.3
    """Continuous only: the fixed standard deviation, in units of half the actions' range. Paper:
    0.3 (6); its unit is ours."""

    discount: float = 0.99
    """gamma, in [0, 1]. Paper: 0.99."""

    entropy_cost: float = 0.001
    """Weight of the entropy, >= 0; its gradient is added before the projection. Paper: 0.001 (4);
    the place is ours. A Gaussian of fixed deviation has no entropy to gain."""

    critic_cost: float = 1.0
    """Weight of the critic's loss, >= 0. Paper: 1, each error being (Q_ret - Q)^2 / 2 (eq. 6)."""

    max_abs_reward: float = 1.0
    """Rewards are clipped to +- this in the update only; 1e9 clips none. Paper: DQN's
    pre-processing (4), so 1."""

    reward_scale: float = 1.0
    """Rewards are multiplied by this in the update, after clipping; > 0. Ours."""

    learning_rate: float = 7e-4
    """RMSProp's, not annealed. Ours: the paper's, "of an earlier A3C", was not found (4);
    continuous: drawn from [10^-4, 10^-3.3] (6)."""

    rmsprop_decay: float = 0.99
    """Of RMSProp's mean square, in [0, 1). Paper: A3C's, 0.99."""

    rmsprop_epsilon: float = 1e-3
    """Added to RMSProp's mean square, > 0. Ours: A3C has 0.1, for sums of gradients, ours are
    means."""

    max_gradient_norm: float = 40.0
    """Gradients of a larger norm are scaled down to it, > 0. Ours: not said."""

    sequence_length: int = 21
    """Rows of a segment, one more than its transitions, k. Paper: k = 20 (4); continuous: 50."""

    replay: ReplayConfig = _ATARI_REPLAY
    """Paper: 50,000 frames for each of 16 threads, ratio 4 out of 0, 1, 4, 8 (4); continuous: 5,000
    frames, entirely off-policy, each step about 4 times (6). A batch of one segment for each thread
    stands for the threads, which were asynchronous. First replay is ours."""

    convolutions: tuple[tuple[int, int, int], ...] = DQN_CONVOLUTIONS
    """(channels, kernel, stride) of each convolution, for images (4)."""

    vector_sizes: tuple[int, ...] = (64,)
    """Hidden layers before the common one, for float observations. Ours: sizes not found (6)."""

    hidden_size: int = 512
    """Units of the layer behind the torso. Paper: 512 (4)."""

    memory_size: int = 0
    """Units of an LSTM behind that, 0 for none. Paper: none. Ours otherwise."""

    shared_network: bool = True
    """Whether policy and values share all but their last layers. Paper: yes (2)."""

    advantage_size: int = 64
    """Continuous only: hidden units of the advantage network. Ours: "small" (6)."""

    def __post_init__(self) -> None:
        check_one_of(self, "estimator", ESTIMATORS)
        check_one_of(self, "returns", RETURNS)
        for field in ("trust_region", "stochastic_dueling", "shared_network"):
            check_one_of(self, field, (True, False))
        for field in ("delta", "truncation", "policy_std", "reward_scale", "learning_rate"):
            check_range(self, field, 0.0, above=True)
        for field in ("rmsprop_epsilon", "max_gradient_norm"):
            check_range(self, field, 0.0, above=True)
        for field in ("average_decay", "discount"):
            check_range(self, field, 0.0, 1.0)
        check_range(self, "rmsprop_decay", 0.0, 1.0, below=True)
        for field in ("entropy_cost", "critic_cost"):
            check_range(self, field, 0.0)
        check_range(self, "max_abs_reward", 0.0, above=True)
        check_integer(self, "sequence_length", 2)
        check_integer(self, "memory_size", 0)
        for field in ("num_dueling_samples", "hidden_size", "advantage_size"):
            check_integer(self, field, 1)
        check_sizes(self, "convolutions")
        check_sizes(self, "vector_sizes")
        if self.replay.pace != "rounds":
            raise ValueError(
                f"ReplayConfig.pace must be rounds for ACER, got {self.replay.pace!r}."
            )

    @classmethod
    def paper_atari(cls, **changes: Any) -> "Config":
        """The paper's agent for Atari (section 4)."""
        return dataclasses.replace(cls(), **changes)

    @classmethod
    def paper_mujoco(cls, **changes: Any) -> "Config":
        """The paper's agent for continuous actions (section 6)."""
        return dataclasses.replace(
            cls(
                delta=1.0,  # about the middle of what was searched; so is the learning rate
                average_decay=0.995,
                truncation=5.0,
                entropy_cost=0.0,
                max_abs_reward=UNLIMITED,
                learning_rate=2.2e-4,
                sequence_length=51,
                replay=_MUJOCO_REPLAY,
                hidden_size=64,
            ),
            **changes,
        )

    @classmethod
    def small(cls, **changes: Any) -> "Config":
        """For tiny tasks with discrete actions: minutes on two cores. All values are ours."""
        return dataclasses.replace(
            cls(
                max_abs_reward=UNLIMITED,
                reward_scale=0.3,
                learning_rate=1e-3,
                rmsprop_epsilon=1e-6,
                sequence_length=11,
                hidden_size=64,
                replay=ReplayConfig(
                    pace="rounds",
                    on_policy=True,
                    replay_ratio=4.0,
                    capacity=50_000,
                    min_rows=500,
                    batch_size=16,
                ),
            ),
            **changes,
        )

    @classmethod
    def small_continuous(cls, **changes: Any) -> "Config":
        """For small tasks with continuous actions: minutes on two cores. All values are ours."""
        ours = {
            "reward_scale": 0.1,
            "rmsprop_epsilon": 1e-6,
            "sequence_length": 11,
            "learning_rate": 5e-4,
            "shared_network": False,
        }
        return cls.paper_mujoco(**{**ours, **changes})

    @classmethod
    def no_trust_region(cls) -> "Config":
        """Ablation (6.1): gradients as they are."""
        return cls.paper_mujoco(trust_region=False)

    @classmethod
    def no_retrace(cls) -> "Config":
        """Ablation (6.1): importance sampling in place of Retrace and Q_opc."""
        return cls.paper_mujoco(returns="importance")

    @classmethod
    def no_stochastic_dueling(cls) -> "Config":
        """Ablation (6.1): separate networks for Q and V."""
        return cls.paper_mujoco(stochastic_dueling=False)

    @classmethod
    def no_truncation(cls) -> "Config":
        """Ablation (6.1): c = infinity, so pure importance sampling."""
        return cls.paper_mujoco(truncation=UNLIMITED)

    @classmethod
    def tis(cls, **changes: Any) -> "Config":
        """Baseline (E.2): replay, with importance weights truncated over trajectories."""
        return cls.paper_mujoco(**{"estimator": "tis", "trust_region": False, **changes})

    @classmethod
    def trust_tis(cls) -> "Config":
        """Baseline (6): TIS with a trust region."""
        return cls.tis(trust_region=True)

    @classmethod
    def a3c(cls, **changes: Any) -> "Config":
        """Baseline (6): on-policy, no replay."""
        on_policy = dataclasses.replace(_MUJOCO_REPLAY, on_policy=True, replay_ratio=0.0)
        return cls.tis(replay=on_policy, **changes)

    @classmethod
    def trust_a3c(cls) -> "Config":
        """Baseline (6): A3C with a trust region."""
        return cls.a3c(trust_region=True)


PRESETS: dict[str, Callable[[], Config]] = {
    "paper_atari": Config.paper_atari,
    "paper_mujoco": Config.paper_mujoco,
    "small": Config.small,
    "small_continuous": Config.small_continuous,
    "no_trust_region": Config.no_trust_region,
    "no_retrace": Config.no_retrace,
    "no_stochastic_dueling": Config.no_stochastic_dueling,
    "no_truncation": Config.no_truncation,
    "tis": Config.tis,
    "trust_tis": Config.trust_tis,
    "a3c": Config.a3c,
    "trust_a3c": Config.trust_a3c,
}


def default_preset(environment: str, spec: EnvironmentSpec) -> str:
    """`paper_atari` for images; else `small`, or `small_continuous` for continuous actions."""
    del environment
    if len(spec.observations.shape) == 3:
        return "paper_atari"
    discrete = isinstance(spec.actions, specs.DiscreteArray)
    return "small" if discrete else "small_continuous"
