"""Operations per second of the contextual priority tree, compared with plain NumPy.

The tree has as many slots as a store gives to these keys. The baseline draws in proportion to an
array of priorities with `cumsum` and `searchsorted`, which read every priority for each batch.
"""

import argparse
import time
from collections.abc import Callable, Sequence

import numpy as np

from retrax.replay import ReplayConfig
from retrax.replay.selectors import TreeSelector, slots_per_environment

BATCHES = (1, 4, 64, 4096)


def calls_per_second(function: Callable[[], object], seconds: float) -> float:
    """Calls of `function` per second, measured for about `seconds` after one warm-up call."""
    function()
    calls, start = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - start) < seconds or not calls:
        function()
        calls += 1
    return calls / elapsed


def operations(
    tree: TreeSelector, rng: np.random.Generator, keys: int, n: int
) -> dict[str, Callable[[], object]]:
    """One closure for each operation, with different slots in each call."""
    batches = rng.integers(keys, size=(64, n))
    priorities = rng.random(n)
    turn = iter(range(10**9))

    def slots() -> np.ndarray:
        return batches[next(turn) % len(batches)]

    return {
        "insert": lambda: tree.insert(slots()),
        "set_priorities": lambda: tree.set_priorities(slots(), priorities),
        "sample": lambda: tree.sample(rng, n),
        "probabilities": lambda: tree.probabilities(slots()),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=float, default=0.4, help="for each measurement")
    parser.add_argument("--batches", type=int, nargs="+", default=BATCHES, help="keys in a call")
    options = parser.parse_args(arguments)
    rng = np.random.default_rng(0)
    priorities = rng.random(options.keys)
    tree = TreeSelector(
        ReplayConfig(selector="contextual", uniform_fraction=0.0),
        slots_per_environment("contextual", options.keys),
    )
    tree.insert(np.arange(options.keys))
    tree.set_priorities(np.arange(options.keys), priorities)

    def baseline(n: int) -> np.ndarray:
        masses = np.cumsum(priorities)
        return np.searchsorted(masses, rng.random(n) * masses[-1], side="right")

    print(f"{options.keys} keys; keys per second; ratio to sampling by cumsum and searchsorted")
    for n in options.batches:
        plain = n * calls_per_second(lambda n=n: baseline(n), options.seconds)
        print(f"batch {n:>4}  {'cumsum':<16}{plain:>12.0f}")
        for name, function in operations(tree, rng, options.keys, n).items():
            rate = n * calls_per_second(function, options.seconds)
            print(f"batch {n:>4}  {name:<16}{rate:>12.0f}  x {rate / plain:.1f}")


if __name__ == "__main__":
    main()
