"""The actor's node by hand: no Launchpad, no processes, stand-ins for the other nodes."""

import jax
import numpy as np
import pytest
from node_fakes import Counter, DirectPeers, Parameters, Writer, acting_agent
from program_configs import make_config
from scripted import Scripted

from retrax.agents.base import Decision
from retrax.environments import make
from retrax.launchpad_programs.actor import ActorNode
from retrax.replay.interface import Stopped
from retrax.training.loop import Actor
from retrax.training.snapshots import pack_actor, unpack_actor


def environments():
    """Two, whose episodes have two and three transitions, each with the reward 1."""
    going, last = (1.0, False, False), (1.0, True, False)
    inner = [Scripted([going, last]), Scripted([going, going, last])]
    each = iter(inner)
    return make(lambda: next(each), num_envs=2), inner


def act(params, state, timestep):
    """The state counts the time steps; the arm is three."""
    return Decision(np.int32(0), {"arm": np.float32(3)}, state + 1)


AGENT = acting_agent(act, arm=jax.ShapeDtypeStruct((), np.float32))


class Parts:
    def __init__(self, directory, grants=(), states=None, loop=None, **changes):
        self.counter, self.writer = Counter(grants), Writer()
        self.environments, self.inner = environments()
        self.counter.states.update(states or {})
        self.parameters, peers = Parameters(), DirectPeers(self.counter)
        self.stop, keys = peers.stop, jax.random.split(jax.random.key(0), 2)
        world = self.environments, self.writer, self.parameters
        self.actor = Actor(AGENT, *world, keys=keys, episode_metrics=("arm",))
        config = make_config(directory, **changes)
        self.node = ActorNode(config, 1, self.actor, *world[1:], peers, loop=loop)

    @property
    def closed(self):
        return [one.closed for one in self.inner] == [1, 1]

    def saved(self):
        template = jax.tree.map(np.zeros_like, self.actor.state)
        return unpack_actor(self.counter.states[1], template).tolist()


def test_it_takes_what_it_is_granted_in_all_its_environments(tmp_path):
    parts = Parts(tmp_path, grants=[4, 5])
    stepped = [parts.node.step() for _ in range(10)]
    # Transitions: 2 + 2, and then 1, 1, 2, 1: an environment that restarts takes none.
    assert [sum(stepped), len(parts.writer.rows)] == [6, 6]
    claims = parts.counter.claims
    assert [taken for _, taken, _ in claims[:3]] == [0, 4, 5]
    returns = [episodes.get("return", []) for *_, episodes in claims[:3]]
    assert returns == [[], [2.0], [3.0, 2.0]]
    arms = [arm for *_, episodes in claims for arm in episodes.get("arm", [])]
    assert arms == [3.0] * 3  # each when its last time step was acted on
    numbers = [number for number, *_ in claims]
    assert numbers == sorted(set(numbers))


def test_it_saves_its_state_now_and_then_and_at_its_end(tmp_path):
    parts = Parts(tmp_path, grants=[100], snapshot_every=8)  # 4 for each of two actors
    saved = []
    for _ in range(5):
        parts.node.step()
        saved.append(parts.saved() if parts.counter.states else None)
    assert saved == [None, [2, 2], [2, 2], [2, 2], [5, 5]]
    parts.node.step()
    parts.node.close()
    assert parts.saved() == [6, 6]
    assert parts.closed
    assert parts.writer.closed
    assert parts.parameters.closed


def test_it_saves_its_state_after_seconds_too(tmp_path):
    parts = Parts(tmp_path, grants=[100], snapshot_every=10**6, snapshot_seconds=0.0)
    for _ in range(2):
        parts.node.step()
    assert parts.saved() == [2, 2]


def test_a_resumed_or_restarted_actor_restores_its_state(tmp_path):
    first = Parts(tmp_path, grants=[100])
    first.node.step()
    first.node.close()
    states = first.counter.states
    for kept, changes, restored in (
        (states, {}, [0, 0]),
        (states, {"resumed_at": 500}, [1, 1]),
        ({}, {"resumed_at": 500}, [0, 0]),  # it kept none
        (states, {"restarts": 3}, [1, 1]),
    ):
        parts = Parts(tmp_path, [100], kept, **changes)
        assert parts.actor.state.tolist() == restored
    parts.node.step()
    assert (first.counter.processes, parts.counter.processes) == ([0], [3])
    states[1] = pack_actor(np.zeros(3))
    with pytest.raises(ValueError, match=r"of another agent or config \(actor has .* shape \(3,\)"):
        Parts(tmp_path, [], states, resumed_at=500)


def test_it_ends_without_an_error_when_it_is_stopped_while_it_writes(tmp_path):
    parts = Parts(tmp_path, grants=[100])

    def write(rows, new_priority):
        raise Stopped("while waiting for the queue")

    parts.writer.write = write
    parts.node.run()
    states = [values["state"] for _, values in parts.counter.reports]
    assert states == ["compiling", "waiting for the learner"]
    assert parts.closed
    assert parts.saved() == [1, 1]


def test_a_loop_may_step_the_actor_with_steps_that_are_granted(tmp_path):
    taken = []

    def loop(before_step):
        while True:
            before_step()
            taken.append(1)
            if len(taken) == 3:
                parts.stop.set()

    parts = Parts(tmp_path, grants=[2, 0, 1], loop=loop)
    parts.node.run()
    assert len(taken) == 3
    assert [taken for _, taken, _ in parts.counter.claims] == [0, 2, 0]
    assert parts.closed
