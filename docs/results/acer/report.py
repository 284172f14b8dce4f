"""The computed cells of this page: `python docs/results/result_tables.py acer`."""

from pathlib import Path

from result_files import joined, plot, runs, runs_of

HERE = Path(__file__).parent
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
    found = runs(HERE, NAMES[row["environment"]])
    form = ".2f" if row["environment"] == "catch" else ".0f"
    return {
        "greedy return over 100 episodes": joined((run.score for run in found), form),
        "seconds of training": ", ".join(run.scores["seconds"] for run in found),
    }


def draw() -> None:
    """Draws CartPole and Pendulum, with their ablations."""
    for task in ("cart_pole", "pendulum"):
        chosen = [run for name, found in runs_of(HERE).items() if task in name for run in found]
        plot(chosen, HERE / f"{task}.png", window=5)
