"""Gymnasium's vectors and EnvPool's, against the same environments one by one."""

import functools
import re
from types import SimpleNamespace

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv, VectorWrapper
from stepping import FIRST, LAST, MID, play

from retrax.environments import from_gymnasium_vector, make

NUM_ENVS, COUNT, SEED = 3, 60, 5
ACTIONS = np.random.default_rng(0).integers(4, size=(NUM_ENVS, COUNT))
FORMS = {
    "Box": spaces.Box(-99, 99, (3,), np.float32),
    "Dict": spaces.Dict({"a": spaces.Box(-9, 9, (2,), np.float32), "b": spaces.Discrete(9)}),
    "masked": spaces.Box(-99, 99, (3,), np.float32),  # and a mask in `info`
    "Tuple": spaces.Tuple([spaces.Discrete(9), spaces.Box(-9, 9, (), np.float32)]),
}


class Walk(gymnasium.Env):
    """Episodes of 1 to 4 steps, by chance; half of them end by a termination."""

    def __init__(self, form="Box"):
        self.form, self.observation_space = form, FORMS[form]
        self.action_space = spaces.Discrete(4, start=2)
        self.render_mode = "rgb_array"
        if form == "masked":
            self.action_mask = None  # as Taxi, which has a method of this name

    def info(self):
        legal = np.arange(4) != self.time
        return {"action_mask": legal.astype(np.int8)} if self.form == "masked" else {}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = self.action = 0
        self.length = int(self.np_random.integers(1, 5))
        return self.see(), self.info()

    def step(self, action):
        assert 2 <= action < 6
        assert self.time < self.length, "an episode that has ended is not stepped"
        self.time, self.action = self.time + 1, int(action)
        over = self.time == self.length
        terminated = bool(over and self.np_random.random() < 0.5)
        return self.see(), float(action) / 2, terminated, over and not terminated, self.info()

    def see(self):
        noise = np.float32(self.np_random.random())
        if self.form in ("Box", "masked"):
            return np.array([self.time, self.action, noise], np.float32)
        if self.form == "Dict":
            return {"a": np.array([noise, self.action], np.float32), "b": np.int64(self.time)}
        return np.int64(self.time), np.asarray(noise)

    def render(self):
        return np.full((2, 2, 3), self.time, np.uint8)


class Pool(SyncVectorEnv):
    """A stand-in for EnvPool: no seed in `reset`, and limits in another place."""

    def __init__(self, batch_size=NUM_ENVS):
        super().__init__([Walk] * NUM_ENVS)
        self.spec = SimpleNamespace(config=SimpleNamespace(max_episode_steps=7))
        self.all_env_ids, self.config = (), {"batch_size": batch_size}
        self.is_async = batch_size != NUM_ENVS

    def reset(self):
        return super().reset(seed=SEED)


def vector(form="Box", mode=AutoresetMode.NEXT_STEP):
    return SyncVectorEnv([functools.partial(Walk, form)] * NUM_ENVS, autoreset_mode=mode)


def alone(e, form):
    """The time steps of environment e as Gymnasium gives them: kind, reward, discount, numbers."""
    one, found = Walk(form), []

    def note(kind, reward, discount, seen, info):
        numbers = spaces.flatten(one.observation_space, seen)
        found.append((kind, reward, discount, *numbers.tolist(), *info.get("action_mask", ())))

    note(FIRST, 0.0, 1.0, *one.reset(seed=SEED + e))
    while len(found) < COUNT:
        seen, reward, terminated, truncated, info = one.step(2 + ACTIONS[e, len(found) - 1])
        kind = LAST if terminated or truncated else MID
        note(kind, reward, 1.0 - terminated, seen, info)
        if kind == LAST:
            note(FIRST, 0.0, 1.0, *one.reset())
    return found[:COUNT]


def together(environment):
    """The time steps of each environment."""
    found = [[] for _ in range(NUM_ENVS)]
    timestep = environment.reset()
    for actions in ACTIONS.T:
        for e in range(NUM_ENVS):
            parts = (timestep.step_type, timestep.reward, timestep.discount)
            numbers = np.ravel(timestep.observation[e]).tolist()
            found[e].append((*(part[e].item() for part in parts), *numbers))
        timestep = environment.step(actions)
    return found


@pytest.mark.parametrize("form", FORMS)
def test_all_steps_are_those_of_the_environments_one_by_one(form):
    environment = from_gymnasium_vector(vector(form), seed=SEED)
    assert together(environment) == [alone(e, form) for e in range(NUM_ENVS)]
    assert environment.spec.masks_actions == (form == "masked")


def test_what_comes_with_a_first_observation_means_nothing():
    environment = from_gymnasium_vector(Broken())
    found = [environment.reset(), *(environment.step(np.zeros(1, int)) for _ in range(3))]
    assert [(int(x.step_type[0]), x.reward[0]) for x in found] == [(FIRST, 0), (LAST, 1)] * 2


def test_wrapped_vectors_and_pools():
    wanted = [alone(e, "Box") for e in range(NUM_ENVS)]
    assert together(from_gymnasium_vector(VectorWrapper(vector()), seed=SEED)) == wanted
    pool = make(lambda num_envs, seed: Pool(), num_envs=NUM_ENVS)
    assert together(pool) == wanted
    assert pool.spec.max_episode_steps == 7


def test_gymnasiums_own_vectors_from_a_function():
    def several(num_envs, seed):
        return gymnasium.make_vec("CartPole-v1", num_envs=num_envs)

    assert make(several, num_envs=2, seed=3).spec.max_episode_steps == 500
    with pytest.raises(ValueError, match=r"^the result of .* has 2 environments instead of 3\.$"):
        make(lambda num_envs, seed: several(2, seed), num_envs=3)
    with pytest.raises(ValueError, match="so it must have the parameters num_envs and seed"):
        make(lambda: several(2, 0), num_envs=2)


class Broken(VectorEnv):
    """A vector that lacks something, or that returns something else."""

    num_envs, metadata = 1, {"autoreset_mode": AutoresetMode.NEXT_STEP}
    single_observation_space, single_action_space = FORMS["Box"], spaces.Discrete(2)

    observation, info, results = np.zeros((1, 3), np.float32), {}, None
    reward, terminated, truncated = np.ones(1), np.ones(1, bool), np.zeros(1, bool)

    def __init__(self, **changes):
        vars(self).update(changes)

    def reset(self, *, seed=None, options=None):
        return np.zeros((1, 3), np.float32), self.info

    def step(self, actions):
        whole = self.observation, self.reward, self.terminated, self.truncated, self.info
        return self.results or whole


GOES_ON, MASK = np.zeros(1, bool), {"action_mask": np.zeros((1, 2), bool)}
MASKS = "the vector's reset() must return an info with the action_mask"
TELLS = {"call": lambda name, mask: [True]}  # that its environments have it
MODE = 'metadata["autoreset_mode"] of Broken must be AutoresetMode.NEXT_STEP, got None'


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"metadata": {}}, MODE),
        ({"single_action_space": spaces.Text(3)}, "the action space Text(1, 3, charset="),
        ({"results": (1, 2)}, "the vector's step() must return (observation, reward, terminated"),
        ({"reward": np.ones(2)}, "the reward at step 1 is float64 [2]; it must be one number"),
        (
            {"reward": np.array([np.nan]), "terminated": GOES_ON},
            "the reward of environment 0 at step 1 is nan; it mus",
        ),
        (TELLS, f"{MASKS} of every environment, as it has an attribute of this name, got"),
        ({**TELLS, "info": {**MASK, "_action_mask": GOES_ON}}, f"{MASKS} of every"),
        ({**TELLS, "info": MASK}, "the action_mask of environment 0 at step 0 has no legal"),
        ({"terminated": np.array([2])}, "the terminated of environment 0 at step 1 is "),
        ({"observation": None, "terminated": GOES_ON}, "the observations at step 1 have too few "),
    ],
)
def test_what_vectors_lack_is_one_sentence(changes, sentence):
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}") as caught:
        list(play(from_gymnasium_vector(Broken(**changes)), np.zeros((1, 1), int)))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("given", "seed", "sentence"),
    [
        (Walk, None, "vector must be a gymnasium.vector.VectorEnv, as a pool of EnvPool 1.2"),
        (lambda: Pool(2), None, "a pool must have a batch_size of all its 3 environment"),
        (Pool, 1, "seed must be None for EnvPool"),
        (
            lambda: vector(mode=AutoresetMode.SAME_STEP),
            None,
            r'metadata\["autoreset_mode"\] of SyncVectorEnv must be AutoresetMode.NEXT_STEP, got '
            r"AutoresetMode.SAME_STEP: gymnasium.make_vec\(..., vector_kwargs=",
        ),
        (lambda: vector(mode=AutoresetMode.DISABLED), None, r"metadata.* got .*DISABLED: gymn"),
    ],
)
def test_other_things_are_refused(given, seed, sentence):
    with pytest.raises(ValueError, match=f"^{sentence}"):
        from_gymnasium_vector(given(), seed=seed)


def test_errors_of_a_vector_are_one_sentence():
    environment = from_gymnasium_vector(vector(), seed=SEED)
    environment.reset()
    environment._vector.step = lambda actions: 1 / 0
    with pytest.raises(ValueError, match=r"the vector failed in step\(\), at step 1: ZeroDivision"):
        environment.step(np.zeros(NUM_ENVS, int))
    with pytest.raises(ValueError, match="SyncVectorEnv has no state that can be saved"):
        environment.state()
