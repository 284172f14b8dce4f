"""Simulated programs: fixed seeds, and those that found something."""

import pytest
from benchmark_modules import load

simulate = load("simulate")
Schedule = simulate.Schedule


@pytest.mark.once
def test_fixed_seeds():
    for schedule in map(Schedule.drawn, range(90)):
        if simulate.violation(schedule):
            fewest, sentence = simulate.shortest(schedule)
            pytest.fail(f"seed {schedule.seed}: {sentence}; {fewest.text()}")


@pytest.mark.parametrize(
    ("seed", "faults"),
    [
        (48, "3.67 lose replay/0"),  # updates whose priorities were lost were due again
        (21, "0.3226813 lose replay/0, 0.4243463 stop actor/1"),
        (1185, "1.62 kill counter/0"),  # a snapshot before the first report had no steps
        (9, "2.89 stop actor/0"),  # two rows of metrics.csv had the same steps
        (101, "4.15 stop replay/0"),  # so had they when a run was resumed at its end
        (2241, "1.1414 delay replay/0, 1.5505 host actor/0, 2.6546 slow evaluator/0"),  # late rows
        (114, "2.7442 delay replay/0"),  # only a mutation: the replay ended before the learner
    ],
)
def test_what_was_found(seed, faults):
    words = [fault.split() for fault in faults.split(", ")]
    found = tuple(simulate.Fault(float(at), *rest) for at, *rest in words)
    assert simulate.violation(Schedule(seed, found)) == ""


def test_a_schedule_decides_everything(monkeypatch, capsys):
    """As `simulate.py --seeds 1 --seed 7` prints it."""
    schedule = Schedule.drawn(7)
    assert Schedule.parse(schedule.text()) == schedule
    first, other = map(simulate.simulate, (schedule, Schedule.drawn(8)))
    monkeypatch.setattr("sys.argv", ["simulate.py", "--seeds", "1", "--seed", "7"])
    simulate.main()
    assert capsys.readouterr().out.endswith(f"hash {first.digest}\n")
    assert first != other


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ('{"version": 2}', "a schedule must have version 1, got"),
        ('{"version": 1, "seed": "x", "faults": []}', "a seed must be an integer of at least 0"),
        ('{"version": 1, "seed": 1, "faults": [[1, "burn", "actor/0"]]}', "one of kill, .* 'burn'"),
    ],
)
def test_bad_schedules_are_one_sentence(text, sentence):
    with pytest.raises(ValueError, match=sentence):
        Schedule.parse(text)
