"""Environments in JAX: against the host's classes, by their id, of other libraries, and refused."""

import collections
import itertools
import sys
import types

import dm_env
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from dm_env import StepType

from retrax.environments import check_environment, make
from retrax.environments.factory import make_pure_vector
from retrax.environments.pure import PureVector, Transition, check_pure
from retrax.environments.pure_tasks import PureCartPole, PureCatch, PureMemory, PurePendulum
from retrax.environments.suites import _from_jumanji, from_gymnax, from_pgx, make_suite

NUM_ENVS = 3


def balanced(observation, rng):
    """Pushes the cart under its pole; environment 0 acts at random, so that its pole falls."""
    x, v, angle, omega = observation.T
    actions = (3 * angle + omega + 0.05 * x + 0.1 * v > 0).astype(np.int32)
    return np.where(np.arange(NUM_ENVS) == 0, rng.integers(2, size=NUM_ENVS), actions)


def swinging(observation, rng):
    """Torques that are out of bounds sometimes."""
    return rng.normal(0.0, 2.0, (NUM_ENVS, 1)).astype(np.float32)


@pytest.mark.parametrize(
    ("id", "environment", "steps", "policy", "close"),
    [
        ("CartPole-v1", PureCartPole(), 520, balanced, 1e-6),
        ("Pendulum-v1", PurePendulum(), 220, swinging, 5e-6),  # whose rewards reach -16
    ],
)
def test_every_step_is_that_of_the_host(id, environment, steps, policy, close):
    host, vector = make(id, num_envs=NUM_ENVS), PureVector(environment, num_envs=NUM_ENVS)
    assert environment.spec == host.spec
    rng, kinds = np.random.default_rng(0), set()
    found, wanted = vector.reset(), host.reset()
    for _ in range(steps):
        rest = found.step_type != StepType.FIRST
        assert found.step_type.tolist() == wanted.step_type.tolist()
        np.testing.assert_allclose(found.reward, wanted.reward, atol=close)
        np.testing.assert_array_equal(found.discount, wanted.discount)
        np.testing.assert_allclose(found.observation[rest], wanted.observation[rest], atol=2e-4)
        kinds |= set(zip(found.step_type.tolist(), found.discount.tolist(), strict=True))
        state = jax.device_get(vector.running.state)
        for e, one in enumerate(host._environments):  # starts differ, and rounding must not grow
            one.unwrapped.state = np.array(state[e], np.float64)
        actions = policy(found.observation, rng)
        found, wanted = vector.step(actions), host.step(actions)
    terminated = {(2, 0.0)} if policy is balanced else set()
    assert kinds == {(0, 1.0), (1, 1.0), (2, 1.0)} | terminated


def test_a_state_of_another_environment_is_refused():
    vector = PureVector(PureCatch(), num_envs=2)
    with pytest.raises(ValueError, match="have not been reset yet"):
        vector.state()
    vector.reset()
    for other in (PureVector(PureCatch(), num_envs=3), PureVector(PureMemory(), num_envs=2)):
        with pytest.raises(ValueError, match=r"^a state of another .* \(2, 2\).* instead of \['ui"):
            other.restore(vector.state())


def test_environments_are_reset_only_where_an_episode_begins():
    class Counted(PureMemory):
        def reset(self, key):
            jax.debug.callback(lambda: begun.append(1))
            return super().reset(key)

    begun, vector = [], PureVector(Counted(length=2))
    found, _ = kinds(vector, [0] * 7)
    jax.effects_barrier()
    assert (sum(kind == 0 for kind, *_ in found), len(begun)) == (1, 2)  # with the first reset


def returning(change):
    """An environment of which `change` makes another one."""

    class Other(PureMemory):
        def step(self, key, state, action):
            return change(*super().step(key, state, action))

    return Other()


@pytest.mark.parametrize(
    ("field", "value", "where"),
    [("reward", np.nan, ""), ("reward", -np.inf, ""), ("observation", np.nan, r"\[0\]")],
)
def test_numbers_that_are_not_finite_are_named(field, value, where):
    def late(state, transition):
        changed = jnp.where(state[0] == 3, value, getattr(transition, field))
        return state, transition._replace(**{field: changed})

    sentence = rf"^the {field}{where} of environment 0 at step 3 is {value}; it must be finite"
    with pytest.raises(ValueError, match=sentence):
        kinds(PureVector(returning(late)), [0, 0, 0])


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"reward": jnp.zeros(1)}, r"must return a reward that is one number, got float32 \(1,\)"),
        ({"terminated": jnp.ones(2)}, r"a terminated that is one bool, got float32 \(2,\)"),
        ({"truncated": 1.0}, r"must return a truncated that is one bool, got float32 \(\)"),
        ({"observation": jnp.ones(8)}, r"must return observations float32 \(2,\), got .* \(8,\)\."),
    ],
)
def test_fields_of_other_shapes_are_named(fields, sentence):
    with pytest.raises(ValueError, match=sentence):
        check_pure(returning(lambda state, transition: (state, transition._replace(**fields))))


@pytest.mark.parametrize(
    ("environment", "sentence"),
    [
        (returning(lambda state, transition: float(state[0])), "Other cannot be traced by JAX: "),
        (
            returning(lambda state, transition: ((state[0] * 1.0, state[1]), transition)),
            "Other must return states of the same types from reset and from step",
        ),
        (make("CartPole-v1"), "GymnasiumVector is not an environment written in JAX: it must have"),
        (object(), "object is not an environment written in JAX"),
    ],
)
def test_what_is_not_pure_is_refused_in_one_sentence(environment, sentence):
    with pytest.raises(ValueError, match=sentence) as caught:
        check_pure(environment)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("wrong", ["observation", "reward", "step 2", "restart"])
def test_functions_that_are_not_pure_or_restart_are_told_by_the_check(wrong, caplog):
    class Other(PureMemory):
        traces = itertools.count()
        kinds = itertools.chain("iii", itertools.repeat("f" if wrong == "step 2" else "i"))

        def reset(self, key):
            (time, cue), seen = super().reset(key)
            seen *= 0.9 ** ((wrong == "observation") * next(self.traces))
            return (time.astype(next(self.kinds)), cue), seen

        def step(self, key, state, action):
            (time, cue), found = super().step(key, state, action)
            begun = jnp.where(found.terminated, jnp.array([1.0, 0.0]), found.observation)
            reward = found.reward + (wrong == "reward") * next(self.traces)
            return (time.astype(next(self.kinds)), cue), Transition(begun, reward, found.terminated)

    if wrong == "restart":
        check_environment(PureVector(Other(), num_envs=2), steps=50)
        assert "step() must not reset: its observation at" in caplog.text
    else:
        with pytest.raises(ValueError, match=f"^{wrong} (of .* 0 at .* alone|is compiled again: )"):
            check_environment(PureVector(Other(), num_envs=2), steps=2)


# By their id, and of other libraries


State = collections.namedtuple(
    "State", "observation legal_action_mask rewards terminated truncated"
)
Time, Count = (collections.namedtuple("Time", name) for name in ("time", "step_count"))


class Game:
    """Of pgx's form: lasts 3 moves, the last one is cut off after action 1; pays the action."""

    id, num_players, num_actions, observation_shape = "game", 1, 2, (4, 4, 2)

    def init(self, key):
        false = jnp.zeros((), bool)
        mask = jnp.array([True, True])
        return State(jnp.zeros((4, 4, 2), bool), mask, jnp.zeros(1), false, false)

    def step(self, state, action, key):
        seen = jnp.roll(state.observation, 1).at[0, 0, 0].set(True)
        over = seen.sum() == 3
        mask, reward = jnp.array([True, False]), jnp.float32(action)[None]
        return State(seen, mask, reward, over & (action == 0), over & (action == 1))


class Swing:
    """Of gymnax's form: ends by itself after action 1, and after 4 steps in any case."""

    default_params = types.SimpleNamespace(max_steps_in_episode=4)

    def action_space(self, params):
        return types.SimpleNamespace(n=2)

    def observation_space(self, params):
        return types.SimpleNamespace(shape=(1,))

    def reset_env(self, key, params):
        return jnp.zeros(1), Time(jnp.int32(0))

    def step_env(self, key, state, action, params):
        state = Time(state.time + 1)
        done = (action == 1) | (state.time >= params.max_steps_in_episode)
        return state.time[None] * 1.0, state, jnp.float32(0.5), done, {}


class Pushed(Swing):
    """Of the form of gymnax 1.0: the limit is asked for apart; an action is two numbers."""

    def action_space(self, params):
        return types.SimpleNamespace(shape=(2,), low=-1.0, high=np.array([1.0, 3.0]))

    def is_truncated(self, state, params):
        return state.time >= params.max_steps_in_episode

    def step_env(self, key, state, action, params):
        state = Time(state.time + 1)
        return state.time[None] * 1.0, state, action[1], action[0] > 0, {}


class Clock:
    """Of jumanji's form: the third step and the action [1, 2] end it, both with discount 0."""

    time_limit, action_spec = 3, types.SimpleNamespace(num_values=np.array([2, 3]))

    def reset(self, key):
        weak = jnp.where(key[0] > 0, 0, 0)
        return Count(weak), dm_env.TimeStep(0, 0.0, 1.0, {"a": jnp.zeros(2), "t": jnp.int32(0)})

    def step(self, state, action):
        time = state.step_count + jnp.int32(1)
        over = (time >= 3) | (action == jnp.array([1, 2])).all()
        return Count(time), dm_env.TimeStep(
            1 + over, 1.0 * time, 1.0 - over, {"a": action, "t": time}
        )


def test_a_time_limit_of_jumanji_truncates_and_actions_of_parts_are_numbered():
    vector = PureVector(_from_jumanji(Clock()))
    check_environment(PureVector(vector.pure, num_envs=2), steps=9)
    assert vector.spec.actions.num_values == 6
    found, steps = kinds(vector, [4, 0, 3, 0, 2, 5])
    assert found[:4] == [(1, 1.0, 1.0), (1, 2.0, 1.0), (2, 3.0, 1.0), (0, 0.0, 1.0)]
    assert found[5] == (2, 2.0, 0.0)
    assert steps[5].observation[0].tolist() == [1, 2, 2]


def kinds(vector, actions):
    vector.reset()
    steps = [vector.step(np.array([action])) for action in actions]
    return [(int(s.step_type[0]), float(s.reward[0]), float(s.discount[0])) for s in steps], steps


def test_games_of_pgx_are_images_and_their_two_kinds_of_ends_differ():
    vector = PureVector(from_pgx(Game()))
    check_environment(vector, steps=20)
    found, steps = kinds(vector, [1, 1, 0, 0, 1, 0, 1])
    first = [(1, 1.0, 1.0), (1, 1.0, 1.0), (2, 0.0, 0.0), (0, 0.0, 1.0)]
    assert found == [*first, (1, 1.0, 1.0), (1, 0.0, 1.0), (2, 1.0, 1.0)]
    assert sorted(set(steps[1].observation.ravel().tolist())) == [0, 255]
    assert vector.spec.max_episode_steps == 10_000
    assert (steps[1].observation[0, ..., 2:] == [255, 0]).all(), "planes of the mask"
    with pytest.raises(ValueError, match="cannot be drawn: it has no method draw"):
        vector.render()


def test_environments_of_gymnax_are_truncated_at_their_own_limit():
    vector = PureVector(from_gymnax(Swing()))
    check_environment(vector, steps=20)
    found, _ = kinds(vector, [0, 1, 0, 0, 0, 0, 0])
    assert found[:3] == [(1, 0.5, 1.0), (2, 0.5, 0.0), (0, 0.0, 1.0)]
    assert found[3:] == [(1, 0.5, 1.0)] * 3 + [(2, 0.5, 1.0)]
    board = type("Board", (Swing,), {"reset_env": lambda *_: (jnp.full((2, 3, 1), 300), Time(0))})
    _, seen = from_gymnax(board()).reset(jax.random.key(0))  # bytes would not hold its numbers
    assert (seen.dtype, seen.tolist()) == (np.float32, [300] * 6)


def test_environments_of_gymnax_1_say_themselves_what_ends_them():
    vector = PureVector(from_gymnax(Pushed()))
    check_environment(vector, steps=20)
    np.testing.assert_array_equal(vector.spec.actions.maximum, [1.0, 3.0])
    still, end = [0.0, 2.0], [1.0, 2.0]  # the first episode ends by itself at its limit
    found, _ = kinds(vector, [still, still, still, end, end, still, still, still, still])
    assert found[2:5] == [(1, 2.0, 1.0), (2, 2.0, 0.0), (0, 0.0, 1.0)]
    assert found[-1] == (2, 2.0, 1.0)
    space = types.SimpleNamespace(shape=(2,))
    with pytest.raises(ValueError, match="its actions must be discrete or bounded, got namespace"):
        from_gymnax(type("Odd", (Swing,), {"action_space": lambda self, params: space})())


class Endless(PureCartPole):
    """Has no limit, and no end."""

    spec = PureCartPole.spec._replace(max_episode_steps=None)

    def step(self, key, state, action):
        return state, Transition(state, jnp.float32(1.0), jnp.bool_(False), jnp.bool_(False))

    def draw(self, observation):
        return np.zeros((2, 2, 3), np.uint8)


@pytest.fixture
def module(monkeypatch):
    module = types.ModuleType("pure_examples")
    module.Swing, module.Cart, module.number = Swing, PureCartPole, 3
    module.Endless, module.seeded = Endless, lambda seed: Endless()
    monkeypatch.setitem(sys.modules, "pure_examples", module)


@pytest.mark.parametrize("name", ["Cart", "Endless", "seeded", "CartPole-v1", "Swing"])
def test_a_limit_holds_on_the_device_and_on_the_host(module, name):
    id = name if "-v" in name else f"pure_examples:{name}"
    short = f"{id},max_episode_steps=3"
    for limited in (make(short), make_pure_vector(short)):
        assert limited.spec.max_episode_steps == 3
        found, _ = kinds(limited, [0, 0, 0, 0])
        assert ([kind for kind, *_ in found], found[2][2]) == ([1, 1, 2, 0], 1)
    if name in ("Endless", "seeded"):
        for made in (make(id), make_pure_vector(id)):
            assert made.spec.max_episode_steps == 10_000
            made.reset()
            assert made.render().shape == (2, 2, 3)
    for maker in (make, make_pure_vector):
        with pytest.raises(ValueError, match="max_episode_steps"):
            maker(f"{id},max_episode_steps=0")


@pytest.mark.parametrize(
    ("id", "sentence"),
    [
        ("Acrobot-v1", "Acrobot-v1 is not an environment written in JAX: allowed are catch, memor"),
        ("pure_examples:number", "pure_examples:number must be a function or a class"),
    ],
)
def test_what_is_not_written_in_jax_is_refused(module, id, sentence):
    with pytest.raises(ValueError, match=sentence):
        make_pure_vector(id)


def test_games_for_two_are_refused_and_those_of_minatar_have_no_masks():
    game = Game()
    game.id = "minatar-game"
    assert not from_pgx(game).spec.masks_actions
    game.id = "game"
    game.num_players = 2
    with pytest.raises(ValueError, match="pgx:game must be for one player, but it has 2"):
        from_pgx(game)


def test_games_are_found_by_their_name(monkeypatch):
    pgx = types.ModuleType("pgx")
    pgx.available_envs, pgx.make = (lambda: ("game",)), (lambda name: Game())
    monkeypatch.setitem(sys.modules, "pgx", pgx)
    assert make("pgx:game", num_envs=2).spec.observations.shape == (4, 4, 4)
    assert make("pgx:game,max_episode_steps=2").spec.max_episode_steps == 2
    with pytest.raises(ValueError, match=r"pgx has no environment 'gama' .did you mean game"):
        make("pgx:gama")
    with pytest.raises(ValueError, match=r"pgx:game cannot be made: .* argument 'size'"):
        make("pgx:game,size=3")
    make_suite.cache_clear()
