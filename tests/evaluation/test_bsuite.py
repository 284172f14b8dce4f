"""bsuite's scores of hand-made records, and its tasks."""

import csv

import matplotlib
import numpy as np
import pytest
from html_page import Page

from retrax.evaluation import bsuite
from retrax.evaluation.report import bsuite_sections
from retrax.evaluation.suites import find_suite

ROW = {"steps": 9, "episode_len": 9, "episode_return": 1.0, "total_return": 0.0}


def catch(episode, regret):
    return {**ROW, "episode": episode, "total_regret": regret}


def deep_sea(episode, bad):
    return {**ROW, "episode": episode, "total_bad_episodes": bad, "denoised_return": 0.0}


# catch's ids differ by seed alone; deep_sea's /0 is of size 10, /1 of size 12.
RECORDS = {
    "catch/0": [catch(5_000, 7_000.0), catch(10_000, 8_000.0)],
    "catch/10": [catch(10_000, 4_000.0), catch(12_000, 99_000.0)],
    "deep_sea/0": [deep_sea(100, 95), deep_sea(200, 150), deep_sea(10_000, 200)],
    "deep_sea/1": [deep_sea(200, 199), deep_sea(9_000, 8_900)],
}


@pytest.fixture(scope="module")
def pandas():
    pytest.importorskip("bsuite")
    return pytest.importorskip("pandas")


def test_scores_by_hand(pandas):
    style = dict(matplotlib.rcParams)
    found = {score.name: score for score in bsuite.scores(RECORDS)}
    # Mean regrets of an episode 0.8 and 0.4, of 1.6 for random play.
    assert found["catch"] == ("experiment", "catch", pytest.approx(1 - 0.6 / 1.6), 2, True)
    # Less than 0.9 of the episodes are bad: after 200 of size 10, never of size 12.
    assert found["deep_sea"] == ("experiment", "deep_sea", 0.5, 2, False)
    assert found["basic"].score == found["credit_assignment"].score == found["catch"].score
    assert found["exploration"] == ("tag", "exploration", 0.5, 2, False)
    assert len(found) == 5
    assert dict(matplotlib.rcParams) == style
    assert not hasattr(pandas.Series, "append")


def test_runs_that_have_hardly_begun_have_no_score_and_whole_ones_are_finished(pandas):
    early = {"deep_sea_stochastic/0": [deep_sea(90, 80)], "catch/1": []}
    assert bsuite.scores(early) == []
    found = bsuite.scores({**early, "catch/0": RECORDS["catch/0"]})
    names = ["catch", "basic", "credit_assignment"]
    assert [(score.name, score.finished) for score in found] == [(name, True) for name in names]


def test_every_experiment_has_a_score(pandas):
    """Of random records of the suite's ids, with all columns that any experiment has."""
    rng, records = np.random.default_rng(0), {}
    columns = ("raw_return", "best_episode", "total_perfect", "total_upright")
    for task in find_suite("bsuite").tasks:
        records[task.environment.removeprefix("bsuite:")] = [
            {
                **catch(episode, episode * rng.uniform(0, 2)),
                **deep_sea(episode, episode * rng.uniform(0.5, 1)),
                **{name: episode * rng.uniform(0, 1) for name in columns},
            }
            for episode in (100, 200, 1_000, 10_000)
        ]
    found = [score for score in bsuite.scores(records) if score.kind == "experiment"]
    assert {score.name for score in found} == bsuite.published()["DQN"].keys()
    for score in found:
        assert (0 <= score.score <= 1, score.ids) == (True, 3), score.name


def length_of(id):
    """Time steps of the longest episode of an id."""
    from bsuite import sweep

    longest = {"catch": 9, "cartpole": 1001, "mountain_car": 1000, "cartpole_swingup": 1001}
    longest |= {"discounting_chain": 100, "memory_size": 3}
    settings = sweep.SETTINGS[id]
    length = longest.get(id.partition("/")[0]) or settings.get("size")
    return length or settings.get("chain_length") or settings["memory_length"] + 1


def test_the_suite_is_that_of_bsuite(pandas):
    """The first, middle and last id, or all, with as many steps as all episodes have at most."""
    from bsuite import sweep

    suite = find_suite("bsuite")
    for experiment in bsuite.published()["DQN"]:
        ids = [id for id in sweep.SWEEP if id.partition("/")[0] == experiment]
        tasks = [task for task in suite.tasks if task.name.rpartition("-")[0] == experiment]
        chosen = [ids[0], ids[len(ids) // 2], ids[-1]]
        assert [task.environment for task in tasks] == [f"bsuite:{id}" for id in chosen]
        for task, id in zip(tasks, chosen, strict=True):
            assert task.steps == sweep.EPISODES[id] * length_of(id), id
        every = suite.choose((experiment,))
        assert [task.environment for task in every] == [f"bsuite:{id}" for id in ids]
        assert [task.name for task in every] == [id.replace("/", "-") for id in ids]
        for task, id in zip(every, ids, strict=True):
            assert task.steps >= sweep.EPISODES[id] * length_of(id), id


def test_tasks_are_chosen_by_name():
    suite = find_suite("bsuite")
    names = [task.name for task in suite.choose(("memory_len-3", "catch-19"))]
    assert names == ["catch-19", "memory_len-3"]
    assert suite.choose(()) == suite.tasks
    with pytest.raises(ValueError, match="has no task 'catch-20': it has catch, cartpole"):
        suite.choose(("catch-20",))
    with pytest.raises(ValueError, match="has no task 'cartpole': it has cartpole-balance"):
        find_suite("control").choose(("cartpole",))


def test_the_report_has_the_scores_beside_published_ones():
    text = """agent,seed,kind,name,score,ids,finished
acer,0,experiment,catch,0.5,3,True
acer,1,experiment,catch,0.7,3,True
d4pg,0,experiment,deep_sea,0.25,3,False
acer,0,tag,basic,0.5,3,True
acer,1,tag,basic,0.7,3,True
d4pg,0,tag,exploration,0.25,3,False
"""
    found = Page("".join(bsuite_sections(list(csv.DictReader(text.splitlines())))))
    assert len(found.sources) == 1
    assert found.rows == [
        ["experiment", "acer", "d4pg", "DQN", "bootstrapped DQN", "A2C-RNN", "random"],
        ["catch", "0.60 (0.50 to 0.70)", "", "0.91", "0.98", "0.86", "0"],
        ["deep_sea", "", "0.25*", "0", "1", "0", "0"],
        ["tag", "acer", "d4pg"],
        ["basic", "0.60 (0.50 to 0.70)", ""],
        ["exploration", "", "0.25*"],
    ]
