"""57 games, the published data, and the sentences that a user's file gets."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retrax import evaluation
from retrax.environments.atari import games
from retrax.evaluation.atari57 import (
    GAMES,
    REGIMES,
    ale_id,
    game_slug,
    load_headlines,
    load_scores,
    read_scores,
)
from retrax.evaluation.suites import read_rows


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
            name = ale_id(GAMES[game]) if game % 2 else GAMES[game]
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
                ("pong,", ": score must be a finite number, got ''"),
                ("pong,nan", ": score must be a finite number, got 'nan'"),
                ("pong,1e999", ": score must be a finite number, got '1e999'"),
                ("pong,1,2", " must have 2 cells, got 'pong,1,2'"),
                ("pong", " must have 2 cells, got 'pong'"),
                ("pong,20.5", TWICE.format("20.5")),
                ("ALE/Pong-v5,3", TWICE.format("3")),
                ("pongo,3", ": 'pongo' is not one of the 57 games (did you mean pong?)"),
                (
                    "ALE/Adventure-v5,3",
                    ": 'ALE/Adventure-v5' is not one of the 57 games (did you mean "
                    "ALE/Venture-v5?)",
                ),
            )
        ),
        (
            "regime,game,score",  # a game's human starts and states are the same game twice
            [*complete("1", prefix="human_start,"), "states,pong,2"],
            f"{{file}} line 59{TWICE.format('2')}.",
        ),
        (
            "game,score",
            WITHOUT_PONG,
            "{file} lines 2 to 57 have 56 of 57 games of 'mine': pong is missing.",
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
        *(
            ("seed,game,score", [f"{seed},pong,1"], f"{{file}} line 2: seed must be {wanted}.")
            for seed, wanted in (
                ("1.5", "an integer, got '1.5'"),
                ("x", "a finite number, got 'x'"),
            )
        ),
        ("algorithm,game,score", [",pong,1"], "{file} line 2 has no algorithm name."),
        *(
            (header, [row], f"{{file}} line 1 must {NAMES} '{header}'.")
            for header, row in (
                ("game,points", "pong,1"),
                ("game,score,score", "pong,1,1"),
                ("", ""),
            )
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
    assert {slug: playable[ale_id(slug)] for slug in GAMES} == {
        slug: slug.replace("-", "_") for slug in GAMES
    }
    assert [game_slug(ale_id(slug)) for slug in GAMES] == list(map(game_slug, GAMES)) == list(GAMES)
    slugs = ("ms-pacman", "up-n-down", "kung-fu-master", "jamesbond")
    by_hand = ["ALE/MsPacman-v5", "ALE/UpNDown-v5", "ALE/KungFuMaster-v5", "ALE/Jamesbond-v5"]
    assert list(map(ale_id, slugs)) == by_hand


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
    for function in (game_slug, ale_id):
        sentence = rf"{name!r} is not one of the 57 games \(did you mean {hint}\?"
        with pytest.raises(ValueError, match=sentence):
            function(name)
