"""Our tiny tasks, and CartPole and Pendulum, in JAX.

`catch` needs sight and a little planning, `memory` memory and nothing else, `deep_sea` exploration.
Their optimal mean returns are known exactly.
"""

import dataclasses
import functools
import math
from typing import Annotated

import jax
import jax.numpy as jnp
import numpy as np
from dm_env import specs

from ..basics.machine import check_memory
from ..basics.validation import Range, check_fields
from ..datatypes import EnvironmentSpec
from .arrival import enlarge
from .pure import State, Stepped, Transition

MOVE_COST = 0.01  # of deep_sea


def _spec(size: int, num_actions: int, least: float = 0.0) -> EnvironmentSpec:
    """Numbers from the least one to 1, and discrete actions."""
    seen = specs.BoundedArray((size,), np.float32, least, 1.0, "observation")
    return EnvironmentSpec(seen, specs.DiscreteArray(num_actions, np.int32, "action"))


@dataclasses.dataclass(frozen=True)
class PureCatch:
    """A ball falls one row each step; a paddle in the last row catches it (+1) or not (-1).

    The ball starts in a random column of the first row and the paddle in the middle. Actions: 0
    moves the paddle left, 1 nowhere, 2 right; a wall stops it. The episode ends, by termination,
    when the ball is in the last row: after 9 actions. The observation is the board of 10 rows and
    5 columns, flattened: float32 `[50]`, 1 at the ball and at the paddle. (Ours; after bsuite.)
    """

    optimal_return = 1.0
    ROWS = 10
    COLUMNS = 5
    spec = _spec(ROWS * COLUMNS, num_actions=3)

    def reset(self, key: jax.Array) -> tuple[State, jax.Array]:
        """The state: the ball's row, its column, and the paddle's column."""
        ball = jax.random.randint(key, (), 0, self.COLUMNS)
        state = jnp.int32(0), ball, jnp.int32(self.COLUMNS // 2)
        return state, self._observe(*state)

    def step(self, key: jax.Array, state: State, action: jax.Array) -> Stepped:
        """See `PureEnvironment`."""
        row, ball, paddle = state
        row, paddle = row + 1, jnp.clip(paddle + action - 1, 0, self.COLUMNS - 1)
        landed = row == self.ROWS - 1
        reward = jnp.where(landed, jnp.where(ball == paddle, 1.0, -1.0), 0.0)
        seen = self._observe(row, ball, paddle)
        return (row, ball, paddle), Transition(seen, reward, landed)

    def draw(self, observation: np.ndarray) -> np.ndarray:
        """The board: uint8 `[160, 80, 3]`; ball and paddle are white."""
        board = observation.reshape(self.ROWS, self.COLUMNS, 1)
        return enlarge((255 * board).astype(np.uint8).repeat(3, axis=2), 16)

    def _observe(self, row: jax.Array, ball: jax.Array, paddle: jax.Array) -> jax.Array:
        board = jnp.zeros((self.ROWS, self.COLUMNS), jnp.float32)
        return board.at[row, ball].set(1.0).at[-1, paddle].set(1.0).ravel()


@dataclasses.dataclass(frozen=True)
class PureMemory:
    """A cue is shown once and queried later: a policy without memory has an expected return of 0.

    The first observation shows the cue, +1 or -1 with equal chance. `length` steps later comes the
    query; between them nothing is shown, not even the time, and actions do nothing. The action at
    the query must match the cue (1 for +1, 0 for -1): reward +1, otherwise -1, and termination.
    The observation is float32 `[2]`: the cue (0 when not shown) and whether this is the query.
    (Ours; after bsuite's memory length.)

    Attributes:
      length: steps from the cue to the query. An episode takes `length` + 1 actions.
    """

    length: Annotated[int, Range(1)] = 10

    optimal_return = 1.0
    spec = _spec(2, num_actions=2, least=-1.0)

    def __post_init__(self) -> None:
        check_fields(self)

    def reset(self, key: jax.Array) -> tuple[State, jax.Array]:
        """Shows a random cue. The state: steps since the cue, and the cue."""
        time, cue = jnp.int32(0), 2 * jax.random.randint(key, (), 0, 2) - 1
        return (time, cue), self._observe(time, cue)

    def step(self, key: jax.Array, state: State, action: jax.Array) -> Stepped:
        """Time passes; the answer to the query is compared with the cue."""
        time, cue = state[0] + 1, state[1]
        answered = time > self.length
        reward = jnp.where(answered, jnp.where(2 * action - 1 == cue, 1.0, -1.0), 0.0)
        return (time, cue), Transition(self._observe(time, cue), reward, answered)

    def draw(self, observation: np.ndarray) -> np.ndarray:
        """Two squares: uint8 `[32, 64, 3]`, for the cue (green is +1, red -1) and the query."""
        cue, query = observation
        picture = np.zeros((1, 2, 3), np.uint8)
        picture[0, 0, :2] = 255 * (cue < 0), 255 * (cue > 0)
        picture[0, 1] = 255 * query
        return enlarge(picture, 32)

    def _observe(self, time: jax.Array, cue: jax.Array) -> jax.Array:
        shown = jnp.where(time == 0, cue, 0)
        return jnp.stack([shown, time == self.length]).astype(jnp.float32)


@dataclasses.dataclass(frozen=True)
class PureDeepSea:
    """A diver sinks through N rows and finds the treasure only by going right N times in a row.

    The diver starts at the top left of N x N cells. Each of the two actions takes it one row down,
    one of them also one column to the left and the other to the right; a wall stops it. Going right
    costs 0.01 / N. Going right from the bottom right cell pays 1. After N actions the episode ends
    by termination. Which action goes right is drawn for each cell; on the way to the treasure each
    does equally often (to one), so a policy which prefers one of them does not find it. The optimal
    return is 0.99, the next best 0 (always left), and uniformly random play has 2^-N - 0.005 on
    average. (As bsuite's "deep_sea" of Osband et al. 2019, without noise.)

    The observation is float32 `[N * N + screen]`: the cells row by row, 1 where the diver is (all
    are 0 on the last step), then a noisy television: `screen` numbers drawn uniformly from [0, 1).

    Attributes:
      size: N.
      mapping_seed: decides which action goes right in which cell; None: action 1 everywhere.
        The run's seed does not matter: it differs between training, actors and evaluation.
      screen: numbers on the noisy television.
      remote: whether the diver has the remote control: new noise is shown only at the start and
        after a move that is not to the right (the way to the treasure is the dull one), and
        otherwise at each step.
    """

    size: Annotated[int, Range(2)] = 10
    mapping_seed: Annotated[int | None, Range(0)] = 0
    screen: Annotated[int, Range(0)] = 0
    remote: bool = False

    optimal_return = 1 - MOVE_COST

    def __post_init__(self) -> None:
        check_fields(self)
        # The mapping, and an observation, which is made and then put together with the screen.
        needed = 8 * (self.size**2 + self.size * (self.size + 1) + self.screen)
        check_memory(f"DeepSea of size {self.size} with a screen of {self.screen}", needed)

    @property
    def spec(self) -> EnvironmentSpec:
        """The cells and the screen."""
        return _spec(self.size**2 + self.screen, num_actions=2)

    @functools.cached_property
    def right(self) -> np.ndarray:
        """The action that goes right, in each cell: integers `[N, N]`."""
        if self.mapping_seed is None:
            return np.ones((self.size, self.size), np.int64)
        generator = np.random.default_rng(self.mapping_seed)
        right = generator.integers(2, size=(self.size, self.size))
        np.fill_diagonal(right, generator.permutation(np.arange(self.size) % 2))
        return right

    def reset(self, key: jax.Array) -> tuple[State, jax.Array]:
        """The diver is at the top left. The state: its row and column, and the screen."""
        state = jnp.int32(0), jnp.int32(0), self._noise(key)
        return state, self._observe(*state)

    def step(self, key: jax.Array, state: State, action: jax.Array) -> Stepped:
        """The diver sinks by one row and moves by one column."""
        (row, column, screen), end = state, self.size - 1
        right = action == jnp.asarray(self.right)[jnp.minimum(row, end), column]
        found = right & (row == end) & (column == end)
        moved = jnp.clip(column + jnp.where(right, 1, -1), 0, end)
        screen = jnp.where(right & self.remote, screen, self._noise(key))
        state = row + 1, moved, screen
        reward = found - right * (MOVE_COST / self.size)
        return state, Transition(self._observe(*state), reward, row == end)

    def draw(self, observation: np.ndarray) -> np.ndarray:
        """The cells and a row for the television: uint8 `[16 N, 16 N, 3]`, or one row more."""
        cells, screen = observation[: self.size**2], observation[self.size**2 :]
        picture = np.zeros((self.size, self.size, 3))
        picture[-1, -1, :2] = 1
        picture[cells.reshape(self.size, self.size) > 0] = 1
        if screen.size:
            shown = np.resize(screen, self.size)[None, :, None]
            picture = np.concatenate([picture, shown.repeat(3, axis=2)])
        return enlarge((255 * picture).astype(np.uint8), 16)

    def _noise(self, key: jax.Array) -> jax.Array:
        return jax.random.uniform(key, (self.screen,), jnp.float32)

    def _observe(self, row: jax.Array, column: jax.Array, screen: jax.Array) -> jax.Array:
        cells = jnp.zeros((self.size + 1, self.size), jnp.float32)
        cells = cells.at[row, column].set(1.0)[:-1]  # below the last row is the end
        return jnp.concatenate([cells.ravel(), screen])


@dataclasses.dataclass(frozen=True)
class PureCartPole:
    """Gymnasium's CartPole-v1 (Barto et al. 1983), in float32.

    The state is the observation: position, velocity, angle and angular velocity.
    """

    spec = EnvironmentSpec(
        specs.Array((4,), np.float32, "observation"),
        specs.DiscreteArray(2, np.int32, "action"),
        max_episode_steps=500,
    )

    def reset(self, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Everything is near 0."""
        state = jax.random.uniform(key, (4,), jnp.float32, -0.05, 0.05)
        return state, state

    def step(self, key: jax.Array, state: jax.Array, action: jax.Array) -> Stepped:
        """A push of 10 N to the left (0) or to the right (1) for 0.02 s, by Euler's method."""
        gravity, masses, pole_mass, half_length, seconds = 9.8, 1.1, 0.1, 0.5, 0.02
        _, v, angle, omega = state
        force, sin, cos = jnp.where(action == 1, 10.0, -10.0), jnp.sin(angle), jnp.cos(angle)
        push = (force + pole_mass * half_length * omega**2 * sin) / masses
        turn = (gravity * sin - cos * push) / (
            half_length * (4.0 / 3.0 - pole_mass * cos**2 / masses)
        )
        acceleration = push - pole_mass * half_length * turn * cos / masses
        state = state + seconds * jnp.stack([v, acceleration, omega, turn])
        fallen = (jnp.abs(state[0]) > 2.4) | (jnp.abs(state[2]) > 12 * 2 * math.pi / 360)
        return state, Transition(state, jnp.float32(1.0), fallen)


@dataclasses.dataclass(frozen=True)
class PurePendulum:
    """Gymnasium's Pendulum-v1, in float32. The state is the angle from upright, and its speed."""

    spec = EnvironmentSpec(
        specs.Array((3,), np.float32, "observation"),
        specs.BoundedArray((1,), np.float32, [-2.0], [2.0], "action"),
        max_episode_steps=200,
    )

    def reset(self, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Any angle, and a slow speed."""
        high = jnp.array([math.pi, 1.0])
        state = jax.random.uniform(key, (2,), jnp.float32, -high, high)
        return state, self._observe(state)

    def step(self, key: jax.Array, state: jax.Array, action: jax.Array) -> Stepped:
        """A torque for 0.05 s; angle, speed and torque cost."""
        (angle, speed), torque = state, jnp.clip(action[0], -2.0, 2.0)
        turned = (angle + math.pi) % (2 * math.pi) - math.pi
        cost = turned**2 + 0.1 * speed**2 + 0.001 * torque**2
        acceleration = 15.0 * jnp.sin(angle) + 3.0 * torque  # 3 g / (2 l), 3 / (m l^2)
        speed = jnp.clip(speed + 0.05 * acceleration, -8.0, 8.0)
        state = jnp.stack([angle + 0.05 * speed, speed])
        return state, Transition(self._observe(state), -cost, np.False_)

    def _observe(self, state: jax.Array) -> jax.Array:
        return jnp.stack([jnp.cos(state[0]), jnp.sin(state[0]), state[1]])
