"""Derived seeds: one stream for each purpose."""

from retrax.training.seeds import Purpose, derive_seed


def test_no_two_purposes_share_a_stream():
    purposes = list(Purpose.__members__.values())
    assert len({int(purpose) for purpose in purposes}) == len(Purpose.__members__)
    seeds = {
        derive_seed(seed, purpose, *more)
        for seed in (0, 1)
        for purpose in purposes
        for more in ((), (1,), (8,), (1, 8))
    }
    assert len(seeds | {0, 1}) == 2 + 2 * len(purposes) * 4


def test_seeds_are_repeatable():
    assert derive_seed(5, Purpose.EVALUATION) == derive_seed(5, Purpose.EVALUATION)
