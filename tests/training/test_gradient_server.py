"""A parameter server: order of arrival, versions, staleness, and what workers fetch."""

import average_agent
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from retrax.datatypes import Sample
from retrax.replay.packing import TreePacking
from retrax.training.learner import update_shapes
from retrax.training.workers import (
    DROPPED,
    STALENESS,
    GradientServer,
    Receipt,
    RemoteUpdates,
    StatePacking,
)

RATE = average_agent.Config().rate


AGENT, SHAPES = average_agent.agent_and_shapes()
GRADIENTS = TreePacking("A gradient", jax.eval_shape(AGENT.init, jax.random.key(0)).means)
STATES = StatePacking(AGENT, SHAPES)


def make_server(**options):
    return GradientServer(AGENT, GRADIENTS, STATES, key=jax.random.key(0), **options)


def send(server, number, version, reward=1.0, *, worker=0, restarts=0):
    """Applies a gradient of the mean reward alone."""
    zeros = jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), GRADIENTS.like)
    gradient = GRADIENTS.pack({**zeros, "reward": np.float32(reward)})
    return server.apply(worker, (restarts, number), version, gradient)


def mean(server):
    return float(server.state.means["reward"])


def test_gradients_are_applied_in_the_order_of_arrival():
    server, expected = make_server(), np.float32(1.0)
    arrivals = [(0, 0, 0, 1.0), (1, 0, 0, -2.0), (0, 1, 2, 4.0)]
    for index, (worker, number, version, gradient) in enumerate(arrivals):
        receipt = send(server, number, version, gradient, worker=worker)
        expected = expected - np.float32(RATE) * np.float32(gradient)
        assert receipt == Receipt(True, index - version)
        assert server.updates == index + 1 == server.state.applied
        np.testing.assert_allclose(mean(server), expected, rtol=1e-6)


def test_an_outdated_gradient_is_dropped():
    server = make_server(max_staleness=1)
    assert all(send(server, number, number).applied for number in range(2))
    before = mean(server)
    assert send(server, 0, 0, worker=1) == Receipt(False, 2)
    assert (server.updates, mean(server)) == (2, before)
    assert send(server, 1, 1, worker=1) == Receipt(True, 1)
    assert server.updates == 3


def test_a_gradient_of_a_version_that_a_restarted_server_has_lost_is_dropped():
    server = make_server()
    assert send(server, 0, 5) == Receipt(False, -5)
    assert server.updates == 0


def test_a_call_that_is_repeated_is_applied_once():
    server = make_server()
    first = send(server, 3, 0)
    for number in (3, 2):  # repeated, and a late one
        assert send(server, number, 0) == first
    assert server.updates == 1
    assert send(server, 3, 1, worker=1).applied  # another worker's
    assert send(server, 0, 2, restarts=1).applied  # of a restarted one
    assert server.updates == 3


def test_a_version_is_packed_once_and_only_when_it_is_fetched(monkeypatch):
    server, packs, pack = make_server(), [], STATES.pack
    monkeypatch.setattr(STATES, "pack", lambda state: packs.append(state) or pack(state))
    assert server.get(0) == (0, None)  # the caller has it
    assert packs == []
    version, blob = server.get(-1)
    assert (version, len(packs)) == (0, 1)
    assert server.get(-1) == (version, blob)
    for number in range(3):
        send(server, number, number)
    assert len(packs) == 1
    version, newer = server.get(0)
    assert (version, len(packs)) == (3, 2)
    assert newer != blob
    assert server.get(3) == (3, None)
    assert len(packs) == 2


def test_a_restored_server_continues():
    server, other = make_server(), make_server()
    send(server, 0, 0)
    snapshot, at = server.snapshot(), mean(server)
    send(server, 1, 1)  # donates the buffers of the state
    other.get(-1)
    other.restore(snapshot)
    assert (other.updates, mean(other)) == (1, at)
    assert other.get(0)[0] == 1
    send(other, 0, 1)
    assert mean(other) == mean(server)


def test_samples_of_single_updates():
    call = Sample(*(jax.ShapeDtypeStruct((6, 2), np.float32) for _ in Sample._fields))
    newest = Sample(*(jax.ShapeDtypeStruct((4, 2), np.float32) for _ in Sample._fields))
    replayed, same = update_shapes([call, newest], 3)
    assert {x.shape for x in jax.tree.leaves(replayed)} == {(2, 2)}
    assert same == newest


def test_workers_get_what_gradients_read_and_keep_the_rest():
    server = AGENT.init(jax.random.key(1))._replace(applied=jnp.int32(7))
    server.means["reward"] = jnp.float32(0.5)
    merged = STATES.unpack(AGENT.init(jax.random.key(2)), STATES.pack(server))
    assert merged.means["reward"] == 0.5
    assert merged.applied == 0  # it is not read
    assert merged.key.dtype == server.key.dtype
    assert jnp.array_equal(jax.random.key_data(merged.key), jax.random.key_data(server.key))
    assert jax.random.uniform(merged.key) == jax.random.uniform(server.key)


class Server:
    """Keeps what a worker sends; every gradient raises the version by two."""

    def __init__(self):
        self._server = make_server()
        self.sent, self.gradients, self.fetches, self.version = [], [], [], 0

    def apply(self, worker, call, version, gradients):
        self.sent.append((worker, call, version))
        self.gradients.append(gradients)
        self.version += 2
        return [True, self.version - 2 - version]  # a list, as over Courier

    def get(self, known):
        self.fetches.append(known)
        self._server.updates = self.version
        return self._server.get(known)


def make_updates(server, agent=AGENT, **options):
    """Updates of a worker, and the state that it has fetched."""
    calls = {"apply": server.apply, "get": server.get, "lost": lambda version: None}
    updates = RemoteUpdates(agent, GRADIENTS, STATES, **calls, **options)
    return updates, updates.newest(AGENT.init(jax.random.key(0)))


def zeros(factor=1):
    return jax.tree.map(lambda x: np.zeros((factor * x.shape[0], *x.shape[1:]), x.dtype), SHAPES[0])


@pytest.mark.parametrize(
    ("fetches_first", "known", "staleness"),
    [(True, [-1, 0, 3], [0, 2, 0, 2]), (False, [-1, 0, 7], [3, 5, 3, 5])],
)
def test_a_worker_fetches_before_or_after_so_many_gradients(fetches_first, known, staleness):
    """Another worker's gradients arrive while this one acts, before its first and third."""
    server, options = Server(), {"gradients_per_fetch": 2, "worker": 3, "restarts": 1}
    updates, state = make_updates(server, fetches_first=fetches_first, **options)
    found = []
    for number in range(4):
        server.version += 3 * (number in (0, 2))
        state, update = updates(state, zeros(), 1)
        found.append(update.metrics[STALENESS])
        assert update.metrics[DROPPED] == 0.0
    assert server.fetches[:3] == known
    assert found == staleness
    assert [(worker, call) for worker, call, _ in server.sent] == [(3, (1, n)) for n in range(4)]


def test_gradients_of_one_version_differ_in_their_noise():
    """Of one worker and of several; the first of worker 0 is that of one process."""

    def gradients(state, sample):
        means, update = AGENT.gradients(state, sample)
        return {**means, "reward": jax.random.uniform(state.key)}, update

    agent, values = AGENT._replace(gradients=gradients), []
    for worker in range(2):
        server = Server()
        updates, state = make_updates(server, agent, worker=worker, gradients_per_fetch=3)
        for _ in range(3):
            updates(state, zeros(), 1)
        values += [float(GRADIENTS.unpack(blob)["reward"]) for blob in server.gradients]
    assert len(set(values)) == 6
    assert values[0] == float(jax.random.uniform(state.key))


def test_each_update_of_a_call_is_a_gradient():
    server = Server()
    updates, state = make_updates(server)
    sample = zeros(3)
    size = len(sample.weights) // 3
    sample.rows.reward[size : 2 * size] = 1.0
    _, update = updates(state, sample, 3)
    assert [version for _, _, version in server.sent] == [0, 2, 4]
    np.testing.assert_array_equal(update.priorities, np.repeat([1.0, 0.0, 1.0], size))
    np.testing.assert_allclose(update.metrics["error"], 2 / 3)


def test_a_gradient_that_is_not_finite_is_not_sent():
    server = Server()
    updates, state = make_updates(server)
    sample = zeros()
    sample.rows.reward[:] = np.nan
    with pytest.raises(FloatingPointError, match="not finite"):
        updates(state, sample, 1)
    assert server.sent == []
