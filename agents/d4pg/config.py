"""D4PG's configuration: the paper's values, and "ours" where the paper is silent."""

import dataclasses
from collections.abc import Callable
from typing import Any, Literal

from ..._validation import check_integer, check_one_of, check_range, check_sizes
from ...datatypes import EnvironmentSpec, ReplayConfig
from ...networks.d4pg import ACTION_INPUTS, D4PG_CONVOLUTIONS
from ..base import paper_or_small

CRITICS = ("categorical", "mixture_of_gaussians", "scalar")
EXPLORATIONS = ("fixed", "per_actor")
_REPLAY = ReplayConfig(
    selector="proportional", batch_size=256, acting_steps_per_update=8.0, priority_exponent=0.6
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config:
    """D4PG. Sections are those of Barth-Maron et al. 2018; the defaults are `paper()`.

    "Control suite" is Tassa et al. 2018, where the same authors ran the same agent and say more.
    """

    critic: Literal["categorical", "mixture_of_gaussians", "scalar"] = "categorical"
    """The critic's distribution (appendix A); "scalar" is DDPG's, without a distribution."""

    num_atoms: int = 51
    """Atoms of the categorical critic, >= 2. Ours: not found. Control suite: 101."""

    vmin: float = -150.0
    """Smallest atom: below any return's expectation. Control suite: -150."""

    vmax: float = 150.0
    """Largest atom: above any return's expectation. Control suite: 150."""

    mixture_components: int = 5
    """Gaussians in the mixture, >= 1. Ours: not found."""

    mixture_samples: int = 16
    """Samples of the target for the mixture's cross-entropy (appendix A), >= 1. Ours: not found."""

    mixture_min_scale: float = 0.01
    """Least standard deviation in the mixture, > 0, in units of the return. Ours: not found."""

    return_unit: float = 1.0
    """What a mixture's or a scalar critic's outputs count in, > 0: about the size of returns. Ours:
    the paper has no such number, so 1. Adam's steps are of one size, however large returns are."""

    n_step: int = 5
    """N of the N-step returns (section 3), >= 1. Paper: 5, compared with 1."""

    discount: float = 0.99
    """gamma, in [0, 1]. Control suite: 0.99."""

    exploration: Literal["fixed", "per_actor"] = "fixed"
    """Gaussian noise (Algorithm 1): "fixed", one sigma for all actors; "per_actor", one for each
    between sigma_min and sigma_max (control suite). Ours: geometric spacing."""

    sigma: float = 0.3
    """Noise's standard deviation if "fixed", >= 0, where half the bounds' distance is 1. Ours:
    Algorithm 1's constant was not found."""

    sigma_min: float = 1 / 32
    """That of the first actor if "per_actor", > 0. Control suite: 1/32."""

    sigma_max: float = 1.0
    """That of the last actor if "per_actor". Control suite: 1."""

    policy_learning_rate: float = 1e-4
    """Adam's for the policy, alpha of Algorithm 1. Control suite: 1e-4."""

    critic_learning_rate: float = 1e-4
    """Adam's for the critic, beta of Algorithm 1. Control suite: 1e-4."""

    max_action_gradient_norm: float | None = None
    """dQ/da is shrunk to this norm where it is longer, > 0; None never does, as Algorithm 1."""

    target_update_period: int = 100
    """Updates between copies into the target networks. Control suite: 100, hard copies."""

    replay: ReplayConfig = _REPLAY
    """Batches of 256, 10^6 rows, priority exponent 0.6 (control suite), importance weights
    1 / (R p) (Algorithm 1); first update, share of uniform draws and pace are ours."""

    policy_sizes: tuple[int, ...] = (300, 200)
    """The policy's hidden layers. Control suite: 300, 200."""

    critic_sizes: tuple[int, ...] = (400, 300)
    """The critic's hidden layers. Control suite: 400, 300."""

    layer_norm: bool = False
    """LayerNorm and tanh in place of ReLU in both first layers. Ours (an option): False."""

    action_input: Literal["second_layer", "concatenated"] = "second_layer"
    """Where the critic takes the action: added to its second layer (control suite), or beside the
    features in its first."""

    convolutions: tuple[tuple[int, int, int], ...] = D4PG_CONVOLUTIONS
    """(channels, kernel, stride) of each convolution, for images. Control suite: two of 32, 3x3."""

    pixel_features: int = 50
    """Units behind the convolutions, with LayerNorm and tanh. Control suite: 50."""

    def __post_init__(self) -> None:
        check_one_of(self, "critic", CRITICS)
        check_one_of(self, "exploration", EXPLORATIONS)
        check_one_of(self, "action_input", ACTION_INPUTS)
        check_one_of(self, "layer_norm", (True, False))
        check_range(self, "vmin")
        check_range(self, "vmax")
        check_range(self, "discount", 0.0, 1.0)
        check_range(self, "sigma", 0.0)
        for field in ("sigma_min", "mixture_min_scale", "return_unit"):
            check_range(self, field, 0.0, above=True)
        for field in ("policy_learning_rate", "critic_learning_rate"):
            check_range(self, field, 0.0, above=True)
        check_range(self, "sigma_max", self.sigma_min)
        if self.max_action_gradient_norm is not None:
            check_range(self, "max_action_gradient_norm", 0.0, above=True)
        check_integer(self, "num_atoms", 2)
        for field in ("n_step", "target_update_period", "pixel_features"):
            check_integer(self, field, 1)
        for field in ("mixture_components", "mixture_samples"):
            check_integer(self, field, 1)
        for field in ("policy_sizes", "critic_sizes", "convolutions"):
            check_sizes(self, field)
        self._check_together()

    def _check_together(self) -> None:
        if self.vmin >= self.vmax:
            raise ValueError(
                f"Config.vmin must be less than vmax, got vmin {self.vmin}, vmax {self.vmax}."
            )
        for field, least in (("policy_sizes", 1), ("critic_sizes", 2)):
            sizes = getattr(self, field)
            if len(sizes) < least:
                raise ValueError(
                    f"Config.{field} must name at least {least} hidden layers, got {sizes}."
                )

    @classmethod
    def paper(cls, **changes: Any) -> "Config":
        """The paper's agent."""
        return dataclasses.replace(cls(), **changes)

    @classmethod
    def control_suite(cls, **changes: Any) -> "Config":
        """The same authors' settings for the DeepMind control suite (Tassa et al. 2018)."""
        # Eight updates in one call are a third faster on a CPU (benchmarks/d4pg_step.py).
        replay = dataclasses.replace(_REPLAY, updates_per_call=8)
        config = cls(num_atoms=101, exploration="per_actor", replay=replay)
        return dataclasses.replace(config, **changes)

    @classmethod
    def small(cls, **changes: Any) -> "Config":
        """For small tasks such as Pendulum: minutes on two cores. All values are ours."""
        return dataclasses.replace(
            cls(
                vmin=-300.0,
                vmax=0.0,
                num_atoms=51,
                discount=0.97,
                exploration="per_actor",
                policy_learning_rate=1e-3,
                critic_learning_rate=1e-3,
                mixture_min_scale=1.0,
                return_unit=100.0,
                policy_sizes=(64, 64),
                critic_sizes=(128, 128),
                replay=ReplayConfig(
                    selector="proportional",
                    capacity=100_000,
                    batch_size=128,
                    acting_steps_per_update=4.0,
                    updates_per_call=8,
                    priority_exponent=0.6,
                ),
            ),
            **changes,
        )

    @classmethod
    def scalar(cls) -> "Config":
        """Ablation: no distribution, DDPG's critic."""
        return cls.paper(critic="scalar")

    @classmethod
    def mixture_of_gaussians(cls) -> "Config":
        """Ablation (appendix A): a mixture of Gaussians in place of the categorical critic."""
        return cls.paper(critic="mixture_of_gaussians")

    @classmethod
    def one_step(cls) -> "Config":
        """Ablation: N = 1."""
        return cls.paper(n_step=1)

    @classmethod
    def uniform_replay(cls) -> "Config":
        """Ablation: no prioritisation."""
        return cls.paper(replay=dataclasses.replace(_REPLAY, selector="uniform"))

    @classmethod
    def sigma_per_actor(cls) -> "Config":
        """Each actor explores by another sigma, as in the control suite."""
        return cls.paper(exploration="per_actor")


PRESETS: dict[str, Callable[[], Config]] = {
    "paper": Config.paper,
    "control_suite": Config.control_suite,
    "small": Config.small,
    "scalar": Config.scalar,
    "mixture_of_gaussians": Config.mixture_of_gaussians,
    "one_step": Config.one_step,
    "uniform_replay": Config.uniform_replay,
    "sigma_per_actor": Config.sigma_per_actor,
}


def default_preset(environment: str, spec: EnvironmentSpec) -> str:
    """`control_suite` for its tasks; else `paper` for images, and `small` for vectors."""
    if environment.startswith("dm_control:"):
        return "control_suite"
    return paper_or_small(environment, spec)
