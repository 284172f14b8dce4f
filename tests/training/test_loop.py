"""The training loop: its order, its counters, and that it compiles once."""

import dataclasses
import itertools
import types

import chex
import jax
import jax.numpy as jnp
import noisy_agent
import numpy as np
import pytest
from node_fakes import acting_agent
from run_files import loop_in, loop_of

from retrax.agents.base import Agent, Decision, Update
from retrax.basics.prng_keys import without_keys
from retrax.datatypes import ReplayConfig, SequenceSpec
from retrax.environments import make
from retrax.environments.plain_data import pack, unpack
from retrax.training.learner import Counters, check_finite
from retrax.training.run_config import RunConfig

NUM_ENVS = 3


def make_replay(**changes):
    fields = {"capacity": 300, "min_rows": 12, "batch_size": 2, "acting_steps_per_update": 4.0}
    return ReplayConfig(**{**fields, **changes})


def constant_agent(priority=1.0, period=1, **changes):
    """Acts 0; its learner counts updates, and the count is a metric."""

    def gradients(learner, sample):
        batch = sample.weights.shape[0]
        metrics = {"count": jnp.float32(learner), "rows": jnp.float32(sample.mask.sum())}
        return jnp.ones(()), Update(jnp.full(batch, priority), metrics)

    def act(params, state, timestep):
        return Decision(jnp.int32(0), {"seen": jnp.sum(timestep.observation)}, state + 1)

    agent = acting_agent(act, seen=jax.ShapeDtypeStruct((), jnp.float32))
    return agent._replace(
        init=lambda key: jnp.int32(0),
        acting_params=lambda learner: learner,
        gradients=gradients,
        apply=lambda learner, gradients: learner + gradients.astype(jnp.int32),
        sequence=dataclasses.replace(agent.sequence, length=4, period=period),
    )._replace(**changes)


def traced(agent):
    """The agent, and a list that grows when its functions are traced."""
    traces = []

    def watched(function):
        return lambda *arguments: traces.append(arguments) or function(*arguments)

    names = ("explore", "gradients")
    return agent._replace(**{name: watched(getattr(agent, name)) for name in names}), traces


class Tape:
    """Writes down the names of the methods that are called on what it wraps, or the `label`.

    A draw of the newest sequences is "newest".
    """

    def __init__(self, wrapped, names, events, label=None):
        self._wrapped, self._names, self._events, self._label = wrapped, names, events, label

    def __getattr__(self, name):
        method = getattr(self._wrapped, name)
        if name not in self._names:
            return method

        def call(*arguments, **options):
            event = "newest" if options.get("newest") else name
            self._events.append(event if self._label is None else self._label)
            return method(*arguments, **options)

        return call


def make_loop(agent=None, replay=None, *, environment="catch", seed=0, events=None, **options):
    """A loop of one actor, and its replay."""
    config = replay or make_replay()
    made = make(environment, seed=seed, num_envs=NUM_ENVS)
    agent = agent or constant_agent()
    if not isinstance(agent, Agent):
        agent = agent(made.spec)
    if events is not None:
        made = Tape(made, {"reset", "step"}, events)
    loop, local = loop_in(made, agent, config, jax.random.key(seed), **options)
    if events is not None:
        names = {"add_packed", "draw_now", "set_priorities"}
        vars(local).update({name: getattr(Tape(local, names, events), name) for name in names})
    return loop, local


def advance(loop, count):
    for _ in range(count):
        loop.advance()
    return loop


def noisy(spec):
    """With sequences that are those of rounds too."""
    agent = noisy_agent.make_agent(spec, noisy_agent.Config())
    return agent._replace(sequence=dataclasses.replace(agent.sequence, crosses_episodes=True))


UPDATE = ["draw_now", "set_priorities"]


@pytest.mark.parametrize(
    ("acting_steps_per_update", "updates"),
    [
        # 12 rows: learning may begin, but no update is due yet; 15 and 18 steps, 3 and 6 since.
        (4.0, [[], [], UPDATE]),
        # 3 updates a step: batches are drawn ahead, but never over an acting step.
        (1.0, [[], *[["draw_now", *UPDATE, *UPDATE, "set_priorities"]] * 2]),
    ],
)
def test_order_of_events(acting_steps_per_update, updates):
    events, replay = [], make_replay(acting_steps_per_update=acting_steps_per_update)
    loop, _ = make_loop(replay=replay, events=events)
    advance(loop, 3)
    assert events == ["reset", *["add_packed", "step"] * 3]
    for made in updates:
        events.clear()
        loop.advance()
        assert events == ["add_packed", "step", *made]


def test_episode_metrics_are_read_on_an_episodes_last_row():
    """The agent's `seen` numbers its calls: Catch's last rows are the 10th, the 20th ..."""

    def act(params, state, timestep):
        return Decision(jnp.int32(0), {"seen": state + 1.0}, state + 1)

    loop, _ = make_loop(constant_agent(explore=act), episode_metrics=("seen",))
    assert "episode_seen" not in advance(loop, 9).flush()[0]
    assert advance(loop, 12).flush()[0]["episode_seen"] == (10 + 20) / 2


@pytest.mark.parametrize(("steps", "per_call"), [(0.5, 1), (1.0, 1), (7.5, 1), (4.0, 4)])
def test_updates_keep_pace_with_acting(steps, per_call):
    replay = make_replay(acting_steps_per_update=steps, updates_per_call=per_call)
    loop, _ = make_loop(replay=replay)
    for _ in range(60):
        loop.advance()
        counters = loop.counters
        if counters.learning_since >= 0:
            acted = counters.steps - counters.learning_since
            assert counters.updates == int(acted / steps) // per_call * per_call
        else:
            assert counters.updates == 0
    assert counters.updates > 0
    assert int(loop.learner.state) == counters.updates
    assert loop.flush()[0]["count"] == (counters.updates - 1) / 2, "each update counts alike"


def test_rounds_of_one_update_on_the_newest_and_calls_of_several_on_replayed_ones():
    events = []
    replay = make_replay(pace="rounds", replay_ratio=3.0, on_policy=True, updates_per_call=3)
    agent, traces = traced(constant_agent(period=3))
    loop, local = make_loop(agent, replay, events=events)
    loop.learner.compile()
    advance(loop, 1)
    compiled = len(traces)
    advance(loop, 39)
    newest, replayed = events.count("newest"), events.count("draw_now")
    assert newest == local.rounds() == 13
    assert replayed > 5
    assert loop.counters.updates == int(loop.learner.state) == newest + 3 * replayed
    assert loop.flush()[0]["count"] == (loop.counters.updates - 1) / 2, "each update counts alike"
    batches = {sample.weights.shape[0] for _, sample in filter(lambda x: len(x) == 2, traces)}
    assert batches == {NUM_ENVS, 2}
    assert len(traces) == compiled, "nothing is compiled later"


@pytest.mark.parametrize("updates_per_call", [1, 2])
def test_each_priority_goes_to_its_own_sequence(updates_per_call):
    """The agent's priority of a sequence is the number of its first row, unlike all others."""

    def act(params, state, timestep):
        return Decision(jnp.int32(0), {"number": state}, state + 1.0)

    def gradients(learner, sample):
        return jnp.ones(()), Update(sample.rows.extras["number"][:, 0], {})

    agent = constant_agent()._replace(
        begin=lambda key, actor_id, num_actors: 1000.0 * actor_id + 1.0,
        explore=act,
        gradients=gradients,
        sequence=SequenceSpec(length=4, extras={"number": jax.ShapeDtypeStruct((), jnp.float32)}),
    )
    loop, local = make_loop(agent, make_replay(batch_size=4, updates_per_call=updates_per_call))
    given, replace = [], local._selector.set_priorities

    def set_priorities(slots, priorities, kept):
        given.append((priorities[kept], local.read(slots[kept])[0].extras["number"][:, 0]))
        replace(slots, priorities, kept)

    local._selector.set_priorities = set_priorities
    advance(loop, 40)
    priorities, numbers = map(np.concatenate, zip(*given, strict=True))
    np.testing.assert_array_equal(priorities, numbers)
    assert len(set(priorities)) > 30


def test_counters_by_hand():
    """Catch: 9 actions, then a step that begins the next episode and is no transition."""
    loop, local = make_loop()
    for count, steps, episodes in ((9, 27, 3), (1, 27, 3), (1, 30, 3), (19, 81, 9)):
        advance(loop, count)
        assert (loop.counters.steps, loop.counters.episodes) == (steps, episodes)
    assert local.num_rows == 90
    assert loop.flushed_at < loop.counters.steps
    means, clock = loop.flush()
    assert means["episode_length"] == 9
    assert -1.0 <= means["episode_return"] <= 1.0
    assert clock["acting_steps_per_second"] > clock["steps_per_second"] > 0
    assert loop.flushed_at == loop.counters.steps
    means, clock = loop.flush()
    assert means == {}
    assert np.isnan(list(clock.values())).all()


def test_rows_are_in_arrival_form():
    loop, local = make_loop()
    advance(loop, 12)
    rows, _ = local.read(np.array([7]))  # rows 7 to 10 of the first environment
    assert rows.is_last[0].tolist() == [False, False, True, False]
    assert rows.is_first[0].tolist() == [False, False, False, True]
    assert rows.reward[0, :2].tolist() == [0.0, 0.0]
    assert abs(rows.reward[0, 2]) == 1.0
    assert rows.discount[0].tolist() == [1.0, 1.0, 0.0, 1.0]
    np.testing.assert_array_equal(rows.extras["seen"], rows.observation.sum(-1))


@pytest.mark.parametrize("priority", [np.nan, np.inf])
def test_a_diverged_learner_is_named(priority):
    loop, _ = make_loop(constant_agent(priority))
    advance(loop, 5)
    with pytest.raises(FloatingPointError, match=r"Update 1 gave priorities that are not finite"):
        loop.advance()
    priorities = np.ones(6, np.float32)  # of three updates in a call
    check_finite(Update(priorities, {}), 12, 3)
    priorities[3] = priority
    with pytest.raises(FloatingPointError, match="Update 14 gave priorities that are not finite"):
        check_finite(Update(priorities, {}), 12, 3)


def test_restore_continues_from_the_counters():
    snapshot = jax.tree.map(np.array, advance(make_loop()[0], 8).snapshot())
    fresh, local = make_loop()
    counters = {"steps": 24, "episodes": 2, "updates": 3, "learning_since": 12}
    fresh.restore(snapshot._replace(counters=counters))
    assert fresh.counters == Counters(**counters)
    np.testing.assert_array_equal(fresh.snapshot().actors, snapshot.actors)
    assert local.num_rows == fresh.flushed_at == 24
    for steps, updates in ((27, 3), (30, 4)):
        advance(fresh, 1)
        assert (fresh.counters.steps, fresh.counters.updates) == (steps, updates)


@pytest.mark.parametrize("continues", [False, True])
def test_restored_episodes_are_cut_unless_they_continue(continues, monkeypatch):
    seconds = types.SimpleNamespace(perf_counter=itertools.count().__next__)
    monkeypatch.setattr("retrax.training.loop.time", seconds)  # acting and learning take 1 each
    loop, local = make_loop(replay=make_replay(min_rows=100))
    advance(loop, 5)
    counters = vars(loop.counters).copy()
    snapshot = jax.tree.map(np.array, loop.snapshot())._replace(counters=counters)
    running, metrics = unpack(pack([loop.running(), loop.open_metrics()]))
    events = []
    fresh, kept = make_loop(replay=make_replay(min_rows=100), seed=1, events=events)
    if continues:
        fresh._actors[0]._environment.restore(running["actors"][0]["environment"])
    fresh.restore(snapshot, metrics, running if continues else None)
    for each in (loop, fresh):
        advance(each, 25)
    assert events.count("reset") == (not continues)
    rows, _ = kept.read(np.array([3]))  # from row 3 on; the restore was after row 4
    assert rows.is_last.tolist() == [[False, not continues, False, False]]
    means, clock = fresh.flush()
    taken = fresh.counters.steps - counters["steps"]  # not those of the open metrics
    assert clock["steps_per_second"] * 2 * 25 == taken
    if continues:
        jax.tree.map(np.testing.assert_array_equal, local.state(), kept.state())
        assert means == loop.flush()[0]


# Several actors: a program in one thread


def make_program(events=None, agent=None):
    """Of three actors with an environment each, which fetch parameters every 5 steps."""
    run = RunConfig(
        agent="noisy_agent:NOISY",
        environment="catch",
        num_actors=3,
        num_envs=3,
        actor_update_period=5,
    )

    def taped(environment, index):
        return environment if events is None else Tape(environment, {"step"}, events, index)

    return loop_of(run, taped, agent)


def test_actors_in_one_thread_fetch_the_newest_parameters():
    """Not those of the fetch before: an actor's state here is the version with which it acted."""
    seen = {"seen": jnp.float32(0)}
    agent = constant_agent(explore=lambda version, *_: Decision(jnp.int32(0), seen, version))
    loop = make_program(agent=agent)
    made = []
    for step in range(40):
        made.append(loop.learner.updates)
        advance(loop, 1)
        # Fetched after every fifth step, before the updates that are due then.
        assert loop.actor_states().tolist() == [made[max(step // 5 * 5 - 1, 0)]] * 3
    assert made[-1] > 20


def test_each_actor_steps_once_in_a_seeded_order():
    orders = []
    for _ in range(2):
        events = []
        advance(make_program(events), 12)
        rounds = np.array(events).reshape(12, 3)
        assert (np.sort(rounds, axis=1) == np.arange(3)).all()
        orders.append(rounds.tolist())
    assert orders[0] == orders[1]
    assert len(set(map(tuple, orders[0]))) > 1


def test_a_program_in_one_thread_is_repeatable_and_its_actors_are_restored():
    ours, theirs = (advance(make_program(), 25).snapshot() for _ in range(2))
    states = [without_keys((each.learner, each.replay, each.actors)) for each in (ours, theirs)]
    chex.assert_trees_all_equal(*states)
    assert ours.actors.calls.tolist() == [25] * 3
    fresh, calls = make_program(), np.arange(3, dtype=np.int32)
    fresh.restore(ours._replace(actors=ours.actors._replace(calls=calls)))
    assert fresh.actor_states().calls.tolist() == [0, 1, 2]
