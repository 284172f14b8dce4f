"""The computed cells and curves of this page: `python docs/results/result_tables.py atari`."""

from pathlib import Path
from typing import Any

import numpy as np
from result_files import (
    Run,
    draw_curve,
    last_million_frames,
    published,
    rounded,
    runs_of,
    training_return,
)

HERE = Path(__file__).parent
GAMES = {
    ("ACER", "atari_laptop"): "acer",
    ("ACER", "atari_laptop before"): "before",
    ("Reactor", "atari_laptop"): "reactor",
    ("Reactor", "atari_laptop, continued"): "reactor_longer",
    ("Agent57", "atari_laptop"): "agent57",
}
OTHERS = ("DQN", "Rainbow", "IQN", "QR-DQN", "PPO")
TRIED = {
    "none": "before-pong",
    "RMSProp as in baselines": "tried_baselines",
    "4 environments, ratio 4, half the channels, Adam": "tried_ratio",
    "8 environments, entropy weight 0.001": "tried_entropy",
    "orthogonal weights, entropy weight 0.01 again": "tried_orthogonal_entropy",
    "orthogonal weights": "tried_orthogonal",
    "RMSProp": "tried_rmsprop",
}

REACTOR = {
    "paper": "reactor_paper",
    "orthogonal weights, faster, entropy weight 0.001": "reactor_faster",
    "small, orthogonal weights, entropy weight 0.01": "reactor_small",
    "the same, Haiku's weights": "reactor_small_haiku",
    "the same, orthogonal weights, entropy weight 0.003": "reactor_small_middle",
    "small, orthogonal weights, entropy weight 0.001": "reactor_laptop",
    "the same, momentum 0.9": "reactor_momentum",
    "the same, momentum 0.9, LayerNorm after the torso": "reactor_layer_norm",
    "the same, updates twice as often": "reactor_twice",
    "atari_laptop: momentum 0.9, an entropy weight that falls": "reactor-pong",
}

REWARD = "intrinsic_reward"  # the metric
AGENT57 = {
    "Retrace, the paper's kernel and weight": "agent57_retrace",
    "the same, a target network of 25 updates, not 100": "agent57_targets",
    "the same, kernel epsilon 0.1, not 0.0001": "agent57_kernel",
    "the same, intrinsic weight 0.03, not 0.3": "agent57_weight",
    "the same, n-step double Q-learning": "agent57_double_q",
    "atari_laptop: exponent 8, not 3, of the actors' epsilons": "agent57-pong",
}

FREEWAY = {
    "0.001, none repeated": "early_acer-freeway",
    "0.001": "sticky-freeway",
    "0.01": "sticky_entropy-freeway",
}

EARLY = {
    ("ACER", "Pong", "atari"): "early_acer_atari-pong",
    ("ACER", "Freeway", "atari_laptop"): "early_acer-freeway",
    ("Reactor", "Pong", "paper"): "early_reactor-pong",
    ("Reactor", "Freeway", "paper"): "early_reactor-freeway",
    ("Agent57", "Pong", "paper *"): "early_agent57-pong",
}


def one(name: str, seed: str) -> Run:
    """The run of a name and a seed."""
    (run,) = (run for run in runs_of(HERE)[name] if str(run.seed) == seed)
    return run


def part(run: Run, rows: Any) -> Run:
    """The run with these rows of its curve, a slice or a mask."""
    return run._replace(curve={name: column[rows] for name, column in run.curve.items()})


def mean_before(run: Run, steps: int, metric: str) -> str:
    """The mean of a metric in the 25,000 steps before `steps`; "-" if the run ended earlier."""
    known = run.curve["steps"]
    rows = (known > steps - 25_000) & (known <= steps + 10)
    return rounded(float(run.curve[metric][rows].mean()), 3) if known[-1] >= steps else "-"


def games(row: dict[str, str]) -> dict[str, str]:
    """A run: its size, and the mean of its last training returns beside published ones."""
    game = row["game"].lower()
    run = one(f"{GAMES[row['agent'], row['preset']]}-{game}", row["seed"])
    steps = int(run.curve["steps"][-1])
    scores = published("atari", game)
    budget = max(each for _, each in scores if each is not None and each <= steps)
    others = {name: f"{score:g}" for (name, each), score in scores.items() if each == budget}
    return {
        "published after": f"{budget:,}",
        **{name: others.get(name, "-") for name in OTHERS},
        "agent steps": f"{steps:,}",
        "updates": f"{int(run.curve['updates'][-1]):,}",
        "training return": rounded(last_million_frames(run), 1),
        "hours": rounded(run.curve["seconds"][-1] / 3600, 1),
    }


def tried(row: dict[str, str]) -> dict[str, str]:
    """ACER on Pong with another setting."""
    run = one(TRIED[row["change"]], row["seed"])
    last = len(run.curve["steps"]) // 10
    return {
        "agent steps": f"{int(run.curve['steps'][-1]):,}",
        "critic's loss, 50,000 to 75,000": mean_before(run, 75_000, "critic_loss"),
        "95,000 to 120,000": mean_before(run, 120_000, "critic_loss"),
        "policy entropy, last tenth": rounded(run.curve["policy_entropy"][-last:].mean(), 2),
        "training return, last tenth": rounded(training_return(run, 10), 1),
    }


def reactor(row: dict[str, str]) -> dict[str, str]:
    """Reactor on Pong with another setting; values are in units of the return."""
    run = one(REACTOR[row["change"]], row["seed"])
    last = -(len(run.curve["steps"]) // 10)
    scale = run.curve["reward_scale"][-1]
    value = run.curve["value"][last:].mean() * (1.0 if np.isnan(scale) else scale)
    return {
        "agent steps": f"{int(run.curve['steps'][-1]):,}",
        "updates": f"{int(run.curve['updates'][-1]):,}",
        "critic's loss, 15,000 to 40,000": mean_before(run, 40_000, "critic_loss"),
        "55,000 to 80,000": mean_before(run, 80_000, "critic_loss"),
        "policy entropy, up to 10,000": mean_before(run, 10_000, "policy_entropy"),
        "last tenth": rounded(run.curve["policy_entropy"][last:].mean(), 2),
        "value there": rounded(value, 2),
        "dead units there": rounded(run.curve["dead_units"][last:].mean(), 3),
        "training return there": rounded(training_return(run, 10), 1),
        "steps/s": f"{run.curve['steps'][-1] / run.curve['seconds'][-1]:.0f}",
    }


def agent57(row: dict[str, str]) -> dict[str, str]:
    """Agent57 on Pong with another setting."""
    run = one(AGENT57[row["change"]], row["seed"])
    known = run.curve["steps"] <= 40_010
    first = part(run, known)
    last = -(len(run.curve["steps"]) // 10)
    return {
        "agent steps": f"{int(run.curve['steps'][-1]):,}",
        "updates": f"{int(run.curve['updates'][-1]):,}",
        "intrinsic reward, up to 40,000": mean_before(first, int(first.curve["steps"][-1]), REWARD),
        "value, last tenth": rounded(run.curve["extrinsic_value"][last:].mean(), 2),
        "training return, 20,000 to 40,000": rounded(training_return(first, 2), 1),
        "last tenth": rounded(training_return(run, 10), 1),
        "evaluated": rounded(run.score, 1) if run.scores else "-",
        "steps/s": f"{run.curve['steps'][-1] / run.curve['seconds'][-1]:.0f}",
    }


def early(row: dict[str, str]) -> dict[str, str]:
    """A run that was stopped before its published budget: its first and last returns."""
    run = one(EARLY[row["agent"], row["game"], row["preset"]], "0")
    fifth = len(run.curve["steps"]) // 5
    first = part(run, slice(fifth))
    metrics = {"policy entropy there": "policy_entropy", "value there": "value"}

    def last_fifth(metric: str) -> str:
        mean = run.curve[metric][-fifth:].mean()
        return "-" if np.isnan(mean) else rounded(mean, 2)

    return {
        "agent steps": f"{int(run.curve['steps'][-1]):,}",
        "updates": f"{int(run.curve['updates'][-1]):,}",
        "training return, first fifth": rounded(training_return(first, 1), 1),
        "last fifth": rounded(training_return(run, 5), 1),
        **{column: last_fifth(metric) for column, metric in metrics.items()},
    }


def freeway(row: dict[str, str]) -> dict[str, str]:
    """ACER whose actors repeat nine of ten actions, with a weight of the entropy."""
    run = one(FREEWAY[row["entropy weight"]], row["seed"])
    last = -(len(run.curve["steps"]) // 10)
    return {
        "agent steps": f"{int(run.curve['steps'][-1]):,}",
        "updates": f"{int(run.curve['updates'][-1]):,}",
        "training return, last tenth": rounded(training_return(run, 10), 1),
        "evaluated": rounded(run.score, 1) if run.scores else "-",
        "policy entropy there": rounded(run.curve["policy_entropy"][last:].mean(), 2),
    }


def draw() -> None:
    """Draws all runs of Pong that are not trials, and published scores."""
    import matplotlib.pyplot as plt
    from matplotlib.ticker import EngFormatter

    figure, axes = plt.subplots(figsize=(6.4, 4), layout="constrained")
    for (agent, preset), name in GAMES.items():
        for run in runs_of(HERE).get(f"{name}-pong", ()):
            draw_curve(axes, run, 20, label=f"{agent}, {preset}, seed {run.seed}")
    scores = published("atari", "pong")
    for number, algorithm in enumerate(dict.fromkeys(name for name, _ in scores)):
        points = [(steps, score) for (name, steps), score in scores.items() if name == algorithm]
        style = {"color": "grey", "marker": "os^vDx"[number], "linestyle": ":"}
        axes.plot(*zip(*points, strict=True), label=f"published: {algorithm}", **style)
    axes.set(title="Pong", xlabel="agent steps (4 frames)", ylabel="training return")
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    figure.savefig(HERE / "curves.png", dpi=80)
    plt.close(figure)
