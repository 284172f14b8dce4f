"""ACER's configuration: the paper's values, or ours where the paper specifies none."""

import dataclasses
from collections.abc import Callable
from typing import Annotated, Any, Literal

from dm_env import specs

from ...basics.validation import Range, Sizes, check_fields
from ...datatypes import EnvironmentSpec, ReplayConfig
from ...networks.torsos import DQN_CONVOLUTIONS, Convolutions
from ..base import UNLIMITED, is_large_image

_BATCH = 16  # the paper's number of threads: one update of a batch replaces one by each
_DECAY, _CONTINUOUS_DECAY = 0.99, 0.995  # the paper's, in an update of one segment
# In an update of a batch, for discrete and for continuous actions.
_PER_BATCH, _CONTINUOUS_PER_BATCH = (round(x**_BATCH, 3) for x in (_DECAY, _CONTINUOUS_DECAY))
_SMALL_BATCH = 8  # smaller, since more updates at the same ratio learn faster on small tasks
_ATARI_REPLAY = ReplayConfig(
    pace="rounds",
    on_policy=True,
    replay_ratio=4.0,
    capacity=50_000,
    capacity_per_environment=True,
    min_rows=10_000,
    batch_size=_BATCH,
)
_MUJOCO_REPLAY = dataclasses.replace(_ATARI_REPLAY, on_policy=False, capacity=5_000, min_rows=1_000)

# What both presets for small tasks have.
_SMALL: dict[str, Any] = {
    "rmsprop_decay": 0.99,
    "exploit_average": True,
    "scale_rewards": True,
    "max_abs_reward": UNLIMITED,
    "rmsprop_epsilon": 1e-6,
    "max_gradient_norm": 40.0,
    "convolutions": None,
    "hidden_size": 64,
    "frame_stack": 1,
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config:
    """ACER. Sections refer to Wang et al. 2017; the defaults are the paper's for Atari (4)."""

    estimator: Literal["acer", "tis"] = "acer"
    """Policy-gradient estimator: ACER's, or the baseline TIS (E.2), which equals A3C's on on-policy
    data."""

    returns: Literal["retrace", "importance"] = "retrace"
    """Returns: Retrace and Q_opc, or importance sampling for both (ablation, E.4)."""

    trust_region: bool = True
    """Whether policy gradients are projected onto the trust region (3.3)."""

    delta: Annotated[float, Range(0.0, above=True)] = 1.0
    """Constraint of the trust region. Paper: 1 (4); continuous actions: sampled from
    [0.1, 2] (6)."""

    average_decay: Annotated[float, Range(0.0, 1.0)] = _PER_BATCH
    """alpha of the average policy, alpha * average + (1 - alpha) * params. Paper: 0.99 (4) in each
    update of one segment, so 0.99^16 in the 16 updates that a batch replaces; continuous actions:
    0.995 (6)."""

    exploit_average: bool = False
    """Whether evaluation acts with the average policy, which changes less from update to update
    than the newest one. Unspecified in the paper; our choice."""

    truncation: Annotated[float, Range(0.0, above=True)] = 10.0
    """c, the truncation of the policy's importance weights. Paper: 10 (4); continuous actions: 5,
    also for TIS (6)."""

    stochastic_dueling: bool = True
    """Continuous actions only: Q is V plus the advantage of a stochastic dueling network (5.1).
    False: Q has a separate network, which shares no layer with the policy or V (ablation, E.4)."""

    num_dueling_samples: Annotated[int, Range(1)] = 5
    """Continuous actions only: n, the number of actions sampled for the mean of a dueling network.
    Paper: 5 (6)."""

    policy_std: Annotated[float, Range(0.0, above=True)] = 0.3
    """Continuous actions only: the fixed standard deviation, in units of half the range of the
    actions. Paper: 0.3 (6); the unit is our choice."""

    discount: Annotated[float, Range(0.0, 1.0)] = 0.99
    """Discount factor gamma. Paper: 0.99."""

    retrace_lambda: Annotated[float, Range(0.0, 1.0)] = 1.0
    """lambda of Retrace. Paper: none, which is 1."""

    entropy_cost: Annotated[float, Range(0.0)] = 0.001
    """Weight of the entropy bonus. Its gradient is added before the projection (our choice). Paper:
    0.001 (4). A Gaussian with fixed deviation has constant entropy; the weight has no effect."""

    critic_cost: Annotated[float, Range(0.0)] = 1.0
    """Weight of the critic's loss (Q_ret - Q)^2 / 2. Paper: 1 (eq. 6)."""

    scale_rewards: bool = False
    """Whether the update divides rewards by the largest absolute discounted sum of rewards so far.
    All values are then in units of that sum. Our addition."""

    max_abs_reward: Annotated[float, Range(0.0, above=True)] = 1.0
    """The update clips rewards to +- this value, after scaling; 1e9 clips none. Paper: 1, as in DQN
    (4)."""

    reward_scale: Annotated[float, Range(0.0, above=True)] = 1.0
    """The update multiplies rewards by this factor, after clipping. Our addition."""

    learning_rate: Annotated[float, Range(0.0, 1.0, above=True)] = 7e-4
    """RMSProp's learning rate. Unspecified in the paper ("of an earlier A3C", 4); our choice.
    Continuous actions: sampled from [10^-4, 10^-3.3] (6)."""

    learning_rate_half_life: Annotated[float | None, Range(0.0, above=True)] = None
    """Updates after which the learning rate has halved: it is divided by 1 + updates / half-life.
    None: constant. Our addition."""

    rmsprop_decay: Annotated[float, Range(0.0, 1.0, below=True)] = _PER_BATCH
    """Decay rate of RMSProp's mean square. Paper: 0.99, as in A3C, in each update of one
    segment."""

    rmsprop_epsilon: Annotated[float, Range(0.0, above=True)] = 2.5e-4
    """Added to RMSProp's mean square, inside the square root. Unspecified in the paper; our choice:
    0.1 / k^2. A3C's 0.1 is for sums of gradients over the k steps of a segment; ours are means."""

    max_gradient_norm: Annotated[float, Range(0.0, above=True)] = 2.0
    """Gradients with a larger norm are scaled down to it. Unspecified in the paper; our choice: 40
    / k. A3C implementations use 40 for sums over k steps; ours are means."""

    sequence_length: Annotated[int, Range(2)] = 21
    """Rows of a segment, one more than its transitions k. Paper: k = 20 (4); continuous actions:
    50 (6)."""

    replay: ReplayConfig = _ATARI_REPLAY
    """Replay. Paper: 50,000 frames for each of 16 threads, ratio 4 (of 0, 1, 4, 8) (4); continuous
    actions: 5,000 frames, off-policy only, each step replayed about 4 times (6). The environments
    replace the threads; a batch of 16 segments replaces one update by each thread. The start of
    learning is unspecified in the paper; our choice."""

    frame_stack: Annotated[int, Range(1)] = 4
    """Observations stacked in the network's input. Paper: 4 frames (4); continuous actions: 1."""

    convolutions: Annotated[Convolutions | None, Sizes(each=3)] = DQN_CONVOLUTIONS
    """(channels, kernel, stride) of each convolution, for images; None: chosen by image size
    (ours). Paper: section 4."""

    vector_sizes: Annotated[tuple[int, ...], Sizes()] = (64,)
    """Hidden layers before the shared one, for float vectors. Unspecified in the paper; our
    choice."""

    hidden_size: Annotated[int, Range(1)] = 512
    """Units of the layer after the torso. Paper: 512 (4)."""

    orthogonal_gain: Annotated[float | None, Range(0.0, above=True)] = None
    """Gain of the orthogonal initial weights of convolutions and hidden layer; None: Haiku's
    default weights. Unspecified in the paper; our choice."""

    memory_size: Annotated[int, Range(0)] = 0
    """Units of an LSTM after the hidden layer; 0 for none. Paper: none."""

    shared_network: bool = True
    """Whether policy and values share all layers but the last. Without stochastic dueling, Q shares
    none. Paper: yes (2)."""

    advantage_size: Annotated[int, Range(1)] = 64
    """Continuous actions only: hidden units of the advantage network, or of the layer in which Q
    takes the action. Paper: "small" (6); our choice."""

    @property
    def evaluation_average_decay(self) -> float:
        """Decay of the average with which evaluation acts (`evaluates_average`); 0: no average."""
        return self.average_decay if self.exploit_average else 0.0

    def __post_init__(self) -> None:
        check_fields(self)
        if self.replay.pace != "rounds":
            raise ValueError(
                f"ReplayConfig.pace must be rounds for ACER, got {self.replay.pace!r}."
            )

    @classmethod
    def atari(cls) -> "Config":
        """`paper_atari`, but steps shrink less with the mean over a batch (docs/results/gpu)."""
        return cls(
            average_decay=0.99,
            learning_rate=2.5e-4,
            rmsprop_decay=0.99,
            rmsprop_epsilon=1e-8,
            max_gradient_norm=0.5,
            orthogonal_gain=1.41,  # about sqrt(2): features keep their size (docs/results/atari)
        )

    @classmethod
    def atari_laptop(cls) -> "Config":
        """`atari` with half the channels and units, and replayed batches of 4 segments, not 16.

        This gives four times as many updates, and 450 steps/s on one core (docs/results/atari).
        """
        atari = cls.atari()
        return dataclasses.replace(
            atari,
            replay=dataclasses.replace(atari.replay, batch_size=4),
            convolutions=tuple((c // 2, kernel, stride) for c, kernel, stride in DQN_CONVOLUTIONS),
            hidden_size=256,
        )

    @classmethod
    def paper_workers(cls) -> "Config":
        """The paper's agent for Atari, for one of its 16 actor-learners (4, Algorithm 1).

        Each has one environment, 50,000 frames of replay, and computes gradients of one segment.
        The server has RMSProp's statistics, and the average policy decays with its updates.
        """
        replay = dataclasses.replace(
            _ATARI_REPLAY, batch_size=1, min_rows=_ATARI_REPLAY.min_rows // _BATCH
        )
        return cls(replay=replay, average_decay=_DECAY, rmsprop_decay=_DECAY)

    @classmethod
    def paper_mujoco(cls, **changes: Any) -> "Config":
        """The paper's agent for continuous actions (section 6)."""
        papers: dict[str, Any] = {
            "average_decay": _CONTINUOUS_PER_BATCH,
            "truncation": 5.0,
            "entropy_cost": 0.0,
            "max_abs_reward": UNLIMITED,
            "learning_rate": 2.2e-4,  # near the middle of the searched range, as is delta
            "rmsprop_epsilon": 4e-5,
            "max_gradient_norm": 0.8,
            "sequence_length": 51,
            "replay": _MUJOCO_REPLAY,
            "hidden_size": 64,
            "frame_stack": 1,
        }
        return cls(**{**papers, **changes})

    @classmethod
    def small(cls, **changes: Any) -> "Config":
        """For tiny tasks with discrete actions: minutes on two cores.

        All values are ours except the length of segments. With half of it, CartPole falls back
        after it was solved.
        """
        replay = dataclasses.replace(
            _ATARI_REPLAY, replay_ratio=8.0, capacity=6_250, min_rows=500, batch_size=_SMALL_BATCH
        )
        ours = {
            "average_decay": 0.99,
            "reward_scale": 5.0,
            "entropy_cost": 0.01,
            "learning_rate": 1e-3,
            "replay": replay,
        }
        return cls(**{**_SMALL, **ours, **changes})

    @classmethod
    def small_continuous(cls, **changes: Any) -> "Config":
        """For small tasks with continuous actions: minutes on two cores. All values are ours."""
        ours = {
            "average_decay": 0.995,
            "reward_scale": 50.0,
            "learning_rate": 5e-4,
            "sequence_length": 11,
            "replay": dataclasses.replace(_MUJOCO_REPLAY, capacity=10_000, replay_ratio=16.0),
            "shared_network": False,
        }
        return cls.paper_mujoco(**{**_SMALL, **ours, **changes})


PRESETS: dict[str, Callable[[], Config]] = {
    "paper_atari": Config,
    "atari": Config.atari,
    "atari_laptop": Config.atari_laptop,
    "paper_workers": Config.paper_workers,
    "paper_mujoco": Config.paper_mujoco,
    "small": Config.small,
    "small_continuous": Config.small_continuous,
    # For a million frames of MinAtar's games (docs/results/minatar).
    "small_minatar": lambda: Config.small(
        learning_rate=4e-3, learning_rate_half_life=10_000.0, retrace_lambda=0.8
    ),
}


def default_preset(environment: str, spec: EnvironmentSpec) -> str:
    """`atari_laptop` for large images; else `small`, or one for MinAtar or continuous actions."""
    if is_large_image(spec):
        return "atari_laptop"
    if not isinstance(spec.actions, specs.DiscreteArray):
        return "small_continuous"
    return "small_minatar" if "minatar" in environment.lower() else "small"
