"""Pure data that everything may import: specs, time steps, rows, sequences and samples.

`E` denotes the environments that are stepped together, `B` a batch, `T` the transitions of a
sequence, so that a sequence has `T + 1` rows.
"""

import dataclasses
from typing import Annotated, Any, Literal, NamedTuple, Protocol, TypeAlias, runtime_checkable

import dm_env
import numpy as np
from dm_env import specs

from .basics.validation import Range, check_fields

# A time step in arrival form: `reward` and `discount` arrived with `observation`. All four fields
# are arrays: `step_type` int32 (`dm_env.StepType`), `reward` and `discount` float32. On a first
# step the reward is 0 and the discount 1. The discount is 0 only on termination: a last step that
# was cut off by a time limit keeps 1.
TimeStep: TypeAlias = dm_env.TimeStep

ActionSpec: TypeAlias = specs.DiscreteArray | specs.BoundedArray

DEFAULT_LIMIT = 10_000  # transitions of an episode, where an environment has no limit of its own


class EnvironmentSpec(NamedTuple):
    """What one environment (not a vector of them) takes and gives.

    Attributes:
      observations: one array: a uint8 image `[height, width, channels]` or a float32 array.
      actions: `DiscreteArray` (int32 scalars 0 .. num_values - 1) or a float32 `BoundedArray`.
      max_episode_steps: transitions after which an episode is cut off; None if it is unknown,
        `DEFAULT_LIMIT` where the environment has no limit of its own.
      note: for the log: what was changed in the observations, a sentence; empty if nothing was.
      masks_actions: whether observations end, on their last axis, in a mask of the legal actions.
    """

    observations: specs.Array
    actions: ActionSpec
    max_episode_steps: int | None = None
    note: str = ""
    masks_actions: bool = False


class VectorEnvironment(Protocol):
    """`E` environments, stepped together; each starts its next episode by itself.

    The step after a last step ignores the action given for that environment and returns the first
    step of its next episode (as in `dm_env`). All arrays have a leading axis `E`.
    """

    @property
    def num_envs(self) -> int:
        """The number of environments E."""

    @property
    def spec(self) -> EnvironmentSpec:
        """The spec of one of them."""

    def reset(self) -> TimeStep:
        """Starts a new episode in every environment: first steps, `[E, ...]`."""

    def step(self, actions: np.ndarray) -> TimeStep:
        """The time steps `[E, ...]` that follow actions `[E, ...]`."""

    def render(self) -> np.ndarray:
        """A picture of the first environment: uint8 `[height, width, 3]`."""

    def close(self) -> None:
        """Releases what the environments hold. Calling it twice does no harm."""


@runtime_checkable
class Resumable(Protocol):
    """What a `VectorEnvironment` may also offer: the exact continuation of its episodes.

    An environment into which a state is restored, made with the same arguments, returns the same
    time steps for the same actions, bit for bit, later episodes included.
    """

    def state(self) -> Any:
        """The complete state, random numbers included: plain data, which need not be a copy.

        A ValueError says why there is none; a resumed run then begins new episodes.
        """

    def restore(self, state: Any) -> None:
        """Restores the state of another environment, before or after the first reset.

        A ValueError refuses the state of an environment that is not like this one.
        """


Array: TypeAlias = Any  # of JAX or NumPy, or its `jax.ShapeDtypeStruct`


class Row(NamedTuple):
    """One time step t: what arrived, and what was then done.

    Attributes:
      observation: the observation at t.
      reward, discount: float32 `[]`, arrived with the observation; see `TimeStep`.
      is_first: bool `[]`, whether an episode begins here.
      is_last: bool `[]`, whether an episode ends here; the row's action is then meaningless.
      action: what was chosen at t.
      extras: what the agent wants back (`Decision.extras`): a dictionary of arrays.
    """

    observation: Any
    reward: Array
    discount: Array
    is_first: Array
    is_last: Array
    action: Array
    extras: Any


def rows_of(timestep: TimeStep, action: Array, extras: Any) -> Row:
    """Rows `[E, ...]` of time steps and of the decisions made on them."""
    arrived = timestep.observation, timestep.reward, timestep.discount
    return Row(*arrived, timestep.first(), timestep.last(), action, extras)


class Sample(NamedTuple):
    """A batch of sequences out of a replay.

    Attributes:
      rows: a `Row` of arrays `[B, T+1, ...]`. Extras that `SequenceSpec.first_row_extras` names are
        `[B, ...]` instead: they belong to the sequence's first row.
      weights: float32 `[B]`, importance weights, computed by the replay.
      mask: bool `[B, T+1]`, False for the padding after the end of an episode (always True where
        sequences may cross episodes).
    """

    rows: Row
    weights: Array
    mask: Array


def stacked_shape(shape: tuple[int, ...], frame_stack: int) -> tuple[int, ...]:
    """The shape of `frame_stack` observations of a shape, put together along the last axis."""
    if frame_stack == 1:
        return shape
    if not shape:
        raise ValueError(f"frame_stack must be 1 for observations without axes, got {frame_stack}.")
    return (*shape[:-1], shape[-1] * frame_stack)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SequenceSpec:
    """How a replay cuts the stream of rows into sequences. Static.

    Attributes:
      length: the rows of a sequence, T + 1; at least 2.
      period: rows between the starts of adjacent sequences; 1 makes every row a start.
      crosses_episodes: whether a sequence continues into the next episode. If not, starts count
        from the episode's first row, and a sequence that meets the end is padded and masked.
      extras: a dictionary of `jax.ShapeDtypeStruct`, what `Decision.extras` looks like.
      first_row_extras: names of extras that matter only at a sequence's first row (a recurrent
        state); replays keep them only where a sequence can start.
      frame_stack: observations k that are seen at once. Rows hold one of them; replays put them
        together, so a `Sample` has the newest k of the episode along the last axis, oldest first,
        and zeros for those before the episode's first.
    """

    length: Annotated[int, Range(2)]
    period: Annotated[int, Range(1)] = 1
    crosses_episodes: bool = True
    frame_stack: Annotated[int, Range(1)] = 1
    extras: Any = dataclasses.field(default_factory=dict)
    first_row_extras: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_fields(self)
        unknown = sorted(set(self.first_row_extras) - set(self.extras))
        if unknown:
            raise ValueError(
                f"first_row_extras names {unknown}, but extras has only {sorted(self.extras)}."
            )


def sample_shape(environment_spec: EnvironmentSpec, sequence: SequenceSpec, batch: int) -> Sample:
    """A batch of B sequences, with a `jax.ShapeDtypeStruct` in place of each array."""
    import jax  # not above: processes of environments need none

    def arrays(like: Any, *leading: int) -> Any:
        return jax.tree.map(lambda x: jax.ShapeDtypeStruct((*leading, *x.shape), x.dtype), like)

    seen, number, flag = environment_spec.observations, np.empty((), np.float32), np.empty((), bool)
    stack = jax.ShapeDtypeStruct(stacked_shape(seen.shape, sequence.frame_stack), seen.dtype)
    extras = dict(sequence.extras)
    first = {name: extras.pop(name) for name in sequence.first_row_extras}
    row = Row(stack, number, number, flag, flag, environment_spec.actions, extras)
    rows = arrays(row, batch, sequence.length)
    rows = rows._replace(extras={**rows.extras, **arrays(first, batch)})
    return Sample(rows, weights=arrays(number, batch), mask=rows.is_last)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReplayConfig:
    """How experience is stored, selected and replayed."""

    selector: Literal["uniform", "proportional", "contextual"] = "uniform"
    """How sequences are drawn: uniformly; in proportion to priorities ("proportional"), where a new
    sequence has the largest priority so far; or "contextual", where a new sequence has a mean of
    the priorities of its neighbours in time."""

    capacity: Annotated[int, Range(1)] = 1_000_000
    """Rows (time steps) stored, over all environments."""

    capacity_per_environment: bool = False
    """Whether the capacity counts the rows of each environment, instead of all together."""

    min_rows: Annotated[int, Range(1)] = 1_000
    """Rows stored before replayed sequences are learned from, over all environments; at most the
    capacity."""

    batch_size: Annotated[int, Range(1)] = 4
    """Sequences in one update."""

    acting_steps_per_update: Annotated[float, Range(0.0, above=True)] = 5.0
    """Time steps of the environments per update, if pace is "steady"."""

    updates_per_call: Annotated[int, Range(1)] = 1
    """Updates on replayed sequences in one jitted call. The call waits until all of them are due;
    if pace is "rounds", this may take further rounds. Their batches are drawn together, so
    priorities lag by one call."""

    pace: Literal["steady", "rounds"] = "steady"
    """When to update: "steady" updates once every acting_steps_per_update time steps; "rounds"
    updates when every environment has one more complete sequence."""

    replay_ratio: Annotated[float, Range(0.0)] = 4.0
    """Mean number of times that a sequence is replayed, if pace is "rounds". The number of
    updates from the replay in a round has a Poisson distribution with mean replay_ratio *
    environments / batch_size."""

    on_policy: bool = False
    """Whether a round begins with one update on the newest sequence of every environment. The
    replay_ratio may then be 0."""

    priority_exponent: Annotated[float, Range(0.0)] = 1.0
    """Exponent alpha of the priorities; 0 makes every selector uniform."""

    importance_exponent: Annotated[float, Range(0.0, 1.0)] = 1.0
    """Exponent beta of the importance weights (1 / (N P))^beta; 1 removes the bias completely."""

    uniform_fraction: Annotated[float, Range(0.0, 1.0)] = 0.1
    """Fraction of the draws that ignore priorities. Its inverse bounds the importance weights."""

    def __post_init__(self) -> None:
        check_fields(self)
        if not self.capacity_per_environment and self.min_rows > self.capacity:
            raise ValueError(
                f"ReplayConfig.min_rows must be at most the capacity, {self.capacity}, got "
                f"{self.min_rows}."
            )
        if self.on_policy and self.pace != "rounds":
            raise ValueError(
                f"ReplayConfig.pace must be rounds if on_policy is True, got {self.pace!r}."
            )
        if self.pace == "rounds" and not self.replay_ratio and not self.on_policy:
            raise ValueError(
                "ReplayConfig.replay_ratio must be > 0 if on_policy is False, got "
                f"{self.replay_ratio}: nothing would be learned."
            )

    @property
    def draw_size(self) -> int:
        """Sequences in one draw: the batches of all updates in a call."""
        return self.batch_size * self.updates_per_call

    def for_environments(self, num_envs: int) -> "ReplayConfig":
        """The same config with its capacity counted over all of E >= 1 environments."""
        total = self.capacity * (num_envs if self.capacity_per_environment else 1)
        return dataclasses.replace(self, capacity=total, capacity_per_environment=False)
