"""Replays, writers and peers for tests of the replay that other nodes call."""

import functools

import numpy as np
import replay_rows
from replay_rows import SPEC

from retrax.datatypes import ReplayConfig
from retrax.replay import LocalReplay, NodeWriter, RemoteReplay, ReplayNode
from retrax.replay.interface import PeerLost, never

sequence_spec = functools.partial(replay_rows.sequence_spec, period=2)


def replay_config(**changes):
    fields = {"capacity": 60, "min_rows": 8, "batch_size": 3, "acting_steps_per_update": 3.0}
    return ReplayConfig(**{**fields, **changes})


def local_replay(sequence=None, num_envs=2, seed=0, **changes):
    sequence = sequence or sequence_spec()
    config = replay_config(**changes)
    return LocalReplay(SPEC, sequence, config, num_envs=num_envs, seed=seed)


def make_node(*arguments, rows=(), max_lead=1000, restarts=0, node=ReplayNode, **changes):
    """A node of a `local_replay` with some rows."""
    made = node(local_replay(*arguments, **changes), max_lead=max_lead, restarts=restarts)
    assert not rows or feed(made, rows)
    return made


def packed(node, rows):
    """Rows in a list as a chunk for `ReplayNode.add`."""
    return np.stack([np.concatenate(node.local.packing.pack(row), axis=-1) for row in rows])


def feed(node, rows, first=0):
    """Sends a chunk of all environments, whose first rows have a number; whether all are added."""
    return node.add(7, first, [*range(node.local.num_envs)], packed(node, rows), 0.0)


def open_replay(peer, sequence=None, num_envs=2, ahead=0, **changes):
    sequence, config = sequence or sequence_spec(), replay_config(**changes)
    return RemoteReplay(peer, SPEC, sequence, config, num_envs=num_envs, ahead=ahead)


def open_writer(peer, environments=(0, 1), sequence=None, **options):
    sequence = sequence or sequence_spec()
    options = {"stop": never, **options}
    return NodeWriter(peer, SPEC, sequence, environments=environments, **options)


def priorities_of(node):
    """Powers of the priorities by slot."""
    return node.local.state()["selector"]["priorities"]


def counters_of(local):
    """The counters of `Replay.restore`."""
    return {name: getattr(local.schedule, name) for name in ("steps", "updates", "learning_since")}


def with_counters(local, state):
    """The state of a `LocalReplay` as its node gives it, with the writers of that state."""
    counters = np.array([*counters_of(local).values()])
    return {**local.state(), "counters": counters, "writers": state["writers"]}


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
