"""The computed cells of this page: `python docs/results/result_tables.py acer`."""

from pathlib import Path

from result_files import evaluations_of_file, joined

FILE = Path(__file__).with_name("evaluations.txt")
NAMES = {
    "catch": "catch",
    "CartPole-v1": "cart_pole",
    "CartPole-v1, without replay: --agent.replay.replay-ratio 0": "cart_pole_without_replay",
    "Pendulum-v1": "pendulum",
    "Pendulum-v1, without trust region": "pendulum_no_trust_region",
    "Pendulum-v1, without stochastic dueling": "pendulum_no_stochastic_dueling",
    "dm_control:cartpole/balance, seed 0": "balance",
}


def tasks(row: dict[str, str]) -> dict[str, str]:
    """The evaluations of a task's seeds."""
    found = evaluations_of_file(FILE)[NAMES[row["environment"]]]
    form = ".2f" if row["environment"] == "catch" else ".0f"
    return {
        "greedy return over 100 episodes": joined((each["mean_return"] for each in found), form),
        "seconds of training": joined((each["seconds"] for each in found), "d"),
    }
