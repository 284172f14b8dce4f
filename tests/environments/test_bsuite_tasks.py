"""bsuite's environments: its own ids, seeds, records and states."""

import numpy as np
import pytest

from retrax.environments import factory
from retrax.environments.arrival import integer_seeds


@pytest.fixture(scope="module")
def bsuite():
    return pytest.importorskip("bsuite.bsuite")


def test_the_record_is_that_of_bsuite(bsuite):
    """The rows that bsuite itself logs of the same actions, at its own episodes."""
    from bsuite.utils.wrappers import Logging

    environment = factory.make("bsuite:catch/0", num_envs=2, seed=1)
    environment.reset()
    theirs = bsuite.load("catch", {"seed": 0})
    theirs._rng.seed(int(integer_seeds(1, 2)[1]))
    rows = []
    theirs = Logging(theirs, type("Logger", (), {"write": lambda self, row: rows.append(row)})())
    theirs.reset()
    generator = np.random.default_rng(0)
    for _ in range(150):
        actions = generator.integers(3, size=2).astype(np.int32)
        environment.step(actions)
        theirs.step(int(actions[1]))
    assert environment.state()["records"][1] == rows
    assert [row["episode"] for row in rows] == [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14]


def test_a_sweep_of_one_seed_has_twenty_different_environments(bsuite):
    """As in bsuite, whose own seed of ids that differ in nothing else is None."""
    each = (factory.make(f"bsuite:cartpole/{number}", seed=3) for number in range(20))
    assert len({environment.reset().observation.tobytes() for environment in each}) == 20


@pytest.mark.parametrize(
    ("id", "sentence"),
    [
        ("bsuite:catch/20", r"^bsuite has no id 'catch/20' \(did you mean catch/2\?\)\.$"),
        ("bsuite:catch/0,seeds=3", r"bsuite:catch/0.*seeds"),
    ],
)
def test_unknown_ids_are_refused(bsuite, id, sentence):
    with pytest.raises(ValueError, match=sentence):
        factory.make(id)
