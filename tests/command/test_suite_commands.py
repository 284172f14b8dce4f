"""`evaluate --starts`, `evaluate-suite` and `record-states`, with agents that never learned."""

import json
from unittest.mock import Mock

import average_agent
import dm_env
import numpy as np
import pytest
from run_files import write_untrained_run

from retrax.command.main import main
from retrax.command.suite import recorded_states
from retrax.environments.atari import Atari, EmulatedAtari
from retrax.environments.start_states import load_states
from retrax.evaluation.atari57 import GAMES
from retrax.evaluation.evaluations import Evaluation, evaluation_environments
from retrax.training.run_config import RunConfig

LIVES = "ALE/Breakout-v5,episodic_life=yes,clip_rewards=True,frame_stack=2,num_threads=1"


@pytest.fixture(autouse=True)
def short_games(monkeypatch):
    """The policy of such an agent may play half an hour without serving the ball."""
    for kind in (Atari, EmulatedAtari):
        monkeypatch.setitem(kind.__init__.__kwdefaults__, "max_frames", 120)


def of(environment, seed=0):
    names = {"agent": "average_agent:ENTRY", "environment": environment, "preset": "default"}
    config = average_agent.Config()
    return RunConfig(**names, seed=seed, steps=10, num_envs=1, agent_config=config)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Run directories: two of Breakout, one of Pong, one that is no Atari game."""
    folder = tmp_path_factory.mktemp("runs")
    configs = {
        "breakout": of("ALE/Breakout-v5"),
        "breakout-1": of("ALE/Breakout-v5", seed=1),
        "pong": of("ALE/Pong-v5"),
        "lives": of(LIVES, seed=2),
        "catch": of("catch"),
    }
    return {name: write_untrained_run(folder / name, run) for name, run in configs.items()}


@pytest.fixture(scope="module")
def states(runs, tmp_path_factory):
    """A folder with start states of Breakout, as the command records them."""
    folder = tmp_path_factory.mktemp("states")
    arguments = ["--output", str(folder / "breakout.npz"), "--states", "3", "--steps", "15"]
    assert main(["record-states", str(runs["breakout"]), *arguments]) == 0
    return folder


def test_recorded_states_are_of_the_game_and_the_same_again(runs, states, tmp_path, retrax):
    game, found = load_states(states / "breakout.npz")
    assert (game, len(set(found))) == ("breakout", 3)
    again = tmp_path / "again.npz"
    command = ["record-states", runs["breakout"], "--states", 3, "--steps", 15, "--output", again]
    assert retrax(*command)[:2] == (0, f"3 states of breakout in {again}\n")
    assert again.read_bytes() == (states / "breakout.npz").read_bytes()
    retrax(*command, "--seed", 1)
    assert again.read_bytes() != (states / "breakout.npz").read_bytes()
    command[1] = runs["lives"]  # with switches
    assert retrax(*command)[0] == 0
    assert load_states(again)[0] == "breakout"


def test_episodes_of_an_evaluation_begin_in_the_states(states):
    run, starts = of("ALE/Breakout-v5"), ["states", str(states / "breakout.npz")]
    environment = evaluation_environments(run, starts, seed=0, num_envs=3)
    first = environment.reset().observation
    assert len(np.unique(first.reshape(3, -1), axis=0)) > 1
    of_folder = evaluation_environments(run, ["states", str(states)], seed=0, num_envs=3)
    np.testing.assert_array_equal(of_folder.reset().observation, first)
    noop = evaluation_environments(of("ALE/Breakout-v5"), ["noop"], seed=0, num_envs=1)
    assert type(noop) is not type(environment)


@pytest.fixture(params=["noop", "states"])
def starts(request, states):
    """Starts of an evaluation of Breakout."""
    return ["noop"] if request.param == "noop" else ["states", str(states / "breakout.npz")]


def test_evaluations_keep_the_switches_that_are_not_for_training_only(runs, retrax, starts):
    environment = evaluation_environments(of(LIVES), starts, seed=0, num_envs=1)
    assert environment.spec.observations.shape == (84, 84, 2)
    assert not getattr(environment, "_episodic_life", False)
    command = ["evaluate", runs["lives"], "--episodes", 2, "--json", "--starts", *starts]
    status, out, _ = retrax(*command)
    result = json.loads(out)
    assert (status, result["episodes"], result["steps"]) == (0, 2, 10)
    assert result["mean_return"] >= 0
    assert retrax(*command)[1] == out


def test_sticky_actions_have_no_start_states(states):
    starts = ["states", str(states / "breakout.npz")]
    switch = "repeat_action_probability"
    evaluation_environments(of(f"ALE/Breakout-v5,{switch}=0"), starts, seed=0, num_envs=1)
    with pytest.raises(ValueError, match=f"^ALE/Breakout-v5 with states has no switch {switch}; "):
        evaluation_environments(of(f"ALE/Breakout-v5,{switch}=0.25"), starts, seed=0, num_envs=1)


@pytest.mark.parametrize("algorithm", [[], ["--algorithm", "mine"]])
def test_a_suite_takes_runs_with_switches(runs, states, tmp_path, retrax, algorithm):
    output, starts = tmp_path / "scores.csv", ["states", states] if algorithm else ["noop"]
    command = ["evaluate-suite", runs["lives"], "--episodes", 1, "--output", output, *algorithm]
    assert retrax(*command, "--starts", *starts)[0] == 0
    name = "mine" if algorithm else "own-average"
    assert output.read_text().splitlines()[1].startswith(f"{name},{starts[0]},breakout,2,")


def test_a_suite_writes_scores_that_atari57_reads(runs, tmp_path, retrax, refused):
    output = tmp_path / "new" / "scores.csv"
    command = ["evaluate-suite", runs["breakout"], runs["breakout-1"]]
    arguments = ["--episodes", 1, "--output", output]
    status, out, err = retrax(*command, *arguments)
    assert (status, out) == (0, f"{output}\n")
    assert "2 of 2: breakout, seed 1" in err
    header, *rows = [line.split(",") for line in output.read_text().splitlines()]
    assert header == ["algorithm", "regime", "game", "seed", "score"]
    assert [row[:4] for row in rows] == [["own-average", "noop", "breakout", s] for s in "01"]
    evaluated = retrax("evaluate", runs["breakout-1"], "--episodes", 1, "--json")[1]
    assert float(rows[1][4]) == json.loads(evaluated)["mean_return"]
    # The other 56 games of each seed are missing, and that is what atari57 says of it.
    missing = ", ".join(game for game in GAMES if game != "breakout")
    sentence = f"1 of 57 games of 'own-average' with seed 0: {missing} are missing."
    assert sentence in refused("atari57", "--scores", output)


def test_a_suite_refuses_before_anything_is_evaluated(runs, states, tmp_path, refused):
    output = tmp_path / "scores.csv"
    breakout = runs["breakout"]

    def refuses(sentence, *arguments):
        assert sentence in refused("evaluate-suite", *arguments, "--output", output)

    refuses("'catch' is not one of the 57 games", breakout, runs["catch"])
    refuses(f"{breakout} and {breakout} are both of breakout, seed 0", breakout, breakout)
    refuses("--episodes must be an integer >= 1, got 0", breakout, "--episodes", 0)
    refuses("is not a run directory", breakout, tmp_path)
    refuses("must be noop or states PATH, got 'human'", breakout, "--starts", "human")
    pong = states / "pong.npz"
    refuses(f"{pong} is not a file", breakout, runs["pong"], "--starts", "states", states)
    output.write_text("precious")
    refuses(f"{output} exists already: choose another", breakout)


@pytest.mark.parametrize(
    ("environment", "starts", "sentence"),
    [
        ("ALE/Pong-v5", ["states", "{file}"], "{file} has start states of breakout, not of pong"),
        ("catch", ["states", "{file}"], r"for Atari games \(ALE/...\), not for 'catch'"),
        ("catch", ["states"], "must be noop or states PATH, got 'states'"),
        ("catch", ["noop", "{file}"], "must be noop or states PATH, got 'noop {file}'"),
        ("catch", [], "must be noop or states PATH, got ''"),
    ],
)
def test_wrong_starts_are_refused(states, environment, starts, sentence):
    file = str(states / "breakout.npz")
    starts = [start.format(file=file) for start in starts]
    with pytest.raises(ValueError, match=sentence.format(file=file)):
        evaluation_environments(of(environment), starts, seed=0, num_envs=1)


def test_recording_refuses_before_it_plays(runs, tmp_path, refused):
    def refuses(sentence, *arguments):
        assert sentence in refused("record-states", *arguments)

    output = ["--output", tmp_path / "states.npz"]
    refuses("for Atari games (ALE/...), not for 'catch'", runs["catch"], *output)
    refuses("--states must be an integer >= 1, got 0", runs["pong"], *output, "--states", 0)
    refuses("--steps must be an integer >= 1, got 0", runs["pong"], *output, "--steps", 0)
    refuses(f"--output {tmp_path} is a folder: name a file", runs["pong"], "--output", tmp_path)


def test_an_interrupted_recording_leaves_the_file_as_it_was(runs, tmp_path, monkeypatch, retrax):
    monkeypatch.setattr(Evaluation, "run", Mock(side_effect=KeyboardInterrupt))
    command = ["record-states", runs["pong"], "--output", tmp_path / "states.npz"]
    for left in [], ["precious"]:
        assert retrax(*command)[0] == 130
        assert [path.read_text() for path in tmp_path.iterdir()] == left
        (tmp_path / "states.npz").write_text("precious")


def record(lengths, episodes, seed=0):
    """(episode, moment) of each recorded state."""
    now = []
    states, watch = recorded_states(lambda: tuple(now), np.random.default_rng(seed))
    for episode in range(episodes):
        length = lengths[episode % len(lengths)]
        for moment in range(length + 1):
            now[:] = episode, moment
            kind = 0 if moment == 0 else 2 if moment == length else 1
            watch(dm_env.TimeStep(np.array([kind]), None, None, None))
    return states


def test_one_state_of_each_episode_none_of_them_the_last():
    states = record([1, 4, 2], 30)
    assert [episode for episode, _ in states] == list(range(30))
    assert all(moment < [1, 4, 2][episode % 3] for episode, moment in states)


def test_each_moment_is_as_likely():
    moments = [moment for _, moment in record([5], 5000)]
    counts = np.bincount(moments, minlength=5)
    np.testing.assert_allclose(counts, 1000, atol=4 * np.sqrt(800))
