"""Agent57's configuration: the papers' values, or ours where they specify none."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Annotated, Any, Literal

from ...basics.validation import Range, Sizes, check_field, check_fields
from ...datatypes import DEFAULT_LIMIT, EnvironmentSpec, ReplayConfig
from ...networks.torsos import DQN_CONVOLUTIONS, Convolutions
from ..base import is_large_image

_REPLAY = ReplayConfig(
    selector="proportional",
    capacity=5_000_000,
    min_rows=500_000,
    batch_size=64,
    acting_steps_per_update=13_312.0,
    priority_exponent=0.9,
    importance_exponent=0.0,
    uniform_fraction=0.0,
)
# Of presets for small machines. With the paper's kernel, the novelty of a step is 20 to 30.
_SMALL: dict[str, Any] = {"num_arms": 8, "discount_high": 0.99, "kernel_epsilon": 0.1}
_SMALL |= {"trace_length": 20, "replay_period": 10}
_SHORT_EPISODE = 100  # of episodes with more steps, the replay of `small` may hold fewer than 50


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config:
    """Agent57. "Paper" is Badia et al. 2020, whose values are the defaults; NGU, R2D2 are named."""

    values: Literal["split", "mixed", "extrinsic"] = "split"
    """Value networks: one each for extrinsic and intrinsic rewards (paper); one for
    r^e + beta r^i (NGU); or one for r^e, without intrinsic rewards (R2D2)."""

    target: Literal["retrace", "double_q"] = "retrace"
    """Transformed Retrace (paper, NGU), or n-step double Q-learning (R2D2)."""

    arm_choice: Literal["bandit", "uniform", "actor", "zero"] = "bandit"
    """An actor's arm for an episode: the meta-controller's choice (paper); uniformly random (NGU as
    the paper describes it); the actor's index modulo N (NGU: N - 1); or always arm 0 (R2D2)."""

    evaluation: Literal["alternate", "greedy", "arm"] = "alternate"
    """An evaluator's arm: its own bandit's choice and the best arm, alternating every five episodes
    (paper); always the best arm; or always evaluation_arm (NGU)."""

    evaluation_arm: Annotated[int, Range(0)] = 0
    """The arm if evaluation is "arm", at most num_arms - 1. NGU: 0 (no intrinsic reward)."""

    num_arms: Annotated[int, Range(2)] = 32
    """N, the number of pairs (beta_j, gamma_j). Paper: 32."""

    intrinsic_weight: Annotated[float, Range(0.0)] = 0.3
    """beta, the largest beta_j. NGU: 0.3."""

    discounts: Literal["agent57", "ngu"] = "agent57"
    """Family gamma_j: the paper's, or NGU's from discount_middle to discount_low."""

    discount_high: Annotated[float, Range(0.0, 1.0, below=True)] = 0.9999
    """gamma_0 of the paper's family. Paper: 0.9999."""

    discount_middle: Annotated[float, Range(0.0, 1.0, below=True)] = 0.997
    """gamma between the two parts of the paper's family; NGU's largest. Paper, NGU: 0.997."""

    discount_low: Annotated[float, Range(0.0, 1.0, below=True)] = 0.99
    """gamma_{N-1}. Paper, NGU: 0.99."""

    transformed_mix: bool = False
    """Combine the values as h(h^-1(Q^e) + beta h^-1(Q^i)). Paper: plain sum; no difference seen."""

    rescale: bool = True
    """Learn rescaled values h(Q). Paper: yes; NGU in its maze: no."""

    rescaling_epsilon: Annotated[float, Range(0.0, above=True)] = 1e-3
    """epsilon of h. R2D2: 1e-3; NGU: 1e-2 in its text, 1e-3 in its table."""

    retrace_lambda: Annotated[float, Range(0.0, 1.0)] = 0.95
    """lambda of Retrace. Paper, NGU: 0.95."""

    n_step: Annotated[int, Range(1)] = 5
    """n of the double Q-learning target. R2D2: 5."""

    target_epsilon: Annotated[float, Range(0.0, 1.0)] = 0.0
    """Probability of random actions in the target policy. Paper: 0, greedy; NGU's table: 0.01."""

    actor_epsilon: Annotated[float, Range(0.0, 1.0, above=True)] = 0.4
    """epsilon in epsilon_l = epsilon^(1 + alpha l / (L - 1)) of actor l. Paper: 0.4."""

    actor_epsilon_exponent: Annotated[float, Range(0.0)] = 8.0
    """alpha in the same formula. The paper does not confirm 8; R2D2: 7."""

    evaluation_epsilon: Annotated[float, Range(0.0, 1.0)] = 0.01
    """Probability of random actions in evaluation. NGU: 0.01."""

    evaluation_average_decay: Annotated[float, Range(0.0, 1.0, below=True)] = 0.0
    """Decay, per update, of the averaged value-network parameters with which evaluation acts; 0:
    the newest parameters (papers). Our addition."""

    bandit_window: Annotated[int, Range(1)] = 160
    """tau, the number of pulls that an actor's bandit remembers; at least N. Paper: 160 in its
    text, 90 in table 3."""

    bandit_bonus: Annotated[float, Range(0.0)] = 1.0
    """beta_UCB, the weight of the bandit's exploration bonus, in units of the return. Paper: 1."""

    bandit_epsilon: Annotated[float, Range(0.0, 1.0)] = 0.5
    """epsilon_UCB, the probability of a uniformly random arm. Paper: 0.5."""

    evaluator_window: Annotated[int, Range(1)] = 3600
    """tau of the evaluator's bandit, in pulls; at least N. Paper: 3600."""

    evaluator_epsilon: Annotated[float, Range(0.0, 1.0)] = 0.01
    """epsilon_UCB of the evaluator's bandit. Paper: 0.01."""

    episodic_capacity: Annotated[int, Range(1)] = 30_000
    """States in the memory of an episode. NGU: 30,000."""

    num_neighbours: Annotated[int, Range(1)] = 10
    """k, at most episodic_capacity. NGU: 10. The first k states of an episode have no intrinsic
    reward (our choice)."""

    cluster_distance: Annotated[float, Range(0.0)] = 0.008
    """xi, subtracted from normalised distances. NGU: 0.008."""

    kernel_epsilon: Annotated[float, Range(0.0, above=True)] = 1e-4
    """epsilon of the kernel. NGU: 1e-3 in its text, 1e-4 in its table."""

    pseudo_count: Annotated[float, Range(0.0, above=True)] = 1e-3
    """c, added to the similarity. NGU: 0.001."""

    max_similarity: Annotated[float, Range(0.0, above=True)] = 8.0
    """s_m: states with a larger similarity have no intrinsic reward. NGU: 8."""

    max_modulator: Annotated[float, Range(1.0)] = 5.0
    """L, the largest factor of life-long novelty. NGU: 5."""

    novelty_window: Annotated[int, Range(1)] = 10_000
    """Steps of an actor after which mean and deviation of its novelty errors forget exponentially;
    before, they are cumulative. Unspecified in the papers; our choice, not measured on Atari."""

    intrinsic_rewards: Literal["stored", "recomputed"] = "stored"
    """The learner's intrinsic rewards: those that the actor stored (papers); or the stored episodic
    part times the newest predictor's life-long novelty, relative to the errors of the batch (ours).
    Stored rewards become outdated: states that were new may be familiar now."""

    embedding_refresh: Literal["episode", "step"] = "episode"
    """When actors use new embedding parameters. NGU: once per episode, from a copy in each
    actor."""

    auxiliary_frames: Annotated[int, Range(1)] = 5
    """Number of last transitions of a sequence that train embedding and novelty. NGU: 5."""

    learning_rate: Annotated[float, Range(0.0, 1.0, above=True)] = 1e-4
    """Adam's learning rate for the values. NGU: 1e-4."""

    auxiliary_learning_rate: Annotated[float, Range(0.0, 1.0, above=True)] = 5e-4
    """Adam's learning rate for embedding and novelty. NGU: 5e-4."""

    embedding_weight_decay: Annotated[float, Range(0.0)] = 1e-5
    """L2 regularisation of the action prediction. NGU: 1e-5."""

    adam_b1: Annotated[float, Range(0.0, 1.0, below=True)] = 0.9
    """Adam's momentum. NGU: 0.9."""

    adam_b2: Annotated[float, Range(0.0, 1.0, below=True)] = 0.999
    """Adam's decay rate of squared gradients. NGU: 0.999."""

    adam_epsilon: Annotated[float, Range(0.0, above=True)] = 1e-4
    """Adam's epsilon. NGU: 1e-4; R2D2: 1e-3."""

    gradient_clip: Annotated[float, Range(0.0, above=True)] = 40.0
    """Largest norm of each network's gradient. NGU: 40."""

    target_update_period: Annotated[int, Range(1)] = 1500
    """Updates between copies into the target networks. Paper: 1500; R2D2: 2500."""

    trace_length: Annotated[int, Range(1)] = 160
    """Transitions of a sequence. Paper: 160 or 80; R2D2, NGU: 80."""

    replay_period: Annotated[int, Range(1)] = 80
    """Rows between the starts of adjacent sequences; at most trace_length. Paper: 80 or 40."""

    burn_in: Annotated[int, Range(0)] = 0
    """Rows before the trace that only warm up the memory. Unspecified in the paper; our choice.
    R2D2: 40. A sequence that begins with its episode needs none and learns from all its steps (our
    choice)."""

    priority_eta: Annotated[float, Range(0.0, 1.0)] = 0.9
    """Weight of the largest error in a priority; the mean error has the rest. R2D2: 0.9."""

    replay: ReplayConfig = _REPLAY
    """Replay. NGU: batches of 64, 5e6 steps, first update at 6250 sequences, exponent 0.9.
    Importance exponent: 0, not confirmed by the papers; R2D2: 0.6. Acting steps per update: NGU has
    256 actors at 260 steps/s each and 5 updates/s."""

    network_scale: Annotated[float, Range(0.0, above=True)] = 1.0
    """Factor on channels and hidden units of all networks, for smaller machines. Our addition."""

    convolutions: Annotated[Convolutions | None, Sizes(each=3)] = DQN_CONVOLUTIONS
    """(channels, kernel, stride) of each convolution, for images; None: chosen by image size
    (ours). NGU, R2D2: DQN's."""

    vector_sizes: Annotated[tuple[int, ...], Sizes()] = (64,)
    """Hidden layers of each torso, for float vectors. The papers have images only; our choice."""

    torso_size: Annotated[int, Range(1)] = 512
    """Units of the layer after the torso. The papers do not confirm 512."""

    lstm_size: Annotated[int, Range(1)] = 512
    """Units of each LSTM. R2D2: 512."""

    head_size: Annotated[int, Range(1)] = 512
    """Hidden units of each dueling head. R2D2: 512."""

    embedding_size: Annotated[int, Range(1)] = 32
    """Size of the controllable state. NGU: 32."""

    classifier_size: Annotated[int, Range(1)] = 128
    """Hidden units of the action classifier. NGU: 128 (not confirmed)."""

    novelty_size: Annotated[int, Range(1)] = 128
    """Outputs of the random network. NGU: 128 (not confirmed)."""

    orthogonal_gain: Annotated[float | None, Range(0.0, above=True)] = None
    """Gain of the orthogonal initial weights of convolutions and of the layer after the torso of
    values; None: Haiku's default weights. Unspecified in the papers; our choice."""

    recurrent: bool = True
    """Whether to use LSTMs. False: layers without memory replace them (our ablation)."""

    def __post_init__(self) -> None:
        check_fields(self)
        check_field(self, "evaluation_arm", Range(0, self.num_arms - 1))
        check_field(self, "bandit_window", Range(self.num_arms))
        check_field(self, "evaluator_window", Range(self.num_arms))
        check_field(self, "num_neighbours", Range(1, self.episodic_capacity))
        check_field(self, "replay_period", Range(1, self.trace_length))
        if not self.discount_high >= self.discount_middle >= self.discount_low:
            raise ValueError(
                "Config.discount_high, discount_middle, discount_low must not increase, got "
                f"{self.discount_high}, {self.discount_middle}, {self.discount_low}."
            )
        check_field(self.replay, "capacity", Range(self.sequence_length))

    @property
    def sequence_length(self) -> int:
        """Rows of a sequence: burn-in, trace, and the row after it."""
        return self.burn_in + self.trace_length + 1

    @classmethod
    def atari_laptop(cls) -> "Config":
        """For 8 to 16 environments on one core: one update in 16 steps, a replay of 3.7 GB.

        All changes are ours; docs/results/atari has what each gave.
        """
        replay = dataclasses.replace(
            _REPLAY, capacity=500_000, min_rows=5_000, batch_size=8, acting_steps_per_update=16.0
        )
        ours = {"discount_middle": 0.98, "discount_low": 0.97, "intrinsic_weight": 0.03, **_SMALL}
        ours |= {"target": "double_q", "target_update_period": 25, "network_scale": 0.25}
        ours |= {"learning_rate": 5e-4, "adam_epsilon": 1e-5, "orthogonal_gain": 1.41}
        return cls(replay=replay, **ours)

    @classmethod
    def small(cls, **changes: Any) -> "Config":
        """For tiny tasks and vector observations: minutes on two cores. All values are ours."""
        small = cls(
            convolutions=None,
            discount_middle=0.97,
            discount_low=0.95,
            # Even the last actor tries new actions in 6 of 100 steps: the intrinsic values say
            # nothing about those that were never taken.
            actor_epsilon_exponent=2.0,
            evaluation_average_decay=0.995,
            bandit_window=40,
            bandit_bonus=0.1,  # returns are at most 1
            evaluator_window=200,
            episodic_capacity=500,
            num_neighbours=3,
            novelty_window=100,
            # The first rewards, of an untrained predictor, say that what nobody has seen before
            # is not new.
            intrinsic_rewards="recomputed",
            # Novelty must last until the values have propagated it, which takes one target
            # update for each step, and must end. High priorities would train the predictor
            # most on what is new, so the replay's exponent is less than the paper's.
            auxiliary_frames=20,
            auxiliary_learning_rate=1e-4,
            target_update_period=10,
            embedding_refresh="step",
            learning_rate=1e-3,
            replay=ReplayConfig(
                selector="proportional",
                capacity=5_000,
                min_rows=400,
                batch_size=32,
                acting_steps_per_update=4.0,
                priority_exponent=0.5,
                importance_exponent=0.0,
            ),
            torso_size=64,
            lstm_size=32,
            head_size=64,
            embedding_size=8,
            classifier_size=32,
            novelty_size=32,
            **_SMALL,
        )
        return dataclasses.replace(small, **changes)

    @classmethod
    def small_long(cls) -> "Config":
        """`small` with a larger replay, for long episodes: 5,000 rows are ten of Acrobot-v1.

        Where episodes are short, a large replay hides what was found only once.
        """
        return cls.small(replay=dataclasses.replace(cls.small().replay, capacity=50_000))


# The paper's ablations (section 4.1) of `small`; README.md has flags that ablate `paper`.
_SHORT_TRACE = {"trace_length": 10, "replay_period": 5}
_NO_BANDIT = {"arm_choice": "uniform", "evaluation": "arm", "discounts": "ngu", **_SHORT_TRACE}
_NO_ARMS = {**_NO_BANDIT, "values": "extrinsic", "arm_choice": "zero"}
_ABLATIONS: dict[str, dict[str, Any]] = {
    "small_meta_controller": _SHORT_TRACE,
    "small_split": _NO_BANDIT,
    "small_ngu": {**_NO_BANDIT, "values": "mixed"},
    "small_r2d2_retrace": _NO_ARMS,
    "small_r2d2": {**_NO_ARMS, "target": "double_q"},
    "small_r2d2_bandit": {**_SHORT_TRACE, "values": "extrinsic"},
}
PRESETS: dict[str, Callable[[], Config]] = {
    "paper": Config,
    "atari_laptop": Config.atari_laptop,
    "small": Config.small,
    "small_long": Config.small_long,
    **{name: functools.partial(Config.small, **parts) for name, parts in _ABLATIONS.items()},
}


def default_preset(environment: str, spec: EnvironmentSpec) -> str:
    """`atari_laptop` for large images; else `small`, or `small_long` (101 to 9,999 steps).

    The steps are the environment's own limit. An environment without one gets `small`.
    """
    if is_large_image(spec):
        return "atari_laptop"
    longest = spec.max_episode_steps or 0
    return "small_long" if _SHORT_EPISODE < longest < DEFAULT_LIMIT else "small"
