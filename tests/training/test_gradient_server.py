"""A parameter server: order of arrival, versions, staleness, and what workers fetch."""

import average_agent
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from retrax.datatypes import Sample
from retrax.replay.packing import TreePacking
from retrax.training.gradient_server import (
    DROPPED,
    STALENESS,
    GradientServer,
    Receipt,
    RemoteUpdates,
    StatePacking,
)
from retrax.training.learner import update_shapes

RATE = average_agent.Config().rate


@pytest.fixture(scope="module")
def parts():
    """The agent, its packings, and the shapes of its samples."""
    agent, shapes = average_agent.agent_and_shapes()
    gradients = TreePacking("A gradient", jax.eval_shape(agent.init, jax.random.key(0)).means)
    return agent, gradients, StatePacking(agent, shapes), shapes


def make_server(parts, **options):
    agent, gradients, states, _ = parts
    return GradientServer(agent, gradients, states, key=jax.random.key(0), **options)


def packed(parts, reward):
    """A gradient of the mean reward alone."""
    like = parts[0].init(jax.random.key(0)).means
    zeros = {name: np.zeros(x.shape, np.float32) for name, x in like.items()}
    return parts[1].pack({**zeros, "reward": np.float32(reward)})


def mean(server):
    return float(server.state.means["reward"])


def test_gradients_are_applied_in_the_order_of_arrival(parts):
    server, expected = make_server(parts), np.float32(1.0)
    arrivals = [(0, 0, 1.0), (1, 0, -2.0), (0, 2, 4.0)]
    numbers = {0: 0, 1: 0}
    for index, (worker, version, gradient) in enumerate(arrivals):
        receipt = server.apply(worker, (0, numbers[worker]), version, packed(parts, gradient))
        numbers[worker] += 1
        expected = expected - np.float32(RATE) * np.float32(gradient)
        assert receipt == Receipt(True, index - version)
        assert server.updates == index + 1 == server.state.applied
        np.testing.assert_allclose(mean(server), expected, rtol=1e-6)


def test_an_outdated_gradient_is_dropped(parts):
    server = make_server(parts, max_staleness=1)
    for number in range(2):
        assert server.apply(0, (0, number), number, packed(parts, 1.0)).applied
    before = mean(server)
    assert server.apply(1, (0, 0), 0, packed(parts, 1.0)) == Receipt(False, 2)
    assert (server.updates, mean(server)) == (2, before)
    assert server.apply(1, (0, 1), 1, packed(parts, 1.0)) == Receipt(True, 1)
    assert server.updates == 3


def test_a_gradient_of_a_version_that_a_restarted_server_has_lost_is_dropped(parts):
    server = make_server(parts)
    assert server.apply(0, (0, 0), 5, packed(parts, 1.0)) == Receipt(False, -5)
    assert server.updates == 0


def test_a_call_that_is_repeated_is_applied_once(parts):
    server = make_server(parts)
    first = server.apply(0, (0, 3), 0, packed(parts, 1.0))
    assert server.apply(0, [0, 3], 0, packed(parts, 1.0)) == first
    assert server.apply(0, (0, 2), 0, packed(parts, 1.0)) == first  # a late one
    assert server.updates == 1
    assert server.apply(1, (0, 3), 1, packed(parts, 1.0)).applied  # another worker's
    assert server.apply(0, (1, 0), 2, packed(parts, 1.0)).applied  # of a restarted one
    assert server.updates == 3


def test_a_version_is_packed_once_and_only_when_it_is_fetched(parts, monkeypatch):
    server, packs = make_server(parts), []
    pack = parts[2].pack
    monkeypatch.setattr(parts[2], "pack", lambda state: packs.append(state) or pack(state))
    assert server.get(0) == (0, None)  # the caller has it
    assert packs == []
    version, blob = server.get(-1)
    assert (version, len(packs)) == (0, 1)
    assert server.get(-1) == (version, blob)
    for number in range(3):
        server.apply(0, (0, number), number, packed(parts, 1.0))
    assert len(packs) == 1
    version, newer = server.get(0)
    assert (version, len(packs)) == (3, 2)
    assert newer != blob
    assert server.get(3) == (3, None)
    assert len(packs) == 2


def test_a_restored_server_continues(parts):
    server = make_server(parts)
    server.apply(0, (0, 0), 0, packed(parts, 1.0))
    snapshot, at = server.snapshot(), mean(server)
    server.apply(0, (0, 1), 1, packed(parts, 1.0))  # donates the buffers of the state
    other = make_server(parts)
    other.get(-1)
    other.restore(snapshot)
    assert (other.updates, mean(other)) == (1, at)
    assert other.get(0)[0] == 1
    other.apply(0, (0, 0), 1, packed(parts, 1.0))
    assert mean(other) == mean(server)


def test_samples_of_single_updates():
    call = Sample(*(jax.ShapeDtypeStruct((6, 2), np.float32) for _ in Sample._fields))
    newest = Sample(*(jax.ShapeDtypeStruct((4, 2), np.float32) for _ in Sample._fields))
    replayed, same = update_shapes([call, newest], 3)
    assert {x.shape for x in jax.tree.leaves(replayed)} == {(2, 2)}
    assert same == newest


def test_workers_get_what_gradients_read_and_keep_the_rest(parts):
    agent, _, packing, _ = parts
    server = agent.init(jax.random.key(1))._replace(applied=jnp.int32(7))
    server.means["reward"] = jnp.float32(0.5)
    like = packing._packing.like
    assert [x.dtype for x in like] == [np.float32, np.float32, np.uint32]  # not the count
    merged = packing.unpack(agent.init(jax.random.key(2)), packing.pack(server))
    assert merged.means["reward"] == 0.5
    assert merged.applied == 0
    assert merged.key.dtype == server.key.dtype
    assert jnp.array_equal(jax.random.key_data(merged.key), jax.random.key_data(server.key))
    assert jax.random.uniform(merged.key) == jax.random.uniform(server.key)


class Server:
    """Keeps what a worker sends; every gradient raises the version by two."""

    def __init__(self, parts):
        self._server = make_server(parts)
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


def make_updates(parts, server, **options):
    agent, gradients, states, _ = parts
    calls = {"apply": server.apply, "get": server.get, "lost": lambda version: None}
    return RemoteUpdates(agent, gradients, states, **calls, **options)


def zeros(shapes, factor=1):
    return jax.tree.map(lambda x: np.zeros((factor * x.shape[0], *x.shape[1:]), x.dtype), shapes[0])


@pytest.mark.parametrize(
    ("fetches_first", "known", "staleness"),
    [(True, [-1, 0, 3], [0, 2, 0, 2]), (False, [-1, 0, 7], [3, 5, 3, 5])],
)
def test_a_worker_fetches_before_or_after_so_many_gradients(fetches_first, known, staleness, parts):
    """Another worker's gradients arrive while this one acts, before its first and third."""
    server, agent = Server(parts), parts[0]
    options = {"gradients_per_fetch": 2, "worker": 3, "restarts": 1}
    updates = make_updates(parts, server, fetches_first=fetches_first, **options)
    state = updates.newest(agent.init(jax.random.key(0)))
    found = []
    for number in range(4):
        server.version += 3 * (number in (0, 2))
        state, update = updates(state, zeros(parts[3]), 1)
        found.append(update.metrics[STALENESS])
        assert update.metrics[DROPPED] == 0.0
    assert server.fetches[:3] == known
    assert found == staleness
    assert [(worker, call) for worker, call, _ in server.sent] == [(3, (1, n)) for n in range(4)]


def test_gradients_of_one_version_differ_in_their_noise(parts):
    """Of one worker and of several; the first of worker 0 is that of one process."""

    def gradients(state, sample):
        means, update = parts[0].gradients(state, sample)
        return {**means, "reward": jax.random.uniform(state.key)}, update

    agent = parts[0]._replace(gradients=gradients)
    state, values = agent.init(jax.random.key(0)), []
    for worker in range(2):
        server = Server(parts)
        updates = make_updates((agent, *parts[1:]), server, worker=worker, gradients_per_fetch=3)
        for _ in range(3):
            updates(state, zeros(parts[3]), 1)
        unpacked = [parts[1].unpack(blob) for blob in server.gradients]
        values += [float(gradient["reward"]) for gradient in unpacked]
    assert len(set(values)) == 6
    assert values[0] == float(jax.random.uniform(state.key))


def test_each_update_of_a_call_is_a_gradient(parts):
    server, agent = Server(parts), parts[0]
    updates = make_updates(parts, server)
    state = updates.newest(agent.init(jax.random.key(0)))
    sample = zeros(parts[3], 3)
    size = len(sample.weights) // 3
    sample.rows.reward[size : 2 * size] = 1.0
    _, update = updates(state, sample, 3)
    assert [version for _, _, version in server.sent] == [0, 2, 4]
    np.testing.assert_array_equal(update.priorities, np.repeat([1.0, 0.0, 1.0], size))
    np.testing.assert_allclose(update.metrics["error"], 2 / 3)


def test_a_gradient_that_is_not_finite_is_not_sent(parts):
    server, agent = Server(parts), parts[0]
    updates = make_updates(parts, server)
    state = updates.newest(agent.init(jax.random.key(0)))
    sample = zeros(parts[3])
    sample.rows.reward[:] = np.nan
    with pytest.raises(FloatingPointError, match="not finite"):
        updates(state, sample, 1)
    assert server.sent == []
