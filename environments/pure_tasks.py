"""Our tiny tasks, CartPole and Pendulum in JAX: the same rules as those of the host's classes."""

import dataclasses
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from dm_env import specs

from ..datatypes import EnvironmentSpec
from .deep_sea import MOVE_COST, DeepSea
from .pure import Stepped, Transition
from .tiny import Catch, Memory

_NEVER: Any = np.False_


class CatchState(NamedTuple):
    """Row of the ball, column of the ball, column of the paddle: int32 `[]`."""

    row: jax.Array
    ball: jax.Array
    paddle: jax.Array


@dataclasses.dataclass(frozen=True)
class PureCatch:
    """See `Catch`."""

    spec = Catch().spec

    def reset(self, key: jax.Array) -> tuple[CatchState, jax.Array]:
        """The ball is in a random column."""
        ball = jax.random.randint(key, (), 0, Catch.COLUMNS)
        state = CatchState(jnp.int32(0), ball, jnp.int32(Catch.COLUMNS // 2))
        return state, self._observe(state)

    def step(self, key: jax.Array, state: CatchState, action: jax.Array) -> Stepped:
        """The ball falls, the paddle moves."""
        paddle = jnp.clip(state.paddle + action - 1, 0, Catch.COLUMNS - 1)
        state = CatchState(state.row + 1, state.ball, paddle)
        landed = state.row == Catch.ROWS - 1
        reward = jnp.where(landed, jnp.where(state.ball == paddle, 1.0, -1.0), 0.0)
        return state, Transition(self._observe(state), reward, landed, _NEVER)

    def _observe(self, state: CatchState) -> jax.Array:
        board = jnp.zeros((Catch.ROWS, Catch.COLUMNS), jnp.float32)
        board = board.at[state.row, state.ball].set(1.0).at[-1, state.paddle].set(1.0)
        return board.ravel()


class MemoryState(NamedTuple):
    """Steps since the cue, and the cue (+1 or -1): int32 `[]`."""

    time: jax.Array
    cue: jax.Array


@dataclasses.dataclass(frozen=True)
class PureMemory:
    """See `Memory`, which refuses a wrong length."""

    length: int = 10

    @property
    def spec(self) -> EnvironmentSpec:
        """That of the host's class."""
        return Memory(length=self.length).spec

    def reset(self, key: jax.Array) -> tuple[MemoryState, jax.Array]:
        """Shows a random cue."""
        cue = 2 * jax.random.randint(key, (), 0, 2) - 1
        state = MemoryState(jnp.int32(0), cue)
        return state, self._observe(state)

    def step(self, key: jax.Array, state: MemoryState, action: jax.Array) -> Stepped:
        """Time passes; the answer to the query is compared with the cue."""
        state = MemoryState(state.time + 1, state.cue)
        answered = state.time > self.length
        matches = jnp.where(2 * action - 1 == state.cue, 1.0, -1.0)
        reward = jnp.where(answered, matches, 0.0)
        return state, Transition(self._observe(state), reward, answered, _NEVER)

    def _observe(self, state: MemoryState) -> jax.Array:
        cue = jnp.where(state.time == 0, state.cue, 0)
        return jnp.stack([cue, state.time == self.length]).astype(jnp.float32)


class DeepSeaState(NamedTuple):
    """The diver's row and column, int32 `[]`; what the noisy television shows, `[screen]`."""

    row: jax.Array
    column: jax.Array
    screen: jax.Array


@dataclasses.dataclass(frozen=True)
class PureDeepSea:
    """See `DeepSea`, which refuses wrong switches."""

    size: int = 10
    mapping_seed: int | None = 0
    screen: int = 0
    remote: bool = False

    @property
    def spec(self) -> EnvironmentSpec:
        """That of the host's class."""
        return self._host.spec

    def reset(self, key: jax.Array) -> tuple[DeepSeaState, jax.Array]:
        """The diver is at the top left."""
        state = DeepSeaState(jnp.int32(0), jnp.int32(0), self._noise(key))
        return state, self._observe(state)

    def step(self, key: jax.Array, state: DeepSeaState, action: jax.Array) -> Stepped:
        """The diver sinks by one row and moves by one column."""
        row, column, end = state.row, state.column, self.size - 1
        right = action == jnp.asarray(self._host.right)[jnp.minimum(row, end), column]
        found = right & (row == end) & (column == end)
        moved = jnp.clip(column + jnp.where(right, 1, -1), 0, end)
        screen = jnp.where(right & self.remote, state.screen, self._noise(key))
        state = DeepSeaState(row + 1, moved, screen)
        reward = found - right * (MOVE_COST / self.size)
        return state, Transition(self._observe(state), reward, state.row == self.size, _NEVER)

    @property
    def _host(self) -> DeepSea:
        return DeepSea(**dataclasses.asdict(self))

    def _noise(self, key: jax.Array) -> jax.Array:
        return jax.random.uniform(key, (self.screen,), jnp.float32)

    def _observe(self, state: DeepSeaState) -> jax.Array:
        cells = jnp.zeros((self.size + 1, self.size), jnp.float32)
        cells = cells.at[state.row, state.column].set(1.0)[:-1]  # below the last row is the end
        return jnp.concatenate([cells.ravel(), state.screen])


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
        return state, Transition(state, jnp.float32(1.0), fallen, _NEVER)


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
        return state, Transition(self._observe(state), -cost, _NEVER, _NEVER)

    def _observe(self, state: jax.Array) -> jax.Array:
        return jnp.stack([jnp.cos(state[0]), jnp.sin(state[0]), state[1]])
