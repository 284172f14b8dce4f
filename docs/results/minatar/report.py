"""The computed cells of this page: python docs/results/result_tables.py minatar."""

from pathlib import Path

from result_files import (
    draw_suite,
    joined,
    published,
    runs,
    runs_of,
    training_return,
    with_interval,
)

from retrax.evaluation.suites import read_rows

HERE = Path(__file__).parent


def others(row: dict[str, str], *millions: int) -> dict[str, str]:
    """The published scores after some millions of frames."""
    found = published("minatar", task_of(row)).items()
    scores = {(name, steps // 10**6): score for (name, steps), score in found}
    return {f"{name}, {m}M": f"{score:.1f}" for (name, m), score in scores.items() if m in millions}


def ours(row: dict[str, str], agent: str, steps: int) -> dict[str, str]:
    """Of our runs, one for each seed: returns in training and of the evaluation, and seconds."""
    suffix = "-5m" if steps == 5_000_000 else ""
    found = runs(HERE, f"{agent}-{task_of(row)}{suffix}")
    assert {run.scores["steps"] for run in found} == {str(steps)}
    return {
        "training": joined([training_return(run, 10) for run in found], ".1f"),
        "evaluated": joined([run.score for run in found], ".1f"),
        "seconds": joined([float(run.scores["seconds"]) for run in found], ",.0f"),
    }


def task_of(row: dict[str, str]) -> str:
    """The name of a game in files."""
    return row["game"].lower().replace(" ", "-")


def acer(row: dict[str, str]) -> dict[str, str]:
    """ACER after 1M frames."""
    return ours(row, "acer", 1_000_000) | others(row, 1, 5)


def acer_5m(row: dict[str, str]) -> dict[str, str]:
    """ACER after 5M frames."""
    return ours(row, "acer", 5_000_000) | others(row, 5)


def falling(row: dict[str, str]) -> dict[str, str]:
    """ACER on a device with `small_minatar`, beside `small` with the same seeds."""
    before = device(row)
    of_small = {f"small, {name}": before[name] for name in ("training", "evaluated")}
    return device(row, "falling-acer") | of_small


def own(row: dict[str, str]) -> dict[str, str]:
    """ACER with `small_minatar` on MinAtar's own games, beside the published scores."""
    return device(row, "own-acer", 3) | others(row, 5)


def device(row: dict[str, str], name: str = "device", seeds: int = 5) -> dict[str, str]:
    """ACER on a device, or under another name, a run for each seed."""
    found = runs_of(HERE)[f"{name}-{task_of(row)}"]
    assert [run.scores["steps"] for run in found] == ["1000000"] * seeds
    return {
        "training": with_interval([training_return(run, 10) for run in found], ".1f"),
        "evaluated": with_interval([run.score for run in found], ".1f"),
        "seconds": joined([float(run.scores["seconds"]) for run in found], ".0f"),
    } | others(row, 1)


def reactor(row: dict[str, str]) -> dict[str, str]:
    """Reactor after 300,000 frames."""
    return ours(row, "reactor", 300_000) | {"DQN, 1M": others(row, 1)["DQN, 1M"]}


def reactor_device(row: dict[str, str]) -> dict[str, str]:
    """Reactor on a device after 1M frames, one seed."""
    found = ours(row, "device-reactor", 1_000_000)
    return {name: found[name] for name in ("training", "evaluated")} | others(row, 1)


def reactor_slow(row: dict[str, str]) -> dict[str, str]:
    """Reactor with fewer and smaller updates after 1M frames."""
    return ours(row, "slow-reactor", 1_000_000) | others(row, 1)


def reactor_near(row: dict[str, str]) -> dict[str, str]:
    """Reactor with one setting for all games after 1M frames."""
    return ours(row, "near-reactor", 1_000_000) | others(row, 1)


def agent57(row: dict[str, str]) -> dict[str, str]:
    """Agent57 on a device after 1M frames, one seed."""
    return ours(row, "device-agent57", 1_000_000) | others(row, 1)


def acer_5m_device(row: dict[str, str]) -> dict[str, str]:
    """ACER on a device after 5M frames."""
    return ours(row, "device-acer", 5_000_000) | others(row, 5)


def seaquest(row: dict[str, str]) -> dict[str, str]:
    """Beside DQN as we ran it: its episodes that ended in the last tenth of the frames."""
    frames, episodes = 300_000, read_rows(HERE / f"dqn-{task_of(row)}-0.csv")
    returns = [float(each["return"]) for each in episodes if int(each["steps"]) > 0.9 * frames]
    return {
        "Reactor": ours(row, "reactor", frames)["training"],
        "DQN": f"{sum(returns) / len(returns):.1f}",
    }


def draw() -> None:
    """Draws ACER and Reactor beside 5M frames of the published agents."""
    lines = {("DQN", 5_000_000): "published: DQN, 5M", ("AC(0.8)", 5_000_000): "AC(0.8), 5M"}
    draw_suite(HERE, {"acer": "ACER", "reactor": "Reactor"}, lines, columns=5)
