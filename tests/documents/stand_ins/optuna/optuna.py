"""Optuna: the third trial is pruned at its first report."""

import contextlib
import types

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
        self.reported.append((value, step))

    def should_prune(self):
        return self.number == 2


class Study:
    def optimize(self, objective, n_trials):
        found = {}
        for number in range(n_trials):
            trial = Trial(number)
            with contextlib.suppress(TrialPruned):
                value = objective(trial)
                assert value == trial.reported[-1][0]
                found[value] = trial.params
            assert [step for _, step in trial.reported] == [1, 2][: 2 - trial.should_prune()]
        assert n_trials == 3
        self.best_params = found[max(found)]


def create_study(*, direction, pruner):
    assert (direction, pruner) == ("maximize", 1)
    return Study()
