"""Derived seeds: one stream for each purpose."""

from retrax.training.run_config import Purpose, derive_seed


def test_no_two_purposes_share_a_stream_and_seeds_are_repeatable():
    each = [
        (seed, purpose, *more)
        for seed in (0, 1)
        for purpose in Purpose.__members__.values()
        for more in ((), (1,), (8,), (1, 8))
    ]
    seeds = [derive_seed(*arguments) for arguments in each]
    assert len({*seeds, 0, 1}) == 2 + len(each)
    assert seeds == [derive_seed(*arguments) for arguments in each]
