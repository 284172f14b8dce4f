"""The learner, alone and with an actor around a real Reverb server."""

import dataclasses
import threading
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

pytest.importorskip("reverb", reason="needs the distributed tier (Python 3.10, Linux)")
from acme.utils import counting, loggers

from retrax.agents import reactor
from retrax.agents.base import Update
from retrax.environments import make
from retrax.evaluation import run_episodes
from retrax.experiments.loop import Loop
from retrax.launchpad_programs.acme_library import acme
from retrax.launchpad_programs.acting import Actor, SingleEnvironment
from retrax.launchpad_programs.learning import Learner
from retrax.launchpad_programs.parameters import ParameterClient, ParameterServer
from retrax.replay import ReplayConfig, SequenceStore, reverb_replay
from retrax.replay.paced import PacedStore
from retrax.replay.reverb_library import reverb

pytestmark = pytest.mark.distributed


def config(**changes):
    replay = ReplayConfig(
        selector="contextual", capacity=20_000, batch_size=16, min_rows=200, **changes
    )
    return reactor.Config.small(
        recurrent=False, sequence_length=10, sequence_period=5, replay=replay
    )


@pytest.fixture(scope="module")
def agent():
    """One for all tests that can share it: JAX compiles its update once then."""
    return reactor.make_agent(make("catch").spec, config())


def paced(cfg, environment, agent, num_environments=1):
    return PacedStore(
        environment.spec, agent.sequence, cfg.replay, num_environments=num_environments, seed=3
    )


def learner_of(agent, replay, **options):
    parameters = ParameterServer(patience=0.0)
    learner = Learner(agent, replay, parameters, key=jax.random.key(7), wait=0.0, **options)
    return learner, parameters


def fill(agent, replay, environment, steps):
    """An actor that acts by the first parameters, straight into the replay."""
    params = agent.acting_params(agent.init(jax.random.key(7)))
    server = ParameterServer(patience=0.0)
    server.publish(0, params)
    client = ParameterClient(server.get, update_period=1, threaded=False)
    client.wait()
    actor = Actor(agent, client, key=jax.random.key(0), writer=replay.writer(0))
    loop = acme.EnvironmentLoop(SingleEnvironment(environment), actor, logger=loggers.NoOpLogger())
    loop.run(num_steps=steps)


def test_an_update_is_bit_for_bit_that_of_a_run_in_one_process(agent):
    cfg = config()
    environment = make("catch", seed=1)
    replay = paced(cfg, environment, agent)
    fill(agent, replay, environment, 400)
    store = SequenceStore(environment.spec, agent.sequence, cfg.replay, num_envs=1, seed=3)
    store.restore(replay.state())
    loop = Loop(agent, make("catch", seed=5), store, cfg.replay, seed=0)
    learner, _ = learner_of(agent, replay)
    loop.learner = jax.tree.map(lambda x: x.copy(), learner.state)
    learner.compile()
    # The learner draws one batch ahead, before the priorities of the last: so compare one each.
    for _ in range(3):
        slots, sample = store.sample()
        loop.learner, update = loop._update(loop.learner, sample)
        loop._finish(slots, update)
        learner.step()
        learner._next = None
        replay.store.restore(store.state())
        jax.tree.map(np.testing.assert_array_equal, learner.state, loop.learner)
    assert learner.updates == loop.counters.updates == 3
    assert learner.look().keys() >= loop.look().metrics.keys()


def test_it_keeps_to_the_ratio_and_waits_otherwise(agent):
    cfg = config(acting_steps_per_update=10)
    environment = make("catch", seed=1)
    replay = paced(cfg, environment, agent)
    learner, _ = learner_of(agent, replay)
    learner.compile()
    learner.step()
    assert learner.updates == 0
    fill(agent, replay, environment, 300)
    counters = replay.counters()
    for _ in range(100):
        learner.step()
    assert learner.updates == (counters["steps"] - counters["learning_since"]) // 10


def test_several_updates_in_one_call_count_as_several(agent):
    cfg = config(acting_steps_per_update=10, updates_per_call=4)
    environment = make("catch", seed=1)
    replay = paced(cfg, environment, agent)
    learner, _ = learner_of(agent, replay, updates_per_call=4)
    learner.compile()
    fill(agent, replay, environment, 300)
    for _ in range(100):
        learner.step()
    counters = replay.counters()
    due = (counters["steps"] - counters["learning_since"]) // 10
    assert learner.updates == counters["updates"] == due // 4 * 4 > 0


def test_idle_time_is_measured(agent):
    cfg = config()
    environment = make("catch", seed=1)

    class Slow(PacedStore):
        def receive(self, timeout):
            time.sleep(timeout)

    replay = Slow(environment.spec, agent.sequence, cfg.replay, num_environments=1, seed=0)
    learner = Learner(agent, replay, ParameterServer(), key=jax.random.key(0), wait=0.1)
    learner.compile()
    learner.step()
    look = learner.look()
    assert look["idle_share"] > 0.8
    assert look["updates_per_second"] == 0
    learner.look()
    time.sleep(0.1)
    assert learner.look()["idle_share"] < 0.1


def test_nothing_is_published_before_it_has_compiled_and_then_what_is_wanted(agent):
    cfg = config()
    environment = make("catch", seed=1)
    replay = paced(cfg, environment, agent)
    learner, parameters = learner_of(agent, replay)
    assert not learner.ready
    assert parameters.version == -1
    before = jax.device_get(learner.state)
    learner.compile()
    assert learner.ready
    assert parameters.version == 0
    jax.tree.map(np.testing.assert_array_equal, learner.state, before)
    compiled = learner._update._cache_size()
    fill(agent, replay, environment, 400)
    for _ in range(3):
        learner.step()
    assert learner._update._cache_size() == compiled
    assert parameters.version == 0  # nobody asked
    parameters.get(0)
    learner.step()
    assert parameters.version == learner.updates == 4
    found = learner.get_variables(["params", "again"])
    jax.tree.map(np.testing.assert_array_equal, found[0], learner.state.params)
    assert len(found) == 2


def test_save_and_restore_go_on_as_if_nothing_had_happened(agent):
    cfg = config()
    environment = make("catch", seed=1)
    replay = paced(cfg, environment, agent)
    fill(agent, replay, environment, 400)
    learner, _ = learner_of(agent, replay)
    for _ in range(3):
        learner.step()
    learner._next = None  # drawn ahead, and so not drawn again
    snapshot = learner.save()
    assert snapshot.counters.keys() == {"steps", "updates", "learning_since"}
    assert snapshot.counters["updates"] == 3
    again_replay = paced(cfg, environment, agent)
    again, parameters = learner_of(agent, again_replay)
    again.compile()
    again.restore(snapshot)
    assert parameters.version == again.updates == 3
    jax.tree.map(np.testing.assert_array_equal, again.state, snapshot.learner)
    replay.restore(snapshot.replay, snapshot.counters)
    for each in (learner, again):
        for _ in range(4):
            each.step()
    assert again_replay.counters() == replay.counters()
    jax.tree.map(np.testing.assert_array_equal, again.state, learner.state)


def test_a_learner_that_diverges_says_so(agent):
    cfg = config()
    environment = make("catch", seed=1)
    replay = paced(cfg, environment, agent)
    fill(agent, replay, environment, 400)

    def diverge(state, sample):
        return state, Update(sample.weights * jnp.nan, {})

    learner, _ = learner_of(agent._replace(update=diverge), replay)
    with pytest.raises(
        FloatingPointError, match=r"Update 1 gave priorities that are not finite: the learner"
    ):
        learner.step()


@pytest.mark.parametrize("selector", ["contextual", "proportional"])
def test_catch_improves_through_a_reverb_server(agent, selector):
    """Actor, replay and learner as in a program, in threads, run by Acme's own loop."""
    cfg = config()
    cfg = dataclasses.replace(cfg, replay=dataclasses.replace(cfg.replay, selector=selector))
    environment = make("catch", seed=1)
    stop = threading.Event()
    names = (environment.spec, agent.sequence, cfg.replay)
    server = reverb.Server(reverb_replay.make_tables(*names, num_environments=1))
    address = f"127.0.0.1:{server.port}"
    replay = reverb_replay.make_learner_replay(address, *names, num_environments=1, seed=0)
    parameters = ParameterServer()
    learner = Learner(agent, replay, parameters, key=jax.random.key(0), wait=0.5)
    client = ParameterClient(parameters.get, update_period=20, stop=stop.is_set)
    writer = reverb_replay.RowWriter(address, *names, environment=0, stop=stop.is_set)
    counter = counting.Counter()

    def act():
        client.wait()
        actor = Actor(agent, client, key=jax.random.key(1), writer=writer)
        logger = loggers.NoOpLogger()
        single = SingleEnvironment(environment)
        loop = acme.EnvironmentLoop(single, actor, counter=counter, logger=logger)
        try:
            while not stop.is_set():
                loop.run(num_episodes=1)
        except reverb_replay.Stopped:
            pass

    thread = threading.Thread(target=act, daemon=True)
    thread.start()
    try:
        learner.compile()
        deadline = time.monotonic() + 120
        while learner.updates < 1500 and time.monotonic() < deadline:
            learner.step()
        counts, looked = counter.get_counts(), learner.look()
    finally:
        stop.set()
        thread.join(20)
        writer.close()
        client.close()
        replay.close()
        server.stop()
    assert not thread.is_alive()
    results = run_episodes(
        agent,
        agent.acting_params(learner.state),
        make("catch", seed=2, num_envs=10),
        key=jax.random.key(0),
        num_episodes=50,
    )
    assert results.returns.mean() > 0.5  # at first it is about -0.6
    assert counts["episodes"] == pytest.approx(counts["steps"] / 9)
    taken = counts["steps"]
    if selector == "proportional":
        taken += counts["episodes"]  # Reverb counts rows, last ones too
    assert taken == pytest.approx(200 + 5 * learner.updates, rel=0.05)
    assert 0 <= looked["idle_share"] <= 1
    assert looked["updates_per_second"] > 0
    assert client.version > 1000
    assert 0 < client.staleness < 200
    assert client.failures == 0
