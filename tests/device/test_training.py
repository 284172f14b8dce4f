"""Whole training as one function: against the host's loop, bit for bit, and what it is made of."""

import dataclasses

import chex
import jax
import jax.numpy as jnp
import noisy_agent
import numpy as np
import pytest
from run_files import loop_in

from retrax.datatypes import ReplayConfig
from retrax.device import Training, make_train
from retrax.device.replay import choose
from retrax.environments import make
from retrax.environments.pure import PureVector, environment_keys, leaves_of
from retrax.environments.pure_tasks import PureCatch

NUM_ENVS, ROWS = 3, 60
STEADY = ReplayConfig(capacity=90, min_rows=20, batch_size=2, acting_steps_per_update=3.0)
PACES = {
    "steady": STEADY,
    "calls": dataclasses.replace(STEADY, updates_per_call=2, acting_steps_per_update=2.5),
    "rounds": dataclasses.replace(
        STEADY, pace="rounds", replay_ratio=2.0, on_policy=True, updates_per_call=2
    ),
}


def assert_same(found, wanted):
    for a, b in zip(leaves_of(found), leaves_of(wanted), strict=True):
        np.testing.assert_array_equal(a, b)


def make_agent(pace="steady"):
    return noisy_agent.make_agent(PureCatch().spec, noisy_agent.Config(replay=PACES[pace]))


class SameDraws:
    """In place of the store's selector: the draws that the device makes of what is present."""

    def __init__(self, selector, key):
        self._selector, self._key, self._calls = selector, key, 0

    def __getattr__(self, name):
        return getattr(self._selector, name)

    def __len__(self):
        return len(self._selector)

    def sample(self, rng, n):
        key = jax.random.split(jax.random.fold_in(self._key, self._calls), 3)[0]
        self._calls += 1
        present = jnp.asarray(self._selector.state()["present"], jnp.float32)
        slots, probabilities = choose(key, present, (n,))
        return np.asarray(slots, np.int64), np.asarray(probabilities, np.float64)


def host_loop(agent, config, seed):
    """The host's loop with the keys of the device's state of this seed."""
    key = jax.random.key(seed)
    environments_key, draw_key = jax.random.split(jax.random.fold_in(key, 2))
    environment = PureVector(PureCatch(), num_envs=NUM_ENVS)
    environment._keys = environment_keys(environments_key, NUM_ENVS)
    loop, replay = loop_in(environment, agent, config, key)
    replay._selector = SameDraws(replay._selector, draw_key)
    return loop


@pytest.mark.parametrize("pace", PACES)
def test_a_run_is_that_of_the_host_bit_for_bit(pace):
    agent, config = make_agent(pace), PACES[pace]
    loop = host_loop(agent, config, seed=4)
    loop.start()
    for _ in range(ROWS):
        loop.advance()
    means, _ = loop.flush()
    training = Training(agent, PureCatch(), config, num_envs=NUM_ENVS)
    rows, state = training.calls(), jax.jit(training.init)(jax.random.key(4))
    advance, parts = jax.jit(training.advance), []
    for count in (1, 7, 0, 40, 12):
        calls = np.zeros((40, 2), np.int32)
        calls[:count] = np.reshape([next(rows) for _ in range(count)], (-1, 2))
        state, found = advance(state, calls, jnp.int32(count))
        parts.append(jax.device_get(found))
    assert advance._cache_size() == 1
    assert_same(state.learner, loop.learner.state)
    assert_same(state.actors, loop.actor_states())
    progress = jax.device_get(state.progress)
    assert progress.steps == loop.counters.steps
    assert progress.updates == loop.counters.updates > 20
    assert progress.learning_since == loop.counters.learning_since
    np.testing.assert_array_equal(
        state.environments.timestep.observation, loop._actors[0]._timestep.observation
    )
    episodes = {
        name: np.concatenate([part[name].ravel() for part in parts]).astype(np.float64)
        for name in ("return", "length")
    }
    assert np.isfinite(episodes["return"]).sum() == loop.counters.episodes == 6 * NUM_ENVS
    assert np.nanmean(episodes["return"]) == means["episode_return"]
    assert np.nanmean(episodes["length"]) == means["episode_length"] == 9.0
    found = state.sums.means()
    for name in ("score", "replay_age"):
        np.testing.assert_allclose(found[name], means[name], rtol=1e-5)


@pytest.mark.once
def test_seeds_in_one_call_are_the_runs_of_each_seed():
    agent = make_agent("rounds")
    train = make_train(agent, PureCatch(), PACES["rounds"], num_envs=NUM_ENVS, steps=80)
    keys = jax.random.split(jax.random.key(0), 2)
    batched = jax.jit(jax.vmap(train))(keys)
    single = jax.jit(train)
    for index, key in enumerate(keys):
        learner, metrics = jax.tree.map(lambda x, index=index: x[index], batched)
        alone, numbers = single(key)
        assert_same(learner, alone)
        chex.assert_trees_all_close(metrics, numbers, rtol=1e-6)
    assert metrics["return"].shape == (27, NUM_ENVS)
    assert np.isfinite(metrics["return"]).sum() == 2 * NUM_ENVS
    assert set(np.asarray(metrics["return"])[8]) <= {1.0, -1.0}


def test_the_first_update_that_diverged_is_noted():
    agent = make_agent()

    def gradients(learner, sample):
        grads, update = make_agent().gradients(learner, sample)
        bad = jnp.where(jnp.abs(learner["scores"]).sum() > 0, jnp.nan, 1.0)
        return grads, update._replace(priorities=update.priorities * bad)

    training = Training(agent._replace(gradients=gradients), PureCatch(), STEADY, num_envs=NUM_ENVS)
    state, _ = jax.jit(training.advance)(
        training.init(jax.random.key(0)), jnp.zeros((30, 2), jnp.int32), jnp.int32(30)
    )
    assert state.progress.diverged_at == 2
    assert state.progress.updates > 5


def test_what_cannot_be_trained_is_refused():
    with pytest.raises(ValueError, match="PureVector is not an environment written in JAX"):
        Training(make_agent(), make("catch"), STEADY, num_envs=NUM_ENVS)
    with pytest.raises(ValueError, match="steps must be from 1 to 2147483647, got 0"):
        make_train(make_agent(), PureCatch(), STEADY, num_envs=NUM_ENVS, steps=0)
