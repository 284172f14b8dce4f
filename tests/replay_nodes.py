"""Rows and replays for tests of the replay that other nodes call."""

import functools

import jax
import numpy as np
import replay_rows
from dm_env import specs

from retrax.datatypes import EnvironmentSpec, ReplayConfig, Row
from retrax.replay import LocalReplay
from retrax.replay.interface import PeerLost
from retrax.replay.node_writer import NodeWriter
from retrax.replay.remote import RemoteReplay

SPEC = EnvironmentSpec(specs.Array((2, 1, 1), np.uint8), specs.DiscreteArray(3))
MEMORY = jax.ShapeDtypeStruct((5,), np.float64)
sequence_spec = functools.partial(replay_rows.sequence_spec, period=2, memory=MEMORY)


def replay_config(**changes):
    fields = {"capacity": 60, "min_rows": 8, "batch_size": 3, "acting_steps_per_update": 3.0}
    return ReplayConfig(**{**fields, **changes})


def local_replay(sequence=None, num_envs=2, seed=0, **changes):
    sequence = sequence or sequence_spec()
    config = replay_config(**changes)
    return LocalReplay(SPEC, sequence, config, num_envs=num_envs, seed=seed)


def open_replay(peer, sequence=None, num_envs=2, ahead=0, **changes):
    return RemoteReplay(
        peer,
        SPEC,
        sequence or sequence_spec(),
        replay_config(**changes),
        num_envs=num_envs,
        ahead=ahead,
    )


def open_writer(peer, environments=(0, 1), sequence=None, **options):
    sequence = sequence or sequence_spec()
    return NodeWriter(peer, SPEC, sequence, environments=environments, **options)


def stream(num_rows, num_envs=2, seed=0, ends=0.15, sequence=None):
    """Rows `[E, ...]`, all of their numbers random; episodes end at random."""
    rng = np.random.default_rng(seed)
    extras = (sequence or sequence_spec()).extras
    last, size = np.ones(num_envs, bool), num_envs
    for _ in range(num_rows):
        first, last = last, ~last & (rng.random(size) < ends)
        yield Row(
            observation=rng.integers(256, size=(size, 2, 1, 1), dtype=np.uint8),
            reward=rng.normal(size=size).astype(np.float32),
            discount=np.where(last & (rng.random(size) < 0.5), 0, 1).astype(np.float32),
            is_first=first,
            is_last=last,
            action=rng.integers(3, size=size).astype(np.int32),
            extras={
                name: rng.normal(size=(size, *spec.shape)).astype(spec.dtype)
                for name, spec in extras.items()
            },
        )


def packed(rows, sequence=None):
    """Rows in a list as a chunk for `ReplayNode.add`."""
    packing = local_replay(sequence).store.packing
    return np.stack([np.concatenate(packing.pack(row), axis=-1) for row in rows])


def assert_equal(found, wanted):
    """Equal in structure, dtypes and every bit."""

    def check(one, other):
        one, other = np.asarray(one), np.asarray(other)
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)

    jax.tree.map(check, found, wanted)


class LatePeer:
    """A peer of an object of this process that answers when it is told to, or dies before.

    Attributes:
      node: that is called.
      silent: whether calls wait for `answer`.
      sent: calls that wait: method and arguments.
    """

    def __init__(self, node, silent=False):
        self.node, self.silent, self.sent = node, silent, []

    def call(self, method, *arguments):
        return getattr(self.node, method)(*arguments)

    def send(self, method, *arguments):
        answer = _LateAnswer(self, method, arguments)
        self.sent.append(answer)
        if not self.silent:
            self.answer()
        return answer

    def answer(self):
        """Makes the calls that wait."""
        sent, self.sent = self.sent, []
        for answer in sent:
            answer.make()

    def die(self, node, *, after=False):
        """Loses the calls that wait, `after` the old node made them or before; a new node."""
        for answer in self.sent:
            if after:
                answer.make()
            answer.outcome = PeerLost("died")
        self.sent, self.node = [], node


class _LateAnswer:
    def __init__(self, peer, method, arguments):
        self.call, self.outcome = (method, *arguments), TimeoutError()
        self._peer = peer

    def make(self):
        self.outcome = self._peer.call(*self.call)

    def result(self, timeout):
        del timeout
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome
