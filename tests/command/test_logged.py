"""Training from recorded episodes."""

import re
from types import SimpleNamespace

import chex
import gymnasium
import jax
import numpy as np
import pytest

import retrax
from retrax.agents import acer, d4pg, reactor
from retrax.datatypes import ReplayConfig, SequenceSpec
from retrax.environments import make
from retrax.evaluation import read_metrics
from retrax.replay.logged import LoggedReplay, rows_of
from retrax.training.logged import LoggedLoop

FOLLOW, SEA = "continuous_tasks:Follow-v0", "deep_sea,size=3"
SMALL = ReplayConfig(selector="proportional", batch_size=64, updates_per_call=2)


def transitions(num_episodes=60, seed=0):
    """Uniformly random actions in `Follow-v0`, one transition after the other."""
    environment, rng = make(FOLLOW, seed=seed)._environments[0], np.random.default_rng(seed)
    names = ("observations", "actions", "rewards", "next_observations")
    found = {name: [] for name in (*names, "terminations", "truncations")}
    for _ in range(num_episodes):
        seen, ended = environment.reset(seed=int(rng.integers(1000)))[0], False
        while not ended:
            action = rng.uniform(0, 4, 1).astype(np.float32)
            after, reward, terminated, ended, _ = environment.step(action)
            for column, value in zip(
                found.values(), (seen, action, reward, after, terminated, ended), strict=True
            ):
                column.append(np.array(value))
            seen = after
    return {name: np.array(column) for name, column in found.items()}


def voyages(num_episodes=80, num_actions=2, **extras):
    """Uniformly random actions in `deep_sea`, as episodes; mu is known."""
    environment, rng, episodes = make(SEA, seed=0), np.random.default_rng(0), []
    for _ in range(num_episodes):
        timesteps, actions = [environment.reset()], []
        while timesteps[-1].step_type[0] != 2:
            actions.append(rng.integers(num_actions, size=1, dtype=np.int32))
            timesteps.append(environment.step(actions[-1]))
        seen, rewards = (np.concatenate([t[i] for t in timesteps]) for i in (3, 1))
        mu = np.full((len(actions), num_actions), 1 / num_actions, np.float32)
        over = timesteps[-1].discount[0] == 0
        given = {"mu": mu, **extras}
        episodes.append(retrax.Episode(seen, np.concatenate(actions), rewards[1:], over, given))
    return episodes


SMALL_D4PG = d4pg.Config.small(
    replay=SMALL,
    policy_sizes=(32,),
    critic_sizes=(32, 32),
    n_step=1,
    discount=0.1,
    policy_learning_rate=3e-3,
    critic_learning_rate=3e-3,
    target_update_period=20,
)
SMALL_ACER = acer.Config.small(vector_sizes=(16,), hidden_size=16, sequence_length=5)


def run(agent, environment, data, directory, steps, config, **options):
    config = retrax.RunConfig(
        agent=agent, environment=environment, steps=steps, evaluate_every=0, agent_config=config
    )
    return retrax.train(config, directory, data=data, plain=True, **options)


@pytest.mark.slow
def test_d4pg_learns_from_transitions(tmp_path):
    data = retrax.episodes_of(**transitions())
    summary = run("d4pg", FOLLOW, data, tmp_path / "run", 800, SMALL_D4PG)
    assert (summary.steps, summary.updates) == (800, 800)
    found = retrax.evaluate(tmp_path / "run", episodes=20).mean_return
    assert found > -0.5, "action 2 gives -10 / 3, the best 0"


@pytest.mark.once
@pytest.mark.parametrize(
    ("agent", "config"),
    [
        ("acer", SMALL_ACER),
        pytest.param("reactor", reactor.Config.small(replay=SMALL), marks=pytest.mark.slow),
    ],
)
def test_agents_with_retrace_learn_where_mu_is_known(agent, config, tmp_path):
    data = voyages()
    run(agent, SEA, data, tmp_path / "run", 300, config)
    assert retrax.evaluate(tmp_path / "run", episodes=20).mean_return > 0.9
    largest = 0.0
    for episode in data:
        newest = 0.0
        for reward in episode.rewards:
            newest = config.discount * newest + reward
            largest = max(largest, abs(newest))
    scale = read_metrics(tmp_path / "run")["reward_scale"]
    np.testing.assert_allclose(np.nanmax(scale), largest, rtol=1e-5)


def test_a_resumed_run_is_the_whole_one(tmp_path):
    """What the cheap agent stores with an action is given."""
    data = [x._replace(extras={"score": np.ones(len(x.actions), np.float32)}) for x in voyages(5)]
    arguments = "noisy_agent:NOISY", SEA, data
    run(*arguments, tmp_path / "half", 20, None)
    with pytest.raises(ValueError, match=r"^The run learned from data: continue it with retrax"):
        run(*arguments[:2], None, tmp_path / "half", 40, None, resume=True)
    ones = np.ones(3, np.float32)
    for change, names in (
        ({"rewards": ones}, "reward"),
        ({"observations": data[0].observations[[0, 0, 0, 0]], "rewards": ones}, "obs.*, reward"),
        ({"extras": {"score": 2 * ones}}, r"extras\.score"),
    ):
        other = [data[0]._replace(**change), *data[1:]]
        with pytest.raises(ValueError, match=rf"data must be the .* they differ in {names} from t"):
            run(*arguments[:2], other, tmp_path / "half", 40, None, resume=True)
    with pytest.raises(ValueError, match=r"data must be the episodes of the original run, but"):
        run(*arguments[:2], data[1:], tmp_path / "half", 40, None, resume=True)
    run(*arguments, tmp_path / "half", 40, None, resume=True)
    run(*arguments, tmp_path / "whole", 40, None)
    half, whole = (retrax.load_agent(tmp_path / name).params for name in ("half", "whole"))
    chex.assert_trees_all_equal(half, whole)


def test_transitions_become_episodes():
    """Two that go on, one that terminated, one that was cut off by a gap, one by a time limit."""
    found = retrax.episodes_of(
        observations=[[0], [1], [5], [7], [8]],
        actions=[0, 1, 2, 3, 4],
        rewards=[1, 2, 3, 4, 5],
        next_observations=[[1], [2], [6], [8], [9]],
        terminations=[False, True, False, False, False],
        truncations=[False, False, False, True, False],
        mu=[[0.1], [0.2], [0.3], [0.4], [0.5]],
    )
    assert [episode.observations.tolist() for episode in found] == [
        [[0], [1], [2]],
        [[5], [6]],
        [[7], [8]],
        [[8], [9]],
    ]
    assert [episode.actions.tolist() for episode in found] == [[0, 1], [2], [3], [4]]
    assert [episode.terminations for episode in found] == [True, False, False, False]
    assert found[0].extras["mu"].tolist() == [[0.1], [0.2]]


DAYS, PLACES = [1, 3, 2, 1], [[0.0], [4.0], [5.0], [6.0]]
TREES = {
    "a dictionary": lambda at: {"day": np.array(DAYS)[at], "x": np.array(PLACES)[at]},
    "a tuple": lambda at: (np.array(DAYS)[at], np.array(PLACES)[at]),
    "nested": lambda at: {"a": (np.array(DAYS)[at], {"b": np.array(PLACES)[at]})},
    "dictionaries": lambda at: [{"day": DAYS[t], "x": PLACES[t]} for t in at],
    "an array of dictionaries": lambda at: np.array([{"day": DAYS[t]} for t in at]),
    "a tuple of dictionaries": lambda at: tuple({"day": DAYS[t], "x": PLACES[t]} for t in at),
    "tuples": lambda at: [(DAYS[t], np.array(PLACES[t])) for t in at],
}


@pytest.mark.parametrize("name", TREES)
def test_transitions_of_trees_become_episodes(name):
    seen, after = TREES[name]([0, 1, 3]), TREES[name]([1, 2, 3])
    found = retrax.episodes_of(seen, [0, 1, 0], [1, 2, 3], after, False)
    leaves = [jax.tree.leaves(episode.observations) for episode in found]
    assert [episode[0].tolist() for episode in leaves] == [DAYS[:3], 2 * DAYS[3:]]
    assert [leaf.tolist() for leaf in leaves[0][1:]] in ([], [PLACES[:3]])


@pytest.mark.parametrize("wrong", ["False", b"0", np.nan, -1, 0.3, None, 2, [0, [1]]])
def test_ends_are_true_or_false(wrong):
    given = {"terminations": False, "truncations": False}
    for name in given:
        with pytest.raises(ValueError, match=f"the {name} of transitions must be True or False"):
            retrax.episodes_of(
                [[0], [1]], [0, 1], [1, 2], [[1], [2]], **{**given, name: [wrong, 0]}
            )
    episode = retrax.Episode([[0], [1]], [0], [1], wrong)
    with pytest.raises(ValueError, match="the terminations of episode 4 must be True or False"):
        rows_of(episode, 4, make(SEA).spec)


@pytest.mark.parametrize("terminated", [True, False])
def test_rows_are_in_arrival_form(terminated):
    spec = make(FOLLOW).spec
    episode = retrax.Episode([[0.1], [0.2], [0.3]], [[1.0], [2.0]], [5, 6], terminated)
    rows = rows_of(episode, 0, spec)
    sequence = SequenceSpec(length=3, crosses_episodes=False)
    replay = LoggedReplay(spec, sequence, SMALL, [rows, rows], seed=0)
    assert replay.sample() is None
    replay.tick()
    assert replay.sample() is None, "two updates are one call here"
    replay.tick()
    assert replay.sample().updates == 2
    found, mask = replay.read(np.array([0, 1]))
    assert mask.tolist() == [[True] * 3, [True, True, False]]
    np.testing.assert_allclose(found.observation[0, :, 0], [0.1, 0.2, 0.3])
    assert found.reward.tolist() == [[0, 5, 6], [5, 6, 0]]
    assert found.discount[0].tolist() == [1, 1, 1 - terminated]
    assert found.is_first[0].tolist() == [True, False, False]
    assert found.is_last[0].tolist() == [False, False, True]
    assert found.action[0, :2, 0].tolist() == [1, 2]
    assert replay.status().num_sequences == 4


def test_observations_and_actions_are_read_as_the_environments(monkeypatch):
    """Dictionaries, categories that begin at 1, actions from -1 on, a Box of two axes."""
    spaces = gymnasium.spaces
    space = spaces.Dict({"day": spaces.Discrete(3, start=1), "x": spaces.Box(0, 9, (1,))})
    for actions, given, wanted in (
        (spaces.Discrete(3, start=-1), [-1, 1], [0, 2]),
        (spaces.MultiDiscrete([2, 3]), [[0, 2], [1, 0]], [2, 3]),
        (spaces.Box(-1, 1, (1, 2)), [[[0.5, 1.0]], [[-1, 0]]], [[0.5, 1], [-1, 0]]),
    ):
        maker = type(
            "Made", (gymnasium.Env,), {"observation_space": space, "action_space": actions}
        )
        environment = make(maker)
        seen = {"day": np.array([1, 3, 2]), "x": np.array([[0.0], [4], [5]], np.float32)}
        found, taken = environment.recorded(seen, given)
        assert found.tolist() == [[1, 0, 0, 0], [0, 0, 1, 4], [0, 1, 0, 5]]
        assert taken.tolist() == wanted


VOYAGES = voyages(2)
ALL = r"episode 1 must have at least one transition and terminate only at its last one, got "


def refuse(data, sentence, agent="reactor"):
    environment = make(SEA)
    config = retrax.RunConfig(agent=agent, environment=SEA, steps=9).resolve(environment.spec)
    made = config.entry.make_agent(environment.spec, config.agent_config)
    with pytest.raises(ValueError, match=re.escape(sentence)) as caught:
        LoggedLoop(config, made, environment, data)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"extras": {}}, "reactor needs mu, the probabilities with which the actions were chosen"),
        ({"actions": [0, 2, 0]}, "the actions of episode 1 must be from 0"),
        ({"actions": [0.5] * 3}, "the actions of episode 1 must be integers, got float64."),
        ({"actions": []}, ALL + "0"),
        ({"terminations": [True, False, True]}, ALL + "3"),
        ({"rewards": [0, np.nan, 0]}, "rewards of episode 1 must be finite numbers as float32, go"),
        ({"rewards": [0, -1e40, 0]}, "must be finite numbers as float32, got -1e+40."),
        ({"rewards": [*"abc"]}, "the rewards of episode 1 must be finite numbers, got <U1."),
        ({"rewards": [0, [1], 0]}, "the rewards of episode 1 must be finite numbers, got object."),
        ({"rewards": [0]}, "the rewards of episode 1 must be [3], got [1]."),
        ({"extras": {"mu": [[1e39, 0]] * 3}}, "the extra mu of episode 1 must be finite numbers a"),
        ({"extras": {"mu": np.ones(3)}}, "the extra mu of episode 1 must be [3, 2], got [3]."),
        ({"extras": {"mu": np.ones((3, 2))}}, "mu of episode 1 must be probabilities that sum to"),
    ],
)
def test_data_that_do_not_fit_are_one_sentence(change, sentence):
    refuse([VOYAGES[0], VOYAGES[1]._replace(**change)], sentence)


def test_data_that_are_missing_or_too_few_are_refused():
    refuse([], "data must have at least one episode, got none")
    refuse(VOYAGES, "agent57 needs ", "agent57")
    refuse([SimpleNamespace(actions=1)], "episode 0 must be a retrax.Episode or have its attribute")
    refuse(VOYAGES, "the episodes have 8 rows in all, too few for a sequence of 17.")
    short = {"actions": [0], "rewards": [0.0], "extras": {"mu": [[0.5, 0.5]]}}
    one = VOYAGES[0]._replace(observations=VOYAGES[0].observations[:2], **short)
    refuse([one] * 3, "the episodes have 6 rows in all, too few for a sequence of 17.")


def test_other_refusals(tmp_path):
    several = {"num_envs": 2, "num_actors": 2, "actor_update_period": 9}
    config = retrax.RunConfig(agent="noisy_agent:NOISY", environment=SEA, steps=4, **several)
    with pytest.raises(ValueError, match=r"^data must be None for several actors, workers and --"):
        retrax.train(config, tmp_path / "run", data=retrax.episodes_of(**transitions(2)))
    wrong = retrax.episodes_of(**transitions(2))[0]._replace(observations={"a": np.zeros((3, 1))})
    with pytest.raises(ValueError, match=r"^episode 0 does not fit the environment: observation"):
        run("d4pg", FOLLOW, [wrong], tmp_path / "run", 4, SMALL_D4PG)
    one = retrax.Episode(np.zeros((2, 1), "f"), [[1.0]], [0.0], True)
    high = one._replace(actions=[[9.0]])
    with pytest.raises(ValueError, match=r"actions of episode 0 must be from \[0.*\] to \[4.*\], "):
        run("d4pg", FOLLOW, [high], tmp_path / "run", 4, SMALL_D4PG)
    assert not (tmp_path / "run").exists()
    with pytest.raises(ValueError, match=r"arrays of transitions must have equal lengths above"):
        retrax.episodes_of([[0]], [0], [0, 1], [[1]], [False])
