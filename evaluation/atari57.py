"""57 Atari games: published scores, a user's in the same form, and the papers' statistics of them.

`load_scores` has the published scores, `read_scores` a user's. `make_table` computes the statistics
of each algorithm (median, mean rank, Elo ...) beside the papers' values, `plot_scores` plots them.
`A` denotes the number of algorithms, `G` of games, `R` of seeds. Scores are finite float64.
"""

import contextlib
import csv
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy import optimize, special
from scipy.sparse import csgraph

from ..basics.sentences import did_you_mean
from .plots import check_ending, new_figure, png, save
from .statistics import Interval, check_table, interquartile_mean, stratified_bootstrap
from .suites import DATA, read_rows

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_PUBLISHED = read_rows(DATA / "atari57_scores.csv")
GAMES = tuple(sorted({row["game"] for row in _PUBLISHED}))  # the order of all arrays of scores
IDS = {slug: f"ALE/{slug.title().replace('-', '')}-v5" for slug in GAMES}
# How an episode begins: after 0 to 30 no-ops, or in a state that a human player reached.
REGIMES = {"noop": "no-op starts", "human_start": "human starts"}
# Scores from saved states are compared with human starts, whose states were never published.
_COUNTS_AS = {"noop": "noop", "human_start": "human_start", "states": "human_start"}
_COLUMNS = ("algorithm", "regime", "game", "seed", "score")
_ALWAYS = ("random", "human")  # in every comparison: ranks include both, the human's rating is 0
_ELO = 400.0 / np.log(10.0)  # rating points in one unit of log odds
_TICKS = (-1.0, -0.5, 0.0, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0)


def game_slug(name: str) -> str:
    """The slug of a game, from its slug or its id; a ValueError suggests the most similar one."""
    slugs = {slug: slug for slug in GAMES} | {id: slug for slug, id in IDS.items()}
    if name not in slugs:
        raise ValueError(f"{name!r} is not one of the 57 games{did_you_mean(name, slugs)}")
    return slugs[name]


def load_scores(regime: str = "noop") -> dict[str, np.ndarray]:
    """Published scores by algorithm, float64 `[57]` in the order of `GAMES`; NaN if omitted.

    `random` and `human` are among them, complete. A ValueError refuses a regime not of `REGIMES`.
    """
    if regime not in REGIMES:
        raise ValueError(f"regime must be one of {', '.join(REGIMES)}, got {regime!r}.")
    scores: dict[str, np.ndarray] = {}
    for row in _PUBLISHED:
        if row["regime"] == regime:
            found = scores.setdefault(row["algorithm"], np.full(len(GAMES), np.nan))
            found[GAMES.index(row["game"])] = float(row["score"])
    return scores


def load_headlines(regime: str = "noop") -> dict[str, dict[str, float]]:
    """The statistics that papers print, for comparison with recomputed ones.

    By algorithm and statistic: an attribute of `Summary`, `mean_rank` or `elo`.
    """
    printed: dict[str, dict[str, float]] = {}
    for row in read_rows(DATA / "atari57_headlines.csv"):
        if row["regime"] == regime:
            printed.setdefault(row["algorithm"], {})[row["statistic"]] = float(row["value"])
    return printed


def read_scores(path: Path, regime: str) -> dict[str, np.ndarray]:
    """Reads a user's scores: by algorithm, float64 `[R, 57]`, R seeds, in the order of `GAMES`.

    The file is CSV with a header. Its columns, in any order, are `game` (slug or ALE id) and
    `score`, and optionally `algorithm` (by default the file's name), `regime` (the given one) and
    `seed` (all records are of one). Records of other regimes are ignored; records of
    `states` count as `human_start`.

    Raises:
      ValueError: a score is not a finite number, a game or regime is unknown, or a game is repeated
        or missing. The message names line and value.
    """
    if not path.is_file():
        raise ValueError(f"{path} is not a file.")
    runs: dict[tuple[str, str], dict[str, tuple[int, float]]] = {}  # by game: line and score
    with path.open(newline="", encoding="utf-8-sig", errors="replace") as file:
        lines = csv.reader(file)
        header = [name.strip() for name in next(lines, [])]
        if not {"game", "score"} <= set(header) <= set(_COLUMNS) or len(set(header)) < len(header):
            raise ValueError(
                f"{path} line 1 must name the columns game and score, and may name algorithm, "
                f"regime and seed, got {','.join(header)!r}."
            )
        for cells in filter(None, lines):
            where = f"{path} line {lines.line_num}"
            if len(cells) != len(header):
                raise ValueError(f"{where} must have {len(header)} cells, got {','.join(cells)!r}.")
            given = dict(zip(header, map(str.strip, cells), strict=True))
            cell = {"algorithm": path.stem, "regime": regime, "seed": "", **given}
            try:
                game, score = _checked(cell)
            except ValueError as error:
                raise ValueError(f"{where}: {error}.") from None
            if _COUNTS_AS[cell["regime"]] != regime:
                continue
            games = runs.setdefault((cell["algorithm"], cell["seed"]), {})
            if game in games:
                raise ValueError(
                    f"{where} repeats {game} of {cell['algorithm']!r}, with score {score:g}: it is "
                    f"already on line {games[game][0]}."
                )
            games[game] = lines.line_num, score
    found: dict[str, list[list[float]]] = {}
    names = [algorithm for algorithm, _ in runs]
    for (algorithm, seed), games in runs.items():
        if missing := [game for game in GAMES if game not in games]:
            numbers = [line for line, _ in games.values()]
            of_seed = f" with seed {seed}" if names.count(algorithm) > 1 else ""
            raise ValueError(
                f"{path} lines {min(numbers)} to {max(numbers)} have {len(games)} of 57 games of "
                f"{algorithm!r}{of_seed}: {', '.join(missing)} "
                f"{'is' if len(missing) == 1 else 'are'} missing."
            )
        found.setdefault(algorithm, []).append([games[game][1] for game in GAMES])
    if not found:
        raise ValueError(f"{path} has no scores in the regime {regime!r}.")
    return {algorithm: np.array(seeds) for algorithm, seeds in found.items()}


def _checked(cell: dict[str, str]) -> tuple[str, float]:
    """Game and score of a record; a ValueError says which of its cells is wrong."""
    if not cell["algorithm"]:
        raise ValueError("there is no algorithm name")
    if cell["regime"] not in _COUNTS_AS:
        raise ValueError(f"regime must be one of {', '.join(_COUNTS_AS)}, got {cell['regime']!r}")
    game, score = game_slug(cell["game"]), math.nan
    with contextlib.suppress(ValueError):
        score = float(cell["score"])
    if not math.isfinite(score):
        raise ValueError(f"score must be a finite number, got {cell['score']!r}")
    return game, score


class Summary(NamedTuple):
    """Statistics over games of human-normalised scores: 0 is random play, 1 is human play."""

    median: float
    mean: float
    capped_mean: float  # of scores clipped to [0, 1] (Badia et al. 2020)
    percentile_5: float
    games_above_human: int


class Entry(NamedTuple):
    """The statistics of one algorithm; rank and Elo are among all of the table."""

    algorithm: str
    own: bool  # whether the scores are the user's
    normalised: np.ndarray  # `[57]`, human-normalised scores, averaged over seeds
    summary: Summary  # of `normalised`
    mean_rank: float
    elo: float  # 0 for the human; infinite for an algorithm that won or lost every game
    iqm: Interval  # of seeds and games, with limits if there are several seeds
    seeds: int
    printed: dict[str, float]  # the papers' values, by `median`, `mean_rank`, `elo` ...


class Table(NamedTuple):
    """A comparison: random and human first, then the others in the requested order."""

    regime: str  # how the episodes began
    entries: list[Entry]
    # Whether the algorithms are the ones in Reactor's table. Only then are mean rank and Elo, which
    # depend on the compared algorithms, comparable to the printed ones.
    as_printed: bool


def make_table(
    regime: str = "noop",
    algorithms: Sequence[str] | None = None,
    own: Mapping[str, np.ndarray] | None = None,
) -> Table:
    """Compares published algorithms and a user's, with deterministic resampling.

    Args:
      regime: one of `REGIMES`.
      algorithms: names of `load_scores(regime)`; None: as in Reactor's table. `random` and
        `human` are always included.
      own: output of `read_scores`: from name to scores `[R, 57]`.

    Raises:
      ValueError: an algorithm is unknown or lacks scores of some games, or a name of `own` is
        a published algorithm's.
    """
    published, printed = load_scores(regime), load_headlines(regime)
    standard = [name for name, statistics in printed.items() if "elo" in statistics]
    pool = list(dict.fromkeys([*_ALWAYS, *(standard if algorithms is None else algorithms)]))
    for name in pool:
        if name not in published:
            complete = [known for known, scores in published.items() if not np.isnan(scores).any()]
            raise ValueError(
                f"There are no scores of {name!r} in the regime {regime!r}"
                f"{did_you_mean(name, published)}: allowed are {', '.join(complete)}."
            )
        if missing := [GAMES[game] for game in np.flatnonzero(np.isnan(published[name]))]:
            raise ValueError(
                f"{name!r} has scores of {len(GAMES) - len(missing)} games in the regime "
                f"{regime!r}, not of all 57: {', '.join(missing)} were not published."
            )
    own = dict(own or {})
    if both := own.keys() & published.keys():
        raise ValueError(f"{min(both)!r} is a published algorithm: give your own another name.")
    scores = {name: published[name][None] for name in pool} | own
    means = np.stack([seeds.mean(axis=0) for seeds in scores.values()])
    random, human = published["random"], published["human"]
    ranks, ratings = mean_rank(means), elo(count_wins(means), list(scores).index("human"))
    entries = []
    rows = zip(scores.items(), means, ranks, ratings, strict=True)
    for (name, seeds), mean, rank, rating in rows:
        normalised, generator = human_normalised(mean, random, human), np.random.default_rng(0)
        each = human_normalised(seeds, random, human)
        iqm = stratified_bootstrap(interquartile_mean, each, generator=generator)
        measured = summarise(normalised), float(rank), float(rating), iqm, len(seeds)
        entries.append(Entry(name, name in own, normalised, *measured, printed.get(name, {})))
    return Table(regime, entries, not own and set(pool) == set(standard))


def human_normalised(scores: np.ndarray, random: np.ndarray, human: np.ndarray) -> np.ndarray:
    """`(score - random) / |human - random|`, game by game.

    The denominator is an absolute value: at human starts in Video Pinball, the human score (15,641)
    is below the random one (20,452), and a signed difference would reverse the order of scores
    `[..., G]`.
    """
    return (np.asarray(scores, np.float64) - random) / np.abs(human - random)


def summarise(normalised: np.ndarray) -> Summary:
    """The summary of human-normalised scores `[G]`."""
    return Summary(
        median=float(np.median(normalised)),
        mean=float(np.mean(normalised)),
        capped_mean=float(np.mean(np.clip(normalised, 0.0, 1.0))),
        percentile_5=float(np.percentile(normalised, 5)),
        games_above_human=int(np.sum(normalised > 1.0)),
    )


def mean_rank(scores: np.ndarray) -> np.ndarray:
    """Mean ranks over games `[A]`, in [1, A], of scores `[A, G]`.

    A rank is the number of algorithms with at least the same score: tied algorithms all get the
    worst of their ranks, as in Reactor's tables (docs/atari57.md).
    """
    scores = check_table(scores, "algorithms", "games")
    return (scores >= scores[:, None]).sum(axis=1).mean(axis=1)


def count_wins(scores: np.ndarray) -> np.ndarray:
    """Games `[A, A]` in which the first index beats the second, of scores `[A, G]`; ties: half."""
    scores = check_table(scores, "algorithms", "games")
    wins = 0.5 * (1.0 + np.sign(scores[:, None] - scores)).sum(axis=-1)
    np.fill_diagonal(wins, 0.0)
    return wins


def elo(wins: np.ndarray, anchor: int) -> np.ndarray:
    """Elo ratings: maximum-likelihood estimates of a Bradley-Terry model.

    In the model, i beats j with probability `1 / (1 + 10^((R_j - R_i) / 400))`, independently in
    each game. A difference of 400 points is odds of ten to one (Reactor, "Rank and Elo
    evaluation").

    A rating has no finite maximum if a group of algorithms never loses to the others. Algorithms
    above the anchor get +inf, below it -inf, and those that no games connect to it NaN.

    Args:
      wins: `[A, A]`, finite, >= 0: wins of the first index over the second; a tie counts half.
      anchor: index of the algorithm with rating 0.
    """
    wins = np.asarray(wins, np.float64)
    if wins.shape != wins.shape[:1] * 2 or not np.all(np.isfinite(wins) & (wins >= 0)):
        raise ValueError(f"wins must be a square of finite numbers >= 0, got shape {wins.shape}.")
    above, below = _reaches(wins, anchor), _reaches(wins.T, anchor)
    equals = np.flatnonzero(above & below)
    ratings = np.select([above & ~below, below & ~above], [np.inf, -np.inf], np.nan)
    strengths = _strengths(wins[np.ix_(equals, equals)])
    ratings[equals] = _ELO * (strengths - strengths[equals == anchor])
    return ratings


def _reaches(wins: np.ndarray, goal: int) -> np.ndarray:
    """Algorithms with a chain of wins to `goal`, and `goal` itself: bool `[A]`."""
    found = csgraph.breadth_first_order(wins.T > 0, goal, return_predecessors=False)
    return np.isin(np.arange(len(wins)), found)


def _strengths(wins: np.ndarray) -> np.ndarray:
    """Maximum-likelihood log strengths `[A]`, the first 0; finite if all are connected."""
    if len(wins) == 1:
        return np.zeros(1)
    games = wins + wins.T

    def gaps(free: np.ndarray) -> np.ndarray:
        return np.subtract.outer(*[np.append(0.0, free)] * 2)

    def loss_and_gradient(free: np.ndarray) -> tuple[float, np.ndarray]:
        errors = games * special.expit(gaps(free)) - wins
        return float((wins * np.logaddexp(0.0, -gaps(free))).sum()), errors.sum(axis=1)[1:]

    def hessian(free: np.ndarray) -> np.ndarray:
        curvature = games * special.expit(gaps(free)) * special.expit(-gaps(free))
        return (np.diag(curvature.sum(axis=1)) - curvature)[1:, 1:]

    methods: dict[str, Any] = {"jac": True, "hess": hessian, "method": "trust-exact"}
    start, options = np.zeros(len(wins) - 1), {"gtol": 1e-7}
    found = optimize.minimize(loss_and_gradient, start, **methods, options=options)
    return np.append(0.0, found.x)


def plot_scores(table: Table, output: Path) -> "Figure":
    """Plots profiles of all algorithms, and the games of one of them; returns the figure.

    Left, for each algorithm: the fraction of the 57 games with at least a given human-normalised
    score; a curve crosses one half at the median. Right: the sorted games of one algorithm, the
    user's first one, or the one with the best median; a mark is the best score of the others.

    Raises:
      ValueError: `output` does not end in `.png`, or random and human are the only algorithms.
    """
    check_ending(output, ".png")
    shown = [entry for entry in table.entries if entry.algorithm not in ("random", "human")]
    if not shown:
        raise ValueError("There is nothing to draw: give algorithms other than random and human.")
    figure = new_figure(14.0, 10.5)
    profiles, games = figure.subplots(1, 2, width_ratios=(1.0, 1.05))
    _draw_profiles(profiles, shown)
    own = [entry for entry in shown if entry.own]
    best = max(shown, key=lambda entry: entry.summary.median)
    _draw_games(games, own[0] if own else best, shown)
    figure.suptitle(f"57 Atari games, {REGIMES[table.regime]}", fontsize=15)
    save(png(figure), output)
    return figure


def _draw_profiles(panel: "Axes", shown: list[Entry]) -> None:
    """Step curves; the legend is sorted by median."""
    for number, entry in enumerate(sorted(shown, key=lambda entry: -entry.summary.median)):
        panel.ecdf(
            entry.normalised,
            complementary=True,
            color=f"C{number % 10}",
            linestyle=("-", "--", ":")[number // 10 % 3],
            linewidth=3.5 if entry.own else 1.5,
            zorder=3 if entry.own else 2,
            label=f"{entry.algorithm}  {entry.summary.median:.2f}",
        )
    panel.axhline(0.5, color="grey", linewidth=0.8)
    _scale(panel, max(float(np.max(entry.normalised)) for entry in shown))
    panel.set(ylim=(0.0, 1.0), ylabel="fraction of games with at least this score")
    panel.set_title("Profiles: higher is better")
    panel.legend(title="median", loc="upper right", frameon=True)


def _draw_games(panel: "Axes", focus: Entry, shown: list[Entry]) -> None:
    """One bar for each game, best at the top; blue above the human score, orange below."""
    order = np.argsort(focus.normalised, kind="stable")
    scores = focus.normalised[order]
    colours = np.where(scores > 1.0, "C0", "C1")
    panel.barh(np.arange(len(scores)), scores, color=colours, height=0.75)
    others = [entry.normalised[order] for entry in shown if entry is not focus]
    if others:
        best = np.max(others, axis=0)
        label = "best of the others"
        panel.plot(best, np.arange(len(best)), "k|", markersize=8, mew=1.8, label=label)
        panel.legend(loc="lower right")
    panel.set_yticks(np.arange(len(scores)), [GAMES[game] for game in order], fontsize=8)
    panel.set_ylim(-0.7, len(scores) - 0.3)
    _scale(panel, max(float(np.max(entry.normalised)) for entry in shown), below=min(scores))
    above = focus.summary.games_above_human
    panel.set_title(f"{focus.algorithm}: above the human in {above} of {len(scores)} games")


def _scale(panel: "Axes", highest: float, below: float = 0.0) -> None:
    """An axis of scores that is linear up to the human's, and logarithmic above it."""
    panel.set_xscale("symlog", linthresh=1.0, linscale=0.7)
    low, high = max(-1.0, min(-0.05, below * 1.1)), max(1.0, highest) * 1.1
    panel.set_xlim(low, high)
    ticks = [tick for tick in _TICKS if low <= tick <= high]
    panel.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    panel.minorticks_off()
    panel.axvline(1.0, color="black", linewidth=1.0, linestyle="--")
    panel.set_xlabel("human-normalised score (0 random, 1 human)")
    panel.grid(axis="x", alpha=0.3)
