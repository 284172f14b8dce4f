"""Optuna: the third trial is pruned at its second report."""

import types

import numpy as np

pruners = types.SimpleNamespace(MedianPruner=lambda n_startup_trials: n_startup_trials)


class TrialPruned(Exception):  # noqa: N818
    pass


class Trial:
    def __init__(self, number):
        self.number, self.reported, self.params = number, [], {}

    def suggest_float(self, name, low, high, *, log):
        assert log
        self.params[name] = low * (high / low) ** (self.number / 2)
        return self.params[name]

    def report(self, value, step):
        self.reported.append((step, value))

    def should_prune(self):
        return self.number == 2 and len(self.reported) == 2


class Study:
    def optimize(self, objective, n_trials):
        found = {}
        for number in range(n_trials):
            trial = Trial(number)
            try:
                value = objective(trial)
            except TrialPruned:
                assert [step for step, _ in trial.reported] == [80, 160]
            else:
                assert [step for step, _ in trial.reported] == [80, 160, 240]
                assert np.float32(value) == max(value for _, value in trial.reported)
                found[value] = trial.params
        assert n_trials == 3
        self.best_params = found[max(found)]


def create_study(*, direction, pruner):
    assert (direction, pruner) == ("maximize", 1)
    return Study()
