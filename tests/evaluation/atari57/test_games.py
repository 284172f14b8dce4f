"""57 slugs, and what ale-py calls the same games."""

import ale_py.roms
import pytest

from retrax.environments.atari import games
from retrax.evaluation.atari57 import GAMES, ale_id, game_slug


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
