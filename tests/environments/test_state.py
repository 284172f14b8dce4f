"""States of environments: a new environment with the state of another one goes on as that one."""

import collections
import functools
import pickle
import types

import gymnasium
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from plain_values import same
from stepping import Counting, normalised

from retrax.environments import atari, make
from retrax.environments.plain_data import Attributes, NotPlainError, pack, unpack

NUM_ENVS = 2


def test_a_state_of_other_physics_is_refused():
    pytest.importorskip("dm_control", reason="no mujoco extra")
    walker, hopper = (make(f"dm_control:{task}") for task in ("walker/walk", "hopper/hop"))
    state = unpack(pack(walker.state()))
    with pytest.raises(ValueError, match="class Hopper instead of PlanarWalker"):
        hopper.restore(state)
    with pytest.raises(ValueError, match="physics model is a different one"):
        hopper._simulations[0].restore(state["environments"][0][-1])


def test_an_atari_state_of_other_environments_is_refused():
    one, three = (make("ALE/Pong-v5", num_envs=count) for count in (1, 3))
    with pytest.raises(ValueError, match="is of 3 environments instead of 1"):
        one.restore(three.state())


def test_few_actions_are_kept():
    """Those before the oldest seed are forgotten; each has the seed of its own number."""
    games = atari.PlayedGames(np.array([5, 6]))
    for _ in range(3):
        games.add(np.array([1, 2]))
    assert [*games.seeds] == [5, 6]
    (renewed,) = games.renew(np.array([True, False]))
    assert [*games.seeds] == [renewed, 6]
    assert renewed != 5
    games.add(np.array([3, 4]))

    def again():
        """What emulators are asked to do."""
        asked = []
        step, reset = (lambda actions: asked.append([*actions])), (lambda **seeds: asked.append(0))
        games.play_again(types.SimpleNamespace(step=step, reset=reset))
        return asked

    assert again() == [0, [1, 2], [1, 2], [1, 2], 0, [3, 4]]
    games.renew(np.array([False, True]))
    assert again() == [0, [3, 4], 0]


class Walk(Counting):
    """Has an attribute that a test chooses."""

    length = 5

    def __init__(self, attribute=None):
        self.attribute, self.time = attribute, 0


class Hidden(list):
    pass


class Slots:
    __slots__ = ("__dict__", "x")


SHARED = np.zeros(6)


HIDING = {
    "object": object(),
    "subclass": Hidden(),
    "set": {1, 2},
    "partial": functools.partial(max, 1),
    "closure": (lambda x: lambda: x)([1]),
    "method": np.random.default_rng(0).random,
    "array of objects": np.array([object()]),
    "overlapping arrays": [SHARED[:4], SHARED[2:]],
    "a library's memory": np.asarray(memoryview(bytearray(8))),
}


@pytest.mark.parametrize("name", HIDING)
def test_attributes_that_may_hide_a_state_are_refused(name):
    environment = make(lambda: Walk(HIDING[name]))
    with pytest.raises(NotPlainError, match="attribute"):
        pack(environment.state())


def test_classes_that_may_hide_a_state_are_refused():
    for thing in (Hidden(), Slots(), 3):
        with pytest.raises(NotPlainError, match="is not a plain Python class"):
            Attributes(thing).state()


def test_another_object_is_named():
    one, other = (make(lambda f=function: Walk(f)) for function in (same, fresh))
    state = unpack(pack(one.state()))
    with pytest.raises(ValueError, match=r"constants .* instead of"):
        other.restore(state)
    del state["environments"][0][0]["constants"]
    with pytest.raises(ValueError, match="the state is of another version"):
        other.restore(state)


def test_attributes_of_the_restored_environment_alone_are_deleted():
    one, other = make(Walk), make(Walk)
    one.reset()
    other.reset()
    other._environments[0].later = 3
    other.restore(unpack(pack(one.state())))
    assert vars(other._environments[0]).keys() == vars(one._environments[0]).keys()


# Data of classes


def fresh(data, write):
    """A class as in another process: with the data that its source gives it."""

    class Levels(Walk):
        """Shows what `write` returns, which may write into the data of the class."""

        def step(self, action):
            observation, *rest = super().step(action)
            return observation * 0 + write(type(self)) % 9, *rest

    Levels.data = data()
    return Levels


def append(kind):
    kind.data.append(len(kind.data) + 1)
    return kind.data[-1]


def put(kind):
    kind.data[len(kind.data)] = 0
    return len(kind.data)


def add(kind):
    kind.data += 1
    return np.max(kind.data)


WRITTEN = {
    "list": (lambda: [0] * 5, append),
    "deque": (lambda: collections.deque([1], 7), append),
    "dictionary": (dict, put),
    "array": (lambda: np.zeros(3), add),
    "generator": (lambda: np.random.default_rng(3), lambda kind: kind.data.integers(9)),
    "space": (lambda: gymnasium.spaces.Discrete(9, seed=3), lambda kind: kind.data.sample()),
}


def steps(environment, number):
    actions = np.zeros(NUM_ENVS, np.int32)
    return [environment.step(actions).observation.ravel().tolist() for _ in range(number)]


@pytest.mark.parametrize("name", WRITTEN)
def test_data_of_a_class_that_is_written_in_place_is_kept(name):
    one, other = (make(fresh(*WRITTEN[name]), num_envs=NUM_ENVS) for _ in range(2))
    one.reset()
    steps(one, 7)
    other.restore(unpack(pack(one.state())))
    assert steps(one, 9) == steps(other, 9)


def test_data_of_a_class_that_cannot_be_written_in_place_must_be_the_same():
    for data, other, found in (
        (3, 14, "'3'} instead of {.*'14'"),
        (set(), {2, 1}, r"'set \[\]'} instead of .*set \['1', '2'\]"),
    ):
        here, there = (make(fresh(lambda x=x: x, lambda kind: 0)) for x in (data, other))
        with pytest.raises(ValueError, match=rf"constants {{'.*Levels.data': {found}"):
            here.restore(unpack(pack(there.state())))
    kind = fresh(list, None)
    kind.__qualname__, kind.metadata = "Env", {"fps": 3}  # as the base's
    state = unpack(pack(Attributes(kind()).state()))
    Attributes(kind()).restore(state)
    assert kind.metadata == {"fps": 3}
    kind.later = []
    with pytest.raises(ValueError, match=r"constants {.*Env.later': 'list'} instead of {}"):
        Attributes(kind()).restore(state)


@pytest.mark.parametrize("name", ["object", "partial", "array of objects"])
def test_data_of_a_class_that_may_hide_a_state_are_refused(name):
    environment = make(fresh(lambda: HIDING[name], lambda kind: 0))
    with pytest.raises(NotPlainError, match=r"Levels\.data is a"):
        pack(environment.state())


# Wrappers with running statistics


def test_a_note_says_what_becomes_of_running_statistics():
    assert make(normalised).spec.note == (
        "Each environment has its own running statistics of NormalizeReward and "
        "NormalizeObservation: a resumed run keeps them, and evaluations start with new ones."
    )
    assert make("Pendulum-v1").spec.note == ""


# Plain data

SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary()
ARRAYS = arrays.arrays(
    st.sampled_from(["f4", "i8", "?", "u1", "S3", "U2", "f2"]), arrays.array_shapes(min_dims=0)
)
TREES = st.recursive(
    SCALARS | ARRAYS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.lists(inner, max_size=3).map(lambda items: collections.deque(items, 4))
        | st.dictionaries(st.text() | st.integers() | st.tuples(st.booleans()), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(TREES)
def test_plain_data_are_the_same_again(tree):
    same(tree, unpack(pack(tree)))


LAYOUTS = {
    "Fortran": lambda x: np.asfortranarray(x),
    "permuted": lambda x: x.transpose(1, 2, 0).copy().transpose(2, 0, 1),
    "backwards": lambda x: x[::-1, :, ::-1],
    "every second": lambda x: np.repeat(x, 2, axis=1)[:, ::2],
    "in between": lambda x: x[1:, 2:, :-1],
    "broadcast": lambda x: np.broadcast_to(x[:1], x.shape),
    "none": lambda x: x,
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_arrays_keep_their_order_in_memory(layout):
    """So that sums have the same bits."""
    array = LAYOUTS[layout](np.random.default_rng(0).normal(size=(7, 11, 5)).astype(np.float32))
    found = unpack(pack({"a": array}))["a"]
    same(array, found)
    assert array.strides == found.strides
    assert np.sum(array, dtype=np.float32).tobytes() == np.sum(found, dtype=np.float32).tobytes()
    again = unpack(pack({"a": found}))["a"]
    same(found, again)
    assert again.strides == found.strides
    found[...] = 0  # it can be written, and is a copy


@pytest.mark.parametrize("bits", ["PCG64", "PCG64DXSM", "MT19937", "Philox", "SFC64", ""])
def test_generators_go_on_and_stay_shared(bits):
    old = np.random.RandomState(3)
    generator = np.random.Generator(getattr(np.random, bits)(3)) if bits else old
    draw = getattr(generator, "integers", old.randint)
    draw(5, size=3, dtype=np.int32)  # half of 64 bits is left
    generator.normal(size=3)  # of older ones, the fourth is drawn already
    first, second = unpack(pack([generator, generator]))
    assert first is second
    assert first.normal(size=9).tolist() == generator.normal(size=9).tolist()


def test_what_is_shared_stays_shared():
    array, items = np.zeros(3), []
    items.append(items)
    found = unpack(pack({"a": array, "b": array, "items": items, "other": np.zeros(3)}))
    assert found["a"] is found["b"]
    assert found["a"] is not found["other"]
    assert found["items"][0] is found["items"]


@pytest.mark.parametrize("cut", [0, 4, 20, -1])
def test_damaged_states_are_refused(cut):
    data = pack({"a": np.arange(9), "b": np.random.default_rng(0)})
    with pytest.raises(ValueError, match=r"^the state is damaged \(.+\)$"):
        unpack(data[:cut])


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("thing", [print, functools.partial(print, 1), Hidden(), {"a": object()}])
def test_a_pickle_that_names_anything_else_is_not_executed(thing, protocol):
    with pytest.raises(ValueError, match=r"the state is damaged \(.* is not plain data\)"):
        unpack(pickle.dumps(thing, protocol))
