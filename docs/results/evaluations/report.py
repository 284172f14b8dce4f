"""The computed cells and curves: `python docs/results/result_tables.py evaluations`."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from result_files import joined, published, runs_of

HERE = Path(__file__).parent
LAST = 5  # evaluations that the table takes the mean of


class Panel(NamedTuple):
    """A run's name, how its agent and task are written, and what stands beside it."""

    run: str
    agent: str
    task: str
    lines: dict[str, float]


def panels() -> list[Panel]:
    """The four agents."""
    lander = published("classic", "lunar-lander")  # of Stable Baselines' zoos
    cheetah, breakout = published("control", "cheetah-run"), published("minatar", "breakout")
    return [
        Panel(
            "reactor-lunar",
            "Reactor",
            "LunarLander-v3",
            {"DQN": lander["DQN (SB3 zoo)", 100_000], "ACER": lander["ACER (SB2 zoo)", None]},
        ),
        Panel(
            "acer-breakout",
            "ACER",
            "MinAtar/Breakout-v1",
            {name: breakout[name, 1_000_000] for name in ("DQN", "AC(0.8)")},
        ),
        Panel(
            "d4pg-cheetah",
            "D4PG",
            "dm_control:cheetah/run",
            {"D4PG, published": cheetah["D4PG (state)", 500_000]},
        ),
        Panel("agent57-deep_sea", "Agent57", "deep_sea,size=20", {"highest possible": 0.99}),
    ]


def evaluations(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Mean steps `[N]` of the evaluations that all seeds have, and returns `[seeds, N]`."""
    curves = []
    for run in runs_of(HERE)[name]:
        known = ~np.isnan(run.curve["evaluation_return"])
        curves.append((run.curve["steps"][known], run.curve["evaluation_return"][known]))
    count = min(len(steps) for steps, _ in curves)
    steps = np.mean([steps[:count] for steps, _ in curves], axis=0)
    return steps, np.array([returns[:count] for _, returns in curves])


def evaluated(row: dict[str, str]) -> dict[str, str]:
    """The last evaluations of each seed, and what is published."""
    (panel,) = (panel for panel in panels() if panel.agent == row["agent"])
    steps, returns = evaluations(panel.run)
    form = ".2f" if panel.agent == "Agent57" else ".1f" if panel.agent == "ACER" else ".0f"
    return {
        "task": panel.task,
        "steps": f"{round(steps[-1], -3):,.0f}",
        f"greedy return, mean of the last {LAST} evaluations": joined(
            returns[:, -LAST:].mean(axis=1), form
        ),
        "compared with": ", ".join(f"{name} {value:g}" for name, value in panel.lines.items()),
    }


def draw_panel(axes: Any, panel: Panel, number: int) -> None:
    """The mean of the seeds, their range, and what is published."""
    from matplotlib.ticker import EngFormatter

    steps, returns = evaluations(panel.run)
    style: dict[str, Any] = {"color": f"C{number}"}
    axes.plot(steps, returns.mean(axis=0), label=panel.agent, linewidth=2, **style)
    axes.fill_between(steps, returns.min(axis=0), returns.max(axis=0), alpha=0.25, **style)
    for (name, value), line in zip(panel.lines.items(), ("--", ":"), strict=False):
        axes.axhline(value, color="0.3", linestyle=line, label=name)
    axes.set(title=f"{panel.agent}, {panel.task}", xlabel="environment steps")
    axes.title.set_fontsize(11)
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8, loc="lower right")


def draw() -> None:
    """Draws four panels in a row, and each in a file of its own for the agent's README."""
    import matplotlib.pyplot as plt

    figure, row = plt.subplots(1, 4, figsize=(14, 3.1), layout="constrained")
    for number, (axes, panel) in enumerate(zip(row, panels(), strict=True)):
        draw_panel(axes, panel, number)
        single, alone = plt.subplots(figsize=(5, 3), layout="constrained")
        draw_panel(alone, panel, number)
        alone.set_ylabel("greedy return")
        single.savefig(HERE / f"{panel.agent.lower()}.png", dpi=80)
        plt.close(single)
    row[0].set_ylabel("greedy return")
    figure.savefig(HERE / "curves.png", dpi=100)
    plt.close(figure)
