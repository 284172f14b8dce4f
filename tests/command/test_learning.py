"""Agents learn what they should within the steps that the command line gives them by itself."""

import json

import pytest

# D4PG on a task of ten steps, from [0, 4]: rewards of 0 to -9, seldom below -2.
QUICK_D4PG = """--steps 1600 --num-envs 4 --agent.replay.capacity 2000 --agent.replay.min-rows 100
--agent.replay.batch-size 32 --agent.replay.acting-steps-per-update 2 --agent.policy-sizes 32
--agent.critic-sizes 32 32 --agent.policy-learning-rate 3e-3 --agent.critic-learning-rate 3e-3
--agent.target-update-period 20 --agent.discount 0.5 --agent.n-step 2 --agent.layer-norm False"""

# Continuous ACER on the same task.
QUICK_ACER = """--steps 4000 --num-envs 8 --agent.replay.capacity 4000 --agent.replay.min-rows 100
--agent.vector-sizes 32 --agent.hidden-size 32 --agent.advantage-size 32 --agent.learning-rate 3e-3
--agent.sequence-length 6 --agent.discount 0.5 --agent.reward-scale 1"""

# Agent57 with all its parts, smaller, and fewer arms.
QUICK_AGENT57 = """--steps 2000 --num-envs 8 --agent.replay.capacity 10000
--agent.replay.min-rows 200 --agent.num-arms 4 --agent.trace-length 10 --agent.replay-period 5
--agent.vector-sizes 16 --agent.torso-size 16 --agent.lstm-size 16 --agent.head-size 16"""


@pytest.fixture
def learn(retrax, tmp_path):
    """Trains with the default preset and steps, except for the options; evaluates greedily."""

    def evaluate(environment, options="", *, agent="reactor", episodes=200):
        directory = tmp_path / "run"
        train = ["train", agent, "--environment", environment, "--run-directory", directory]
        train += ["--evaluate-every", 0]
        status, _, err = retrax(*train, *options.split())
        assert status == 0, err
        status, out, err = retrax("evaluate", directory, "--episodes", episodes, "--json")
        assert status == 0, err
        return json.loads(out)["mean_return"]

    return evaluate


@pytest.mark.slow
@pytest.mark.parametrize(
    ("agent", "environment", "options", "episodes", "least"),
    [
        ("acer", "catch", "--steps 20000", 200, 0.95),  # half of the default
        ("acer", "CartPole-v1", "", 50, 475),
        ("acer", "continuous_tasks:Follow-v0", QUICK_ACER, 50, -0.5),
        ("reactor", "catch", "", 200, 0.95),
        ("reactor", "memory", "", 200, 0.95),
        ("reactor", "CartPole-v1", "", 50, 450),
        # Uniform play needs 10,240 steps to meet it once, and without it no return is above 0.
        ("agent57", "deep_sea", "--steps 10000", 200, 0.5),
        *(
            ("d4pg", "Pendulum-v1", f"--agent.critic {critic}", 100, -200)
            for critic in ("categorical", "scalar", "mixture_of_gaussians")
        ),
    ],
)
def test_agents_learn(learn, agent, environment, options, episodes, least):
    assert learn(environment, options, agent=agent, episodes=episodes) >= least


@pytest.mark.slow
@pytest.mark.parametrize(
    ("environment", "steps", "least"), [("catch", 20_000, 1.0), ("CartPole-v1", 40_000, 475.0)]
)
def test_acer_on_a_device(environment, steps, least, retrax, tmp_path):
    """Three seeds of three, together."""
    options = ["--seeds", 3, "--steps", steps, "--run-directory", tmp_path / "run"]
    status, _, err = retrax("train", "acer", "--environment", environment, "--on-device", *options)
    assert status == 0, err
    for seed in range(3):
        directory = tmp_path / "run" / f"seed_{seed}"
        status, out, err = retrax("evaluate", directory, "--episodes", 50, "--json")
        assert status == 0, err
        assert json.loads(out)["mean_return"] >= least


@pytest.mark.slow
def test_memory_without_recurrence_stays_at_chance(learn):
    assert abs(learn("memory", "--agent.recurrent False")) < 0.3


@pytest.mark.parametrize(
    "critic", ["categorical", pytest.param("mixture_of_gaussians", marks=pytest.mark.slow)]
)
def test_d4pg_follows_quickly(learn, critic):
    options = f"{QUICK_D4PG} --agent.critic {critic}"
    # The best constant action has -3.33.
    assert learn("continuous_tasks:Follow-v0", options, agent="d4pg", episodes=50) >= -0.5


@pytest.mark.slow
def test_agent57_remembers_quickly(learn):
    # A policy without memory has 0 in the mean.
    assert learn("memory,length=3", QUICK_AGENT57, agent="agent57") >= 0.8
