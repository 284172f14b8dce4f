"""Reactor's configuration: the paper's values, or ours where the paper specifies none."""

import dataclasses
from collections.abc import Callable
from typing import Annotated, Any, Literal

from ...basics.validation import Range, Sizes, check_field, check_fields
from ...datatypes import EnvironmentSpec, ReplayConfig
from ...networks.torsos import REACTOR_CONVOLUTIONS, Convolutions
from ..base import UNLIMITED, is_large_image

_REPLAY = ReplayConfig(selector="contextual")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config:
    """Reactor. Sections refer to Gruslys et al. 2018; the defaults are the preset `paper`."""

    distributional: bool = True
    """Distributional Retrace (3.2). False: expected values, the paper's "Reactor ND"."""

    policy_gradient: Literal["beta_loo", "tislr", "islr"] = "beta_loo"
    """Policy-gradient estimator (3.1): beta-leave-one-out, ACER's truncated one, or plain ISLR."""

    policy_gradient_cap: Annotated[float, Range(1.0)] = 1.0
    """c in beta = min(c, 1/mu) and in TISLR (3.1). Paper: beta = 1, so c = 1. TISLR's c is
    unspecified in the paper; our choice is 1, ACER's is 10."""

    retrace_lambda: Annotated[float, Range(0.0, 1.0)] = 1.0
    """lambda of Retrace. Paper: 1.0."""

    discount: Annotated[float, Range(0.0, 1.0)] = 0.99
    """Discount factor gamma. Unspecified in the paper; our choice, usual on Atari."""

    scale_rewards: bool = False
    """Whether the update divides rewards by the largest absolute discounted sum of rewards so far.
    All values are then in units of that sum. Our addition."""

    max_abs_reward: Annotated[float, Range(0.0, above=True)] = 1.0
    """The update clips rewards to +- this, after scaling; 1e9 clips none. Paper: 1, as in DQN."""

    num_atoms: Annotated[int, Range(2)] = 51
    """Atoms of the return distribution. Unspecified in the paper; our choice, as in C51."""

    vmin: float = -10.0
    """Smallest atom, of (scaled) returns. Unspecified in the paper; our choice, as in C51."""

    vmax: float = 10.0
    """Largest atom, of (scaled) returns. Unspecified in the paper; our choice, as in C51."""

    policy_epsilon: Annotated[float, Range(0.0, 1.0, above=True, below=True)] = 0.01
    """Share of uniform actions in the policy (3.5). Unspecified in the paper; our choice."""

    entropy_cost: Annotated[float, Range(0.0)] = 0.01
    """Weight of the entropy bonus. Unspecified in the paper; our choice."""

    entropy_half_life: Annotated[float | None, Range(0.0, above=True)] = None
    """Updates h after which the bonus has half of its weight: after n, entropy_cost / (1 + n / h).
    None: always entropy_cost. Our addition."""

    learning_rate: Annotated[float, Range(0.0, 1.0, above=True)] = 5e-5
    """Adam's learning rate. Paper: 5e-5 (3.5)."""

    adam_b1: Annotated[float, Range(0.0, 1.0, below=True)] = 0.0
    """Adam's momentum. Paper: 0 (3.5)."""

    adam_b2: Annotated[float, Range(0.0, 1.0, below=True)] = 0.999
    """Adam's decay of squared gradients. Unspecified in the paper; our choice, Adam's default."""

    adam_epsilon: Annotated[float, Range(0.0, above=True)] = 1e-8
    """Adam's epsilon. Unspecified in the paper; our choice, Adam's default: with a loss that is a
    mean over time, 1e-4 is larger than most gradients, which makes Adam nearly SGD. On MinAtar
    Breakout 1e-8 learns faster (docs/results/corrections)."""

    target_update_period: Annotated[int, Range(1)] = 1000
    """Updates between copies into the target network. Paper: 1000 (4.1)."""

    sequence_length: Annotated[int, Range(2)] = 33
    """Rows of a sequence, one more than its transitions. Paper: 33 (3.4)."""

    sequence_period: Annotated[int, Range(1)] = 1
    """Rows between the starts of adjacent sequences. Paper: 1, all overlapping ones (3.3)."""

    initial_state: Literal["zero", "stored"] = "zero"
    """Recurrent state at a sequence's first row: zeros, or the state that the actor had there.
    Unspecified in the paper; our choice."""

    replay: ReplayConfig = _REPLAY
    """Replay. Paper: batches of 4, 4 to 6 acting steps per update (3.4), importance exponent 1
    (3.3). Capacity, start of learning and uniform fraction are unspecified in the paper; our
    choice."""

    frame_stack: Annotated[int, Range(1)] = 1
    """Observations stacked in the network's input. Paper: 1, with an LSTM instead (appendix)."""

    convolutions: Annotated[Convolutions | None, Sizes(each=3)] = REACTOR_CONVOLUTIONS
    """(channels, kernel, stride) of each convolution, for images; None: chosen by image size
    (ours). Paper: appendix."""

    vector_sizes: Annotated[tuple[int, ...], Sizes()] = (64,)
    """Hidden layers before the shared one, for float vectors. The paper has images only; our
    choice."""

    shared_size: Annotated[int, Range(1)] = 128
    """Units of the layer that policy and values share. Paper: 128 (appendix)."""

    memory_size: Annotated[int, Range(1)] = 128
    """Units of each LSTM. Paper: 128 (appendix)."""

    head_size: Annotated[int, Range(1)] = 32
    """Hidden units of each head. Paper: 32 (appendix)."""

    orthogonal_gain: Annotated[float | None, Range(0.0, above=True)] = None
    """Gain of the orthogonal initial weights of convolutions and shared layer; None: Haiku's
    default weights. Unspecified in the paper; our choice."""

    recurrent: bool = True
    """Whether to use LSTMs. False: layers without memory replace them (our ablation)."""

    def __post_init__(self) -> None:
        check_fields(self)
        check_field(self, "vmax", Range(self.vmin, above=True))
        check_field(self.replay, "capacity", Range(self.sequence_length))

    @classmethod
    def paper_workers(cls) -> "Config":
        """The paper's agent for one of its 10 workers around a parameter server (3.5).

        Replay, batches of 4 and acting steps per update are per worker; momentum is 0 because of
        the asynchrony. The target network is copied every 1000 updates of the server. The capacity
        is unspecified in the paper; our choice: a tenth of `paper`'s.
        """
        replay = dataclasses.replace(_REPLAY, capacity=_REPLAY.capacity // 10)
        return cls(replay=replay)

    @classmethod
    def small(cls, **changes: Any) -> "Config":
        """For tiny tasks and vector observations: minutes on two cores. All values are ours."""
        small = cls(
            scale_rewards=True,
            max_abs_reward=UNLIMITED,
            vmin=-2.0,
            vmax=2.0,
            # Else the policy becomes deterministic before its values mean anything.
            policy_epsilon=0.05,
            # With 0.01 a policy stays uniform where a step is worth a hundredth of the return.
            entropy_cost=0.001,
            learning_rate=1e-3,
            target_update_period=50,
            sequence_length=17,
            replay=dataclasses.replace(_REPLAY, capacity=100_000, batch_size=16, min_rows=500),
            convolutions=None,
            shared_size=32,
            memory_size=32,
        )
        return dataclasses.replace(small, **changes)

    @classmethod
    def atari_laptop(cls) -> "Config":
        """`small` with half of the paper's channels (docs/results/atari). All values are ours."""
        return cls.small(
            learning_rate=5e-4,
            adam_b1=0.9,  # with 0 the inputs of the memories grew until their gradients were 0
            entropy_half_life=10_000.0,
            target_update_period=100,
            replay=dataclasses.replace(_REPLAY, capacity=500_000, acting_steps_per_update=8.0),
            convolutions=tuple((c // 2, k, stride) for c, k, stride in REACTOR_CONVOLUTIONS),
            shared_size=128,
            memory_size=64,
            orthogonal_gain=1.41,  # about sqrt(2): features keep their size
        )

    @classmethod
    def small_minatar(cls) -> "Config":
        """For a million frames of MinAtar's games (docs/results/minatar). All values are ours."""
        return cls.small(
            policy_gradient_cap=10.0,
            discount=0.94,  # an action soon pays
            vmin=-0.5,
            vmax=1.0,
            policy_epsilon=0.02,
            entropy_cost=0.003,
            entropy_half_life=5_000.0,
            learning_rate=5e-4,
            adam_b1=0.9,
            replay=dataclasses.replace(
                cls.small().replay, selector="proportional", acting_steps_per_update=16.0
            ),
            shared_size=128,
            memory_size=64,
            head_size=64,
            recurrent=False,  # one observation tells the state
        )


PRESETS: dict[str, Callable[[], Config]] = {
    "paper": Config,
    "atari_laptop": Config.atari_laptop,
    "paper_workers": Config.paper_workers,
    "small": Config.small,
    "small_minatar": Config.small_minatar,
    # `small` becomes deterministic on catch too early with some seeds (docs/results/reactor).
    "small_short": lambda: Config.small(policy_epsilon=0.1, entropy_cost=0.01),
}


def default_preset(environment: str, spec: EnvironmentSpec) -> str:
    """`atari_laptop` for large images; else `small`, or its variant for MinAtar, catch, memory."""
    if "minatar" in environment.lower():
        return "small_minatar"
    if environment in ("catch", "memory"):
        return "small_short"
    return "atari_laptop" if is_large_image(spec) else "small"
