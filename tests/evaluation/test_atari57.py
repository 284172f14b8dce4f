"""57 games: published data, the sentences that a user's file gets, ratings, and what is drawn.

Ranks, wins and ratings by slow definitions; the headline tables of the papers, recomputed.
"""

from pathlib import Path

import numpy as np
import oracles
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from matplotlib import image

from retrax import evaluation
from retrax.environments.atari import games
from retrax.evaluation.atari57 import (
    GAMES,
    IDS,
    REGIMES,
    count_wins,
    elo,
    game_slug,
    human_normalised,
    load_headlines,
    load_scores,
    make_table,
    mean_rank,
    plot_scores,
    read_scores,
    summarise,
)
from retrax.evaluation.suites import read_rows

THREE_TO_ONE, INF = 400 * np.log10(3), np.inf
# Few different values, so that there are ties.
SCORES = hnp.arrays(
    np.float64,
    st.tuples(st.integers(1, 6), st.integers(1, 8)),
    elements=st.integers(-3, 3).map(float),
)
# Rows whose mean rank is not the printed one: by how many places in how many games of 57 together.
# They tie with others in the tables' one decimal.
PLACES_TOO_MANY = {
    "noop": {"reactor": 3, "reactor_500m": 3},
    "human_start": {"dqn": 1, "reactor": 1, "reactor_500m": 1},
}


def write(path, rows, header="game,score"):
    path.write_text("\n".join([header, *rows]) + "\n")
    return path


def complete(score="1", *, prefix=""):
    return [f"{prefix}{game},{score}" for game in GAMES]


TWICE = " repeats pong of 'mine', with score {}: it is already on line 38"


@pytest.fixture
def file(tmp_path):
    return tmp_path / "mine.csv"


@pytest.mark.parametrize("regime", REGIMES)
def test_published_scores_are_as_many_as_their_sources_say(regime):
    scores = load_scores(regime)
    assert all(values.shape == (57,) for values in scores.values())
    counts = {name: int(np.isfinite(values).sum()) for name, values in scores.items()}
    assert counts["random"] == counts["human"] == 57
    data = Path(evaluation.__file__).parent / "data"
    rows = read_rows(data / "atari57_sources.csv")
    assert all(row["source"] for row in rows)
    assert len({(row["algorithm"], row["regime"]) for row in rows}) == len(rows) == 59
    assert counts == {r["algorithm"]: int(r["games"]) for r in rows if r["regime"] == regime}
    headlines, rows = load_headlines(regime), read_rows(data / "atari57_headlines.csv")
    assert headlines.keys() <= scores.keys()
    assert sum(map(len, headlines.values())) == [row["regime"] for row in rows].count(regime)


def test_published_scores_by_hand():
    """Read off the tables of the papers."""
    noop, human_start = load_scores("noop"), load_scores("human_start")
    assert noop["reactor"][GAMES.index("montezuma-revenge")] == 2643.5
    assert noop["random"][GAMES.index("alien")] == 227.8
    assert noop["random"][GAMES.index("video-pinball")] == 16256.9
    assert human_start["prior_duel"][GAMES.index("battle-zone")] == 30650  # rldb: 306500
    pinball = GAMES.index("video-pinball")
    assert human_start["human"][pinball] < human_start["random"][pinball]
    with pytest.raises(ValueError, match="regime must be one of noop, human_start, got 'noops'"):
        load_scores("noops")


def test_a_file_of_games_and_scores_is_about_one_algorithm(file):
    """With a byte order mark, CRLF, spaces and an empty line, as spreadsheets write."""
    rows = [f"{game}, {number / 2}" for number, game in enumerate(GAMES)]
    file.write_bytes(b"\xef\xbb\xbf" + "\r\n".join(["game, score", *rows, "", ""]).encode())
    assert read_scores(file, "noop").keys() == {"mine"}
    np.testing.assert_array_equal(read_scores(file, "noop")["mine"], [np.arange(57) / 2])


@settings(max_examples=20, deadline=None)
@given(st.permutations(range(57)), st.permutations(("algorithm", "game", "seed", "score")))
def test_order_of_rows_and_columns_and_kind_of_name_do_not_matter(tmp_path_factory, order, columns):
    rows = []
    for seed in (7, 3):
        for game in order:
            name = IDS[GAMES[game]] if game % 2 else GAMES[game]
            cell = {"algorithm": "x", "game": name, "seed": seed, "score": game + seed / 10}
            rows.append(", ".join(str(cell[column]) for column in columns))
    file = tmp_path_factory.mktemp("scores") / "file.csv"
    found = read_scores(write(file, rows, ",".join(columns)), "noop")
    assert found.keys() == {"x"}
    np.testing.assert_allclose(found["x"], np.add.outer([0.7, 0.3], np.arange(57)))


def test_several_algorithms_and_regimes(file):
    rows = [
        *complete("1", prefix="a,noop,"),
        *complete("2", prefix="b,noop,"),
        *complete("3", prefix="a,human_start,"),
        *complete("4", prefix="b,states,"),
    ]
    write(file, rows, "algorithm,regime,game,score")
    found = {regime: read_scores(file, regime) for regime in REGIMES}
    means = {r: {name: float(s.mean()) for name, s in f.items()} for r, f in found.items()}
    assert means == {"noop": {"a": 1, "b": 2}, "human_start": {"a": 3, "b": 4}}


WITHOUT_PONG = [row for row in complete() if not row.startswith("pong,")]
SEEDS = [*complete("1", prefix="0,"), *complete("1", prefix="1,")[:-1]]
NAMES = "name the columns game and score, and may name algorithm, regime and seed, got"


@pytest.mark.parametrize(
    ("header", "rows", "sentence"),
    [
        *(
            ("game,score", [*complete(), line], f"{{file}} line 59{sentence}.")
            for line, sentence in (
                ("pong,many", ": score must be a finite number, got 'many'"),
                ("pong,1e999", ": score must be a finite number, got '1e999'"),
                ("pong,1,2", " must have 2 cells, got 'pong,1,2'"),
                ("pong", " must have 2 cells, got 'pong'"),
                ("pong,20.5", TWICE.format("20.5")),
                ("ALE/Pong-v5,3", TWICE.format("3")),
                ("pongo,3", ": 'pongo' is not one of the 57 games (did you mean pong?)"),
            )
        ),
        (
            "regime,game,score",  # a game's human starts and states are the same game twice
            [*complete("1", prefix="human_start,"), "states,pong,2"],
            f"{{file}} line 59{TWICE.format('2')}.",
        ),
        (
            "game,score",
            WITHOUT_PONG[1:],
            "{file} lines 2 to 56 have 55 of 57 games of 'mine': alien, pong are missing.",
        ),
        (
            "seed,game,score",
            SEEDS,
            "{file} lines 59 to 114 have 56 of 57 games of 'mine' with seed 1: zaxxon is missing.",
        ),
        (
            "regime,game,score",
            ["sticky,pong,1"],
            "{file} line 2: regime must be one of noop, human_start, states, got 'sticky'.",
        ),
        ("algorithm,game,score", [",pong,1"], "{file} line 2: there is no algorithm name."),
        *(
            (header, ["pong,1"], f"{{file}} line 1 must {NAMES} '{header}'.")
            for header in ("game,points", "game,score,score", "")
        ),
        ("regime,game,score", ["noop,pong,1"], "{file} has no scores in the regime 'human_start'."),
        ("game,score", [""], "{file} has no scores in the regime 'human_start'."),
        (None, [], "{file} is not a file."),
    ],
)
def test_a_wrong_file_is_refused_and_its_line_named(file, header, rows, sentence):
    if header is not None:
        write(file, rows, header)
    with pytest.raises(ValueError) as caught:  # noqa: PT011 (the whole sentence is compared)
        read_scores(file, "human_start")
    assert str(caught.value) == sentence.format(file=file)


def test_games_and_their_ids_are_those_of_the_installed_roms():
    assert len(GAMES) == 57
    playable = games()
    assert {slug: playable[IDS[slug]] for slug in GAMES} == {
        slug: slug.replace("-", "_") for slug in GAMES
    }
    assert [game_slug(IDS[slug]) for slug in GAMES] == list(map(game_slug, GAMES)) == list(GAMES)
    slugs = ("ms-pacman", "up-n-down", "kung-fu-master", "jamesbond")
    by_hand = ["ALE/MsPacman-v5", "ALE/UpNDown-v5", "ALE/KungFuMaster-v5", "ALE/Jamesbond-v5"]
    assert [IDS[slug] for slug in slugs] == by_hand


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("pacman", "ms-pacman"),
        ("ms_pacman", "ms-pacman"),
        ("Pong", "pong"),
        ("ALE/Pong-v4", "ALE/Pong-v5"),
        ("ALE/Adventure-v5", "ALE/Venture-v5"),  # a game of ALE, but not of the 57
    ],
)
def test_others_are_refused_with_a_hint(name, hint):
    sentence = rf"{name!r} is not one of the 57 games \(did you mean {hint}\?"
    with pytest.raises(ValueError, match=sentence):
        game_slug(name)


def test_normalised_by_hand():
    """50 is twice what the human is above random; a human below it does not turn the order."""
    for random, human, scores, expected in (
        (10.0, 30.0, [10.0, 30.0, 50.0, 0.0], [0.0, 1.0, 2.0, -0.5]),
        (20.0, 15.0, [5.0, 20.0, 80.0], [-3.0, 0.0, 12.0]),
    ):
        limits = np.full(len(scores), random), np.full(len(scores), human)
        np.testing.assert_array_equal(human_normalised(np.array([scores]), *limits), [expected])


def test_summary_by_hand():
    """Of 0, 1, 2, ..., 19 less 1: the 5 % quantile lies at 0.95."""
    found = summarise(np.arange(20.0)[::-1] - 1.0)
    # -1 and 0 count 0 in the capped mean; the 1 is not above the human.
    assert found == pytest.approx((8.5, 8.5, 18 / 20, -0.05, 17))


@given(SCORES)
def test_wins_are_the_slow_ones_and_every_game_is_won_once(scores):
    wins = count_wins(scores)
    np.testing.assert_array_equal(wins, oracles.wins_with_half_ties(scores))
    games = np.full(wins.shape, float(scores.shape[1]))
    np.fill_diagonal(games, 0.0)
    np.testing.assert_array_equal(wins + wins.T, games)


def test_ranks_by_hand():
    """30, 20, 20, 10: places 1, 3, 3, 4, for the two in the middle share the worse of theirs."""
    scores = np.array([[20.0], [10.0], [30.0], [20.0]])
    np.testing.assert_array_equal(mean_rank(scores), [3, 4, 1, 3])


@pytest.mark.parametrize(
    ("wins", "anchor", "expected"),
    [
        # Ten to one is 400 points, three to one 400 log10(3).
        ([[0, 1], [10, 0]], 0, [0, 400]),
        ([[0, 1], [3, 0]], 1, [-THREE_TO_ONE, 0]),
        # Each is three times as strong as the one before.
        ([[0, 1, 2], [3, 0, 5], [18, 15, 0]], 0, [0, THREE_TO_ONE, 2 * THREE_TO_ONE]),
        # 0 beats all, 1 and 2 share, 3 beats nobody: 1 and 2 are as if alone.
        ([[0, 5, 5, 5], [0, 0, 3, 5], [0, 1, 0, 5], [0] * 4], 1, [INF, 0, -THREE_TO_ONE, -INF]),
        # Who met nobody has no rating.
        ([[0, 1, 0], [1, 0, 0], [0, 0, 0]], 0, [0, 0, np.nan]),
        ([[0]], 0, [0]),
    ],
)
def test_ratings_by_hand(wins, anchor, expected):
    np.testing.assert_allclose(elo(np.array(wins), anchor), expected, atol=1e-4)


@pytest.mark.parametrize(
    ("function", "arguments", "sentence"),
    [
        *(
            (function, [scores], r"must be finite, \[algorithms, games\], got shape")
            for function in (mean_rank, count_wins)
            for scores in (np.zeros(3), np.zeros((2, 0)), np.array([[0.0, np.nan]]))
        ),
        (elo, [np.zeros((2, 3)), 0], r"a square of finite numbers >= 0, got shape \(2, 3\)"),
        (elo, [np.array([[0, np.nan], [1, 0]]), 0], "a square of finite numbers >= 0"),
        (make_table, ["noop", ["raibow"]], r"'raibow' in the .* 'noop' \(did you mean rainbow\?\)"),
        (make_table, ["noop", ["a3c_lstm"]], "no .* of 'a3c_lstm' .* allowed are random, hum"),
        (make_table, ["noop", ["gorila"]], "'gorila' has .* 49 games in the regime 'noop', not of"),
        (make_table, ["noop", [], {"dqn": np.zeros((1, 57))}], "'dqn' is a published algorithm: "),
    ],
)
def test_refusals(function, arguments, sentence):
    with pytest.raises(ValueError, match=sentence):
        function(*arguments)


@pytest.mark.parametrize(("regime", "size"), [("noop", 11), ("human_start", 12)])
def test_medians_ranks_and_ratings_are_the_printed_ones(regime, size):
    """Ranks but for ties of rounded scores, and ratings within two points."""
    table, too_many = make_table(regime), {}
    assert (table.as_printed, len(table.entries)) == (True, size)
    for name, *_, summary, rank, rating, _, _, printed in table.entries:
        assert round(summary.median, 2) == printed["median"], name
        if round(rank, 2) != printed["mean_rank"]:
            too_many[name] = round(57 * (rank - printed["mean_rank"]))
            corrected = round(rank - too_many[name] / 57, 2)
            assert corrected == pytest.approx(printed["mean_rank"]), name
        # Random wins almost no game: half a win is 4 to 11 points of its rating.
        assert abs(rating - printed["elo"]) < (13 if name == "random" else 2), name
    assert too_many == PLACES_TOO_MANY[regime]


@pytest.mark.parametrize("algorithm", ["agent57", "r2d2_bandit", "muzero", "r2d2"])
def test_the_table_of_agent57(algorithm):
    """Their means take 0 for Video Pinball's random score; nothing else depends on it."""
    scores = load_scores("noop")
    random = np.where(np.array(GAMES) == "video-pinball", 0.0, scores["random"])
    ours = summarise(human_normalised(scores[algorithm], random, scores["human"]))
    (entry,) = [e for e in make_table("noop", [algorithm]).entries if e.algorithm == algorithm]
    printed = load_headlines("noop")[algorithm]
    assert printed == entry.printed
    for statistic, value in printed.items():
        assert getattr(ours, statistic) == pytest.approx(value, abs=5e-4), statistic
        if statistic != "mean":
            assert getattr(entry.summary, statistic) == pytest.approx(value, abs=1e-4), statistic


def test_a_users_scores_stand_among_the_others():
    own = {"mine": load_scores("noop")["rainbow"][None], "best": np.full((1, 57), 1e9)}
    table = make_table("noop", ["rainbow", "dqn"], own)
    assert [entry.algorithm for entry in table.entries] == [
        *("random", "human", "rainbow", "dqn"),
        *("mine", "best"),
    ]
    assert [entry.own for entry in table.entries] == [False] * 4 + [True] * 2
    *_, rainbow, _, mine, best = table.entries
    assert mine.summary == rainbow.summary
    assert mine.elo == pytest.approx(rainbow.elo, abs=1e-3)
    assert (best.elo, best.mean_rank) == (np.inf, 1)
    assert mine.printed == {}
    assert not table.as_printed


def test_seeds_give_an_interval_and_a_mean():
    scores = load_scores("noop")
    seeds = np.stack([scores["human"], scores["random"]])
    entry, again = (make_table("noop", [], {"half": seeds}).entries[2] for _ in range(2))
    np.testing.assert_allclose(entry.normalised, 0.5)
    assert (entry.seeds, entry.iqm.mean) == (2, pytest.approx(0.5))
    assert 0 <= entry.iqm.low < 0.5 < entry.iqm.high <= 1
    assert again.iqm == entry.iqm


def test_profiles_are_the_parts_of_the_games_with_so_high_a_score(tmp_path):
    table, output = make_table("human_start", ["dqn", "rainbow"]), tmp_path / "new" / "scores.png"
    figure = plot_scores(table, output)
    picture = image.imread(output)
    assert min(picture.shape[:2]) > 800
    assert len(np.unique(picture[..., :3].reshape(-1, 3), axis=0)) > 10  # not blank
    curves = {line.get_label().split()[0]: line for line in figure.axes[0].get_lines()}
    for entry in table.entries[2:]:
        x, y = curves[entry.algorithm].get_data()
        assert curves[entry.algorithm].get_drawstyle() == "steps-pre"
        for score in (0.1, 0.5, 1.0, 7.3):
            share = np.mean(entry.normalised >= score)
            assert y[np.searchsorted(x, score)] == pytest.approx(share)  # steps-pre: the next one
    legend = [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
    assert legend == ["rainbow  1.53", "dqn  0.69"]


def test_games_are_those_of_the_users_algorithm_in_order(tmp_path):
    own = {"mine": load_scores("noop")["reactor"][None] * 0.9}
    table = make_table("noop", ["dqn", "rainbow"], own)
    axes = plot_scores(table, tmp_path / "scores.png").axes[1]
    *_, dqn, rainbow, mine = table.entries
    order = [GAMES.index(label.get_text()) for label in axes.get_yticklabels()]
    widths = [bar.get_width() for bar in axes.patches]
    assert widths == sorted(mine.normalised) == mine.normalised[order].tolist()
    (marks,) = [line for line in axes.get_lines() if line.get_label() == "best of the others"]
    others = np.maximum(dqn.normalised, rainbow.normalised)
    np.testing.assert_array_equal(marks.get_xdata(), others[order])
    assert f"mine: above the human in {mine.summary.games_above_human} of 57" in axes.get_title()


def test_one_algorithm_alone_may_be_far_below_random_and_has_no_rivals(tmp_path):
    own = {"worst": load_scores("noop")["random"][None] - 1e6}
    axes = plot_scores(make_table("noop", [], own), tmp_path / "scores.png").axes[1]
    low, high = axes.get_xlim()
    assert low == -1.0 < high
    assert axes.get_legend() is None


def test_refuses_other_files_and_nothing_to_draw(tmp_path):
    for algorithms, name, sentence in (
        (None, "a.pdf", r"a\.pdf must end in \.png"),
        ([], "a.png", "nothing to draw: give algorithms other than random and human"),
    ):
        with pytest.raises(ValueError, match=sentence):
            plot_scores(make_table("noop", algorithms), tmp_path / name)
    assert list(tmp_path.iterdir()) == []
