"""D4PG's configuration: the paper's values, or ours where the paper specifies none."""

import dataclasses
from collections.abc import Callable
from typing import Annotated, Any, Literal

from ...basics.validation import Range, Sizes, check_field, check_fields
from ...datatypes import ReplayConfig
from ...networks.d4pg import D4PG_CONVOLUTIONS
from ...networks.torsos import Convolutions

_REPLAY = ReplayConfig(
    selector="proportional", batch_size=256, acting_steps_per_update=8.0, priority_exponent=0.6
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config:
    """D4PG. Sections refer to Barth-Maron et al. 2018; the defaults are the preset `paper`.

    "Control suite" is Tassa et al. 2018, where the same authors give more settings of the agent.
    """

    critic: Literal["categorical", "mixture_of_gaussians", "scalar"] = "categorical"
    """The critic's distribution (appendix A); "scalar" is DDPG's critic, without a distribution."""

    num_atoms: Annotated[int, Range(2)] = 51
    """Atoms of the categorical critic. Unspecified in the paper; our choice. Control suite: 101."""

    vmin: float = -150.0
    """Smallest atom, below the expected return of every state. Control suite: -150."""

    vmax: float = 150.0
    """Largest atom, above the expected return of every state. Control suite: 150."""

    mixture_components: Annotated[int, Range(1)] = 5
    """Gaussians in the mixture. Unspecified in the paper; our choice."""

    mixture_samples: Annotated[int, Range(1)] = 16
    """Samples of the target for the mixture's cross-entropy (appendix A). Unspecified in the paper;
    our choice."""

    mixture_min_scale: Annotated[float, Range(0.0, above=True)] = 0.01
    """Smallest standard deviation in the mixture, in units of the return. Unspecified in the paper;
    our choice."""

    return_unit: Annotated[float, Range(0.0, above=True)] = 1.0
    """Factor from the outputs of a mixture or scalar critic to returns. Set it near the size of
    returns, since Adam's steps do not grow with them. The paper has no such factor; ours: 1."""

    scale_rewards: bool = False
    """Whether the update divides rewards by the largest absolute discounted sum of rewards so far.
    All values are then in units of that sum. Our addition."""

    normalize_observations: bool = False
    """Whether float observations have mean 0 and variance 1 over all rows drawn so far (SimBa, Lee
    et al. 2025, section 4.1: over rows that arrived), never of images. Our addition."""

    n_step: Annotated[int, Range(1)] = 5
    """N of the N-step returns (section 3). Paper: 5, compared with 1."""

    discount: Annotated[float, Range(0.0, 1.0)] = 0.99
    """Discount factor gamma. Control suite: 0.99."""

    exploration: Literal["fixed", "per_actor"] = "fixed"
    """Gaussian noise on actions (Algorithm 1). "fixed": one sigma for all actors. "per_actor": each
    actor has its own, between sigma_min and sigma_max (control suite). Geometric spacing is our
    choice."""

    sigma: Annotated[float, Range(0.0)] = 0.3
    """Standard deviation of "fixed" noise, in units of half the range of the actions. Unspecified
    in the paper (Algorithm 1); our choice."""

    noise_correlation: Annotated[float, Range(0.0, 1.0, below=True)] = 0.0
    """Correlation of the noise at adjacent time steps. If exploration is "per_actor", it grows
    linearly from 0 for the first actor to this value for the last. The standard deviation stays
    sigma. Paper: 0 (Algorithm 1). Our addition: correlated noise moves bodies with inertia."""

    sigma_min: Annotated[float, Range(0.0, above=True)] = 1 / 32
    """The first actor's standard deviation of "per_actor" noise. Control suite: 1/32."""

    sigma_max: Annotated[float, Range(0.0, above=True)] = 1.0
    """The last actor's standard deviation, at least sigma_min. Control suite: 1."""

    policy_learning_rate: Annotated[float, Range(0.0, 1.0, above=True)] = 1e-4
    """Adam's learning rate for the policy, alpha of Algorithm 1. Control suite: 1e-4."""

    critic_learning_rate: Annotated[float, Range(0.0, 1.0, above=True)] = 1e-4
    """Adam's learning rate for the critic, beta of Algorithm 1. Control suite: 1e-4."""

    weight_decay: Annotated[float, Range(0.0, 1.0)] = 0.0
    """AdamW's, of all parameters (Loshchilov and Hutter 2019). Paper: 0, Adam. SimBa: 0.01."""

    max_action_gradient_norm: Annotated[float | None, Range(0.0, above=True)] = None
    """Largest norm of dQ/da, with actions scaled to [-1, 1]; longer gradients are scaled down to
    it. None: no limit, as in Algorithm 1."""

    preactivation_cost: Annotated[float, Range(0.0)] = 0.0
    """Weight, in the policy's loss, of half the squared norm of its outputs before tanh. It lets a
    policy leave the bounds of its actions, where the derivative of tanh is 0. Paper: 0. Our
    addition."""

    target_update_period: Annotated[int, Range(1)] = 100
    """Updates between copies into the target networks. Control suite: 100, hard copies."""

    replay: ReplayConfig = _REPLAY
    """Replay. Control suite: batches of 256, 10^6 rows, priority exponent 0.6. Algorithm 1:
    importance weights 1 / (R p). Start of learning, uniform fraction and acting steps per update
    are unspecified in the paper; our choice."""

    policy_sizes: Annotated[tuple[int, ...], Sizes(1)] = (300, 200)
    """The policy's hidden layers. Control suite: 300, 200."""

    critic_sizes: Annotated[tuple[int, ...], Sizes(2)] = (400, 300)
    """The critic's hidden layers. Control suite: 400, 300."""

    layer_norm: bool = False
    """LayerNorm and tanh instead of ReLU in the first layers of policy and critic. Our addition."""

    residual: bool = False
    """Whether the layers after the first are residual blocks, with a LayerNorm after them, and the
    first has no ReLU (SimBa, section 4.2; sizes there: 128, 128 and 512, 512, 512). Paper: no."""

    action_input: Literal["second_layer", "concatenated"] = "second_layer"
    """Where the critic takes the action: added in its second layer (control suite), or concatenated
    with the features in its first layer."""

    frame_stack: Annotated[int, Range(1)] = 1
    """Observations stacked in the networks' input. Control suite: 1; 3 for images."""

    convolutions: Annotated[Convolutions | None, Sizes(each=3)] = D4PG_CONVOLUTIONS
    """(channels, kernel, stride) of each convolution, for images; None: chosen by image size
    (ours). Control suite: two of 32, 3x3."""

    pixel_features: Annotated[int, Range(1)] = 50
    """Units after the convolutions, with LayerNorm and tanh. Control suite: 50."""

    def __post_init__(self) -> None:
        check_fields(self)
        check_field(self, "sigma_max", Range(self.sigma_min))
        check_field(self, "vmax", Range(self.vmin, above=True))
        differ = len(set(self.policy_sizes)) + len(set(self.critic_sizes)) > 2
        if self.residual and (differ or self.action_input != "concatenated"):
            raise ValueError(
                f"Config.residual needs equal policy_sizes {self.policy_sizes}, equal critic_sizes "
                f"{self.critic_sizes} and action_input 'concatenated', got {self.action_input!r}."
            )

    @classmethod
    def control_suite(cls, **changes: Any) -> "Config":
        """The same authors' settings for the DeepMind control suite (Tassa et al. 2018).

        Meant for 1e8 steps; with 500,000 `small` is better (docs/results/control).
        """
        # Eight updates per call: a third faster on a CPU (benchmarks/d4pg_step.py).
        replay = dataclasses.replace(_REPLAY, updates_per_call=8)
        config = cls(num_atoms=101, exploration="per_actor", replay=replay)
        return dataclasses.replace(config, **changes)

    @classmethod
    def small(cls, **changes: Any) -> "Config":
        """For vectors, from Pendulum to the control suite, in minutes. All values are ours."""
        small = cls(
            scale_rewards=True,
            vmin=-2.0,
            vmax=2.0,
            num_atoms=201,
            exploration="per_actor",
            noise_correlation=0.9,
            policy_learning_rate=1e-3,
            critic_learning_rate=1e-3,
            preactivation_cost=1e-4,
            convolutions=None,
            policy_sizes=(64, 64),
            critic_sizes=(128, 128),
            layer_norm=True,
            replay=ReplayConfig(
                selector="proportional",
                capacity=500_000,  # what the finger and the cheetah need (docs/results/control)
                batch_size=128,
                acting_steps_per_update=4.0,
                updates_per_call=8,
                priority_exponent=0.6,
            ),
        )
        return dataclasses.replace(small, **changes)


PRESETS: dict[str, Callable[[], Config]] = {
    "paper": Config,
    "control_suite": Config.control_suite,
    "small": Config.small,
}
