"""The computed cells and the curves: `python docs/results/result_tables.py corrections`.

Intervals are those of the mean of the seeds' greedy returns: 95 %, Student's t. `--draw` draws
curves.png.
"""

from pathlib import Path

from result_files import draw_curve, joined, plot, runs, training_return, with_interval

HERE = Path(__file__).parent
TASKS = {
    "tree": "Reactor, CartPole-v1, 8,000 rows",
    "cart_pole": "ACER, CartPole-v1, 8 environments",
    "cart_pole_2_environments": "ACER, CartPole-v1, 2 environments",
    "pendulum": "ACER, Pendulum-v1, 8 environments",
    "no_dueling": "ACER, Pendulum-v1, no stochastic dueling",
    "swingup": "D4PG, cartpole/swingup",
    "hopper": "D4PG, Hopper-v5",
}
WINDOW = 5  # rows of metrics.csv in a moving average


def returns(side: str, task: str) -> list[float]:
    """The evaluations of the three seeds."""
    return [run.score for run in runs(HERE, f"{side}/{task}")]


def sides(row: dict[str, str]) -> dict[str, str]:
    """A task before or after."""
    (task,) = [name for name, title in TASKS.items() if title == row["task"]]
    found = returns(row[""], task)
    return {"seeds 0, 1, 2": joined(found, ".0f"), "mean (95 %)": with_interval(found, ".0f")}


def epsilon(row: dict[str, str]) -> dict[str, str]:
    """Adam's epsilon on MinAtar Breakout."""
    chosen = runs(HERE, f"after/breakout-{row['']}")
    return {
        "greedy return over 20 episodes, seeds 0, 1, 2": joined(
            (run.score for run in chosen), ".2f"
        ),
        "mean return of training episodes, the last 8,000 steps": joined(
            (training_return(run, 5) for run in chosen), ".2f"
        ),
    }


def draw() -> None:
    """Draws the curves of all tasks, and of both values of epsilon."""
    import matplotlib.pyplot as plt

    _, grid = plt.subplots(1, len(TASKS), figsize=(4 * len(TASKS), 3.5), layout="constrained")
    for axes, (task, title) in zip(grid, TASKS.items(), strict=True):
        for side, colour in (("before", "tab:grey"), ("after", "tab:blue")):
            for run in runs(HERE, f"{side}/{task}"):
                label = side if run.seed == 0 else None
                draw_curve(axes, run, WINDOW, color=colour, label=label)
        axes.set(title=title, xlabel="environment steps", ylabel="return in training")
        axes.legend()
    plt.savefig(HERE / "curves.png", dpi=70)
    both = [run for e in ("1e-4", "1e-8") for run in runs(HERE, f"after/breakout-{e}")]
    plot(both, HERE / "epsilon.png", window=5)
