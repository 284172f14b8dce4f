"""The family of policies: intrinsic weight beta_j and discount gamma_j of each arm.

`N` denotes the number of arms, at least 2 (not checked), j one of them.
"""

import numpy as np

# The sigmoid of both families runs over +- this many units (NGU, appendix A; Agent57, appendix A).
_SIGMOID_RANGE = 10.0
_PAPER_ARMS, _PAPER_BRANCH = 32, 7  # gamma_7 of 32 is where its sigmoid part ends


def intrinsic_weights(num_arms: int, largest: float) -> np.ndarray:
    """beta_j, the share of the intrinsic value in each arm's behaviour (NGU, appendix A), `[N]`.

    0 for j = 0, beta for j = N - 1, and beta sigmoid(10 (2j - (N - 2)) / (N - 2)) between.
    """
    betas = [0.0]
    for j in range(1, num_arms - 1):
        argument = _SIGMOID_RANGE * (2 * j - (num_arms - 2)) / (num_arms - 2)
        betas.append(largest * _sigmoid(argument))
    return np.array([*betas, largest], np.float32)


def agent57_discounts(num_arms: int, high: float, middle: float, low: float) -> np.ndarray:
    """gamma_j `[N]`, from far-sighted (j = 0) to short-sighted (j = N - 1) (Agent57, appendix A).

    `high` for j = 0; from there to `middle` at j = 7 by a sigmoid; from `middle` at j = 8 to `low`
    at j = 31 geometrically in 1 - gamma. As printed, the sigmoid part rises and then drops, and the
    geometric part leaves the range. Both are reversed here, so that gamma never rises. For N other
    than 32 the length of the sigmoid part is scaled with N (our choice).
    """
    branch = max(1, _PAPER_BRANCH * num_arms // _PAPER_ARMS)
    discounts = [high]
    for j in range(1, branch):
        argument = _SIGMOID_RANGE * (2 * j - (branch - 1)) / (branch - 1)
        discounts.append(high + (middle - high) * _sigmoid(argument))
    discounts += [middle] * (num_arms > 2)
    count = num_arms - len(discounts)
    fractions = np.linspace(0.0, 1.0, count) if count != 1 else np.ones(1)
    return np.array([*discounts, *_geometric(fractions, middle, low)], np.float32)


def ngu_discounts(num_arms: int, high: float, low: float) -> np.ndarray:
    """gamma_j `[N]` of NGU (appendix A): from `high` to `low`, geometrically in 1 - gamma."""
    return _geometric(np.linspace(0.0, 1.0, num_arms), high, low).astype(np.float32)


def _geometric(fractions: np.ndarray, start: float, end: float) -> np.ndarray:
    return 1.0 - np.exp((1 - fractions) * np.log1p(-start) + fractions * np.log1p(-end))


def _sigmoid(x: float) -> float:
    return float(1.0 / (1.0 + np.exp(-x)))
