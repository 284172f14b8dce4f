"""57 games, the published data, and the sentences that a user's file gets."""

from pathlib import Path

import ale_py.roms
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


def sources_of(regime=None):
    rows = read_rows(Path(evaluation.__file__).parent / "data" / "atari57_sources.csv")
    return [row for row in rows if regime in (None, row["regime"])]


@pytest.fixture
def file(tmp_path):
    return tmp_path / "mine.csv"


@pytest.mark.parametrize("regime", REGIMES)
def test_published_scores_are_as_many_as_their_sources_say(regime):
    scores = load_scores(regime)
    counts = {name: int(np.isfinite(values).sum()) for name, values in scores.items()}
    sources = {s["algorithm"]: int(s["games"]) for s in sources_of(regime)}
    assert counts == sources
    assert all(values.shape == (57,) for values in scores.values())
    assert counts["random"] == counts["human"] == 57


def test_published_scores_by_hand():
    """Read off the tables of the papers."""
    noop, human_start = load_scores("noop"), load_scores("human_start")
    assert noop["reactor"][GAMES.index("montezuma-revenge")] == 2643.5
    assert noop["random"][GAMES.index("alien")] == 227.8
    assert noop["random"][GAMES.index("video-pinball")] == 16256.9
    assert human_start["prior_duel"][GAMES.index("battle-zone")] == 30650  # rldb: 306500
    pinball = GAMES.index("video-pinball")
    assert human_start["human"][pinball] < human_start["random"][pinball]


def test_every_source_tells_where_from():
    sources = sources_of()
    assert all(source["source"] for source in sources)
    pairs = [(source["algorithm"], source["regime"]) for source in sources]
    assert len(pairs) == len(set(pairs)) == 59


@pytest.mark.parametrize("regime", REGIMES)
def test_headlines_are_about_published_algorithms(regime):
    headlines = load_headlines(regime)
    keys = [(h.algorithm, h.statistic) for h in headlines]
    assert len(set(keys)) == len(keys)
    assert {h.algorithm for h in headlines} <= load_scores(regime).keys()


def test_an_unknown_regime_is_refused():
    with pytest.raises(ValueError, match="regime must be one of noop, human_start, got 'noops'"):
        load_scores("noops")


def test_a_file_of_games_and_scores_is_about_one_algorithm(file):
    rows = [f"{game},{number / 2}" for number, game in enumerate(GAMES)]
    (scores,) = read_scores(write(file, rows), "noop").items()
    assert scores[0] == "mine"
    np.testing.assert_array_equal(scores[1], [np.arange(57) / 2])


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


def assert_refused(file, sentence, regime="noop"):
    with pytest.raises(ValueError) as caught:  # noqa: PT011 (the whole sentence is compared)
        read_scores(file, regime)
    assert str(caught.value) == sentence.format(file=file)


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("pong,many", "{file} line 59: score must be a finite number, got 'many'."),
        ("pong,", "{file} line 59: score must be a finite number, got ''."),
        ("pong,nan", "{file} line 59: score must be a finite number, got 'nan'."),
        ("pong,1e999", "{file} line 59: score must be a finite number, got '1e999'."),
        ("pong,1,2", "{file} line 59 must have 2 cells, got 'pong,1,2'."),
        ("pong", "{file} line 59 must have 2 cells, got 'pong'."),
        ("pong,20.5", "{file} line 59 repeats pong of 'mine', with score 20.5: it is already on "
         "line 38."),
        ("ALE/Pong-v5,3", "{file} line 59 repeats pong of 'mine', with score 3: it is already on "
         "line 38."),
        ("pongo,3", "{file} line 59: 'pongo' is not one of the 57 games (did you mean pong?)."),
        ("ALE/Adventure-v5,3", "{file} line 59: 'ALE/Adventure-v5' is not one of the 57 games (did "
         "you mean ALE/Venture-v5?)."),
    ],
)  # fmt: skip
def test_a_wrong_line_is_named(file, line, sentence):
    assert_refused(write(file, [*complete(), line]), sentence)


def test_a_missing_game_is_named(file):
    rows = [row for row in complete() if not row.startswith("pong,")]
    sentence = "{file} lines 2 to 57 have 56 of 57 games of 'mine': pong is missing."
    assert_refused(write(file, rows), sentence)
    sentence = "{file} lines 2 to 56 have 55 of 57 games of 'mine': alien, pong are missing."
    assert_refused(write(file, rows[1:]), sentence)


def test_a_missing_game_of_a_seed_is_named(file):
    rows = [*complete("1", prefix="0,"), *complete("1", prefix="1,")[:-1]]
    sentence = (
        "{file} lines 59 to 114 have 56 of 57 games of 'mine' with seed 1: zaxxon is missing."
    )
    assert_refused(write(file, rows, "seed,game,score"), sentence)


def test_states_and_human_starts_of_one_game_are_the_same_game_twice(file):
    rows = [*complete("1", prefix="human_start,"), "states,pong,2"]
    sentence = "{file} line 59 repeats pong of 'mine', with score 2: it is already on line 38."
    write(file, rows, "regime,game,score")
    assert_refused(file, sentence, "human_start")


@pytest.mark.parametrize(
    ("header", "row", "sentence"),
    [
        ("regime,game,score", "sticky,pong,1", "{file} line 2: regime must be one of noop, "
         "human_start, states, got 'sticky'."),
        ("seed,game,score", "1.5,pong,1", "{file} line 2: seed must be an integer, got '1.5'."),
        ("seed,game,score", "x,pong,1", "{file} line 2: seed must be a finite number, got 'x'."),
        ("algorithm,game,score", ",pong,1", "{file} line 2 has no algorithm name."),
        ("game,points", "pong,1", "{file} line 1 must name the columns game and score, and may "
         "name algorithm, regime and seed, got 'game,points'."),
        ("game,score,score", "pong,1,1", "{file} line 1 must name the columns game and score, and "
         "may name algorithm, regime and seed, got 'game,score,score'."),
        ("", "", "{file} line 1 must name the columns game and score, and may name algorithm, "
         "regime and seed, got ''."),
        ("regime,game,score", "human_start,pong,1", "{file} has no scores in the regime 'noop'."),
        ("game,score", "", "{file} has no scores in the regime 'noop'."),
    ],
)  # fmt: skip
def test_wrong_columns_are_refused(file, header, row, sentence):
    assert_refused(write(file, [row], header), sentence)


def test_a_file_that_is_not_there(tmp_path):
    assert_refused(tmp_path / "none.csv", "{file} is not a file.")


def test_what_spreadsheets_write_is_read(file):
    """A byte order mark, CRLF, spaces, an empty line at the end."""
    text = "\r\n".join(["game, score", *complete(" 4"), "", ""])
    file.write_bytes(b"\xef\xbb\xbf" + text.encode())
    np.testing.assert_array_equal(read_scores(file, "noop")["mine"], np.full((1, 57), 4.0))


def test_fifty_seven_in_order():
    assert len(GAMES) == len(set(GAMES)) == 57
    assert list(GAMES) == sorted(GAMES)


def test_ids_are_those_of_the_installed_roms():
    playable = games()
    assert set(map(ale_id, GAMES)) <= set(playable)
    roms = {slug: playable[ale_id(slug)] for slug in GAMES}
    assert set(roms.values()) <= set(ale_py.roms.get_all_rom_ids())
    assert all(rom == slug.replace("-", "_") for slug, rom in roms.items())
    assert all(ale_py.roms.get_rom_path(rom).exists() for rom in roms.values())


def test_there_and_back():
    assert [game_slug(ale_id(slug)) for slug in GAMES] == list(map(game_slug, GAMES)) == list(GAMES)
    by_hand = ["ALE/MsPacman-v5", "ALE/UpNDown-v5", "ALE/KungFuMaster-v5", "ALE/Jamesbond-v5"]
    slugs = ["ms-pacman", "up-n-down", "kung-fu-master", "jamesbond"]
    assert list(map(ale_id, slugs)) == by_hand


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("pacman", "ms-pacman"),
        ("ms_pacman", "ms-pacman"),
        ("Pong", "pong"),
        ("ALE/Pong-v4", "ALE/Pong-v5"),
    ],
)
def test_others_are_refused_with_a_hint(name, hint):
    for function in (game_slug, ale_id):
        sentence = rf"{name!r} is not one of the 57 games \(did you mean"
        with pytest.raises(ValueError, match=sentence):
            function(name)
    with pytest.raises(ValueError, match=rf"did you mean {hint}\?"):
        game_slug(name)


def test_a_game_of_ale_that_is_none_of_the_57():
    assert "ALE/Adventure-v5" in games()
    with pytest.raises(ValueError, match="not one of the 57 games"):
        game_slug("ALE/Adventure-v5")
