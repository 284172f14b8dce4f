"""The 57 games of the Atari benchmark, and their ids in the Arcade Learning Environment."""

from ...basics.sentences import did_you_mean

_SLUGS = """
alien amidar assault asterix asteroids atlantis bank-heist battle-zone beam-rider berzerk
bowling boxing breakout centipede chopper-command crazy-climber defender demon-attack
double-dunk enduro fishing-derby freeway frostbite gopher gravitar hero ice-hockey jamesbond
kangaroo krull kung-fu-master montezuma-revenge ms-pacman name-this-game phoenix pitfall pong
private-eye qbert riverraid road-runner robotank seaquest skiing solaris space-invaders
star-gunner surround tennis time-pilot tutankham up-n-down venture video-pinball wizard-of-wor
yars-revenge zaxxon
"""
GAMES = tuple(_SLUGS.split())  # all arrays of scores in this package have this order


def ale_id(slug: str) -> str:
    """The id of a game: `ALE/MsPacman-v5` for `ms-pacman`; ValueError for other names."""
    if slug not in GAMES:
        raise ValueError(_unknown(slug))
    return f"ALE/{slug.title().replace('-', '')}-v5"


def game_slug(name: str) -> str:
    """The slug of a game, from its slug or its id; a ValueError suggests the most similar one."""
    slug = _BY_ID.get(name, name)
    if slug not in GAMES:
        raise ValueError(_unknown(name))
    return slug


_BY_ID = {ale_id(slug): slug for slug in GAMES}


def _unknown(name: str) -> str:
    return f"{name!r} is not one of the 57 games{did_you_mean(name, [*GAMES, *_BY_ID])}"
