import collections

import dm_env
import numpy as np
import pytest
from dm_env import specs

from retrax.environments import check_environment
from retrax.environments.dm_env_adapter import DmEnvVector

FIRST, MID, LAST = (int(kind) for kind in dm_env.StepType)
CONTINUOUS = specs.BoundedArray((2,), np.float64, -1.0, [0.5, 1.0])
VECTOR = specs.Array((3,), np.float64)


class Counting(dm_env.Environment):
    """Observations count the steps of an episode, which ends after `length` of them."""

    def __init__(self, length=3, seen=VECTOR, actions=CONTINUOUS, discount=0.0, middle=1.0):
        self.seen, self.actions, self.length = seen, actions, length
        self.discount, self.middle = discount, middle
        self.given, self.time, self.closed = [], 0, 0

    def observation_spec(self):
        return self.seen

    def action_spec(self):
        return self.actions

    def observe(self):
        if isinstance(self.seen, dict):
            return {k: np.full(s.shape, self.time, s.dtype) for k, s in self.seen.items()}
        return np.full(self.seen.shape, self.time, self.seen.dtype)

    def reset(self):
        self.time = 0
        return dm_env.restart(self.observe())

    def step(self, action):
        self.given.append(action)
        self.time += 1
        if self.time == self.length:
            return dm_env.TimeStep(
                dm_env.StepType.LAST, 2.0 * self.time, self.discount, self.observe()
            )
        return dm_env.transition(2.0 * self.time, self.observe(), self.middle)

    def close(self):
        self.closed += 1


def play(environment, steps):
    shape = (environment.num_envs, *environment.spec.actions.shape)
    actions = np.zeros(shape, environment.spec.actions.dtype)
    found = [environment.reset()] + [environment.step(actions) for _ in range(steps)]
    return [np.stack([getattr(s, name) for s in found]).tolist() for name in found[0]._fields[:3]]


@pytest.mark.parametrize("discount", [0.0, 1.0])
def test_episodes_restart_and_end_by_termination_or_truncation(discount):
    environment = DmEnvVector([Counting(3, discount=discount), Counting(1, discount=discount)])
    kinds, rewards, discounts = play(environment, 4)
    assert kinds == [[FIRST, FIRST], [MID, LAST], [MID, FIRST], [LAST, LAST], [FIRST, FIRST]]
    assert rewards == [[0, 0], [2, 2], [4, 0], [6, 2], [0, 0]]
    assert discounts == [[1, 1], [1, discount], [1, 1], [discount, discount], [1, 1]]


def test_episodes_without_an_end_are_cut_off():
    environment = DmEnvVector([Counting(99)], max_episode_steps=2)
    kinds, _, discounts = play(environment, 4)
    assert kinds == [[FIRST], [MID], [LAST], [FIRST], [MID]]
    assert discounts == [[1]] * 5


@pytest.mark.parametrize(
    ("seen", "shape", "dtype"),
    [
        (VECTOR, (3,), np.float32),
        (specs.BoundedArray((2, 3), np.float32, 0, 9), (2, 3), np.float32),
        (specs.Array((4, 5), np.uint8), (4, 5, 1), np.uint8),
        (specs.Array((4, 5, 3), np.uint8), (4, 5, 3), np.uint8),
        (specs.Array((4, 5, 3), bool), (4, 5, 3), np.uint8),
    ],
)
def test_arrays(seen, shape, dtype):
    environment = DmEnvVector([Counting(seen=seen), Counting(seen=seen)])
    check_environment(environment, steps=8)
    assert (environment.spec.observations.shape, environment.spec.observations.dtype) == (
        shape,
        dtype,
    )
    environment.reset()
    observation = environment.step(np.zeros((2, 2))).observation
    largest = 255 if seen.dtype == bool else 1
    np.testing.assert_array_equal(observation, np.full((2, *shape), largest))
    assert observation.dtype == dtype


def test_dictionaries_are_flattened_in_the_order_of_the_spec():
    seen = {"b": specs.Array((2,), np.float64), "a": specs.Array((), np.float32)}
    inner = Counting(seen=seen)
    inner.observe = lambda: {"a": np.float32(1), "b": np.array([2.0, 3.0])}
    environment = DmEnvVector([inner])
    np.testing.assert_array_equal(environment.reset().observation, [[2, 3, 1]])
    assert environment.spec.observations.shape == (3,)


def test_actions_are_clipped_and_converted():
    inner = Counting(9)
    environment = DmEnvVector([inner])
    environment.reset()
    for action in ([5, 5], [-5, 0.25]):
        environment.step(np.array([action], np.float32))
    np.testing.assert_array_equal(inner.given, [[0.5, 1], [-1, 0.25]])
    assert inner.given[0].dtype == np.float64
    space = environment.spec.actions
    np.testing.assert_array_equal((space.minimum, space.maximum), [[-1, -1], [0.5, 1]])


def test_discrete_actions():
    inner = Counting(actions=specs.DiscreteArray(3, np.int64))
    environment = DmEnvVector([inner])
    check_environment(environment, steps=8)
    assert environment.spec.actions == specs.DiscreteArray(3, np.int32, "action")
    assert (inner.given[0].shape, inner.given[0].dtype) == ((), np.int64)


@pytest.mark.parametrize(
    ("kind", "spec"),
    [
        ("observation", specs.StringArray(())),
        ("observation", specs.Array((2,), np.int32)),
        ("observation", {"a": VECTOR, "b": [VECTOR]}),
        ("observation", [VECTOR]),
        ("action", specs.Array((2,), np.float32)),
        ("action", specs.BoundedArray((), np.int32, 0, 3)),
        ("action", specs.BoundedArray((1,), np.float32, -np.inf, 1)),
        ("action", {"a": CONTINUOUS}),
    ],
)
def test_unsupported_specs_are_refused(kind, spec):
    given = {"seen" if kind == "observation" else "actions": spec}
    with pytest.raises(ValueError, match=rf"the {kind} spec .* is not supported: it must be"):
        DmEnvVector([Counting(**given)])


def test_environments_that_differ_or_are_one_are_refused():
    with pytest.raises(ValueError, match="observation_spec of environment 1 is Array"):
        DmEnvVector([Counting(), Counting(seen=specs.Array((4,), np.float64))])
    with pytest.raises(ValueError, match="action_spec of environment 1 is Discrete"):
        DmEnvVector([Counting(), Counting(actions=specs.DiscreteArray(2))])
    one = Counting()
    with pytest.raises(ValueError, match="two calls returned the same one"):
        DmEnvVector([one, one])


@pytest.mark.parametrize(("discounts", "step"), [({"middle": 0.9}, 1), ({"discount": 0.5}, 3)])
def test_other_discounts_are_refused(discounts, step):
    environment = DmEnvVector([Counting(), Counting(**discounts)])
    with pytest.raises(ValueError, match=rf"discount of environment 1 at step {step} is 0\.\d; it"):
        play(environment, 3)


def test_drawing_and_closing():
    inner = [Counting(), Counting()]
    environment = DmEnvVector(inner)
    with pytest.raises(ValueError, match=r"Counting has no method render\(\)"):
        environment.render()
    inner[0].render = lambda: [[[1, 2, 3]]]
    assert environment.render().dtype == np.uint8
    assert environment.render().shape == (1, 1, 3)
    environment.close()
    environment.close()
    assert collections.Counter(one.closed for one in inner) == {1: 2}
