"""Simulated programs: fixed seeds, and those that found something."""

import pytest
from benchmark_modules import load

simulate = load("simulate")
Schedule = simulate.Schedule


@pytest.mark.once
def test_fixed_seeds():
    simulate.check(map(Schedule.drawn, [*range(40), 54, 55, 76, 81, 104]))  # for the mutations


def test_seeds_of_this_commit():
    simulate.check(map(Schedule.drawn, simulate.seeds_of_commit(20)))


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_ten_thousand_seeds():
    simulate.check(map(Schedule.drawn, range(1000, 11000)))


def test_a_violation_is_shown_again_by_what_is_printed(monkeypatch):
    monkeypatch.setattr(simulate, "STOP_SECONDS", -1.0)
    text = r'seed 12: it ended .* after the signal.*"stop".*simulate.py --seeds 1 --seed 12$'
    with pytest.raises(simulate.Violation, match=f"(?s)^{text}"):
        simulate.check([Schedule.drawn(12)])


@pytest.mark.parametrize(
    ("seed", "faults"),
    [
        (374, "2.01 lose replay/0"),  # updates whose priorities were lost were due again
        (21, "0.3226813 lose replay/0, 0.4243463 stop actor/1"),
        (1185, "1.62 kill counter/0"),  # a snapshot before the first report had no steps
        (101, "4.15 stop replay/0"),  # two rows of metrics.csv had the same steps
        (9467, "1.26437 host counter/0, 3.5446 kill counter/0, 3.94623 stop learner/0"),  # again
        (498, "4.15 kill learner/0"),  # updates, although the run was called finished
        (2238, "0.2 slow learner/0, 3.37 cut learner/0"),  # those of rows that were not sent yet
        (10635, "3.94631 kill replay/0, 4.00024 stop learner/0"),  # those since the last report
        (2241, "1.1414 delay replay/0, 1.5505 host actor/0, 2.6546 slow evaluator/0"),  # late rows
        (4262, "1.21 slow learner/0, 1.41 full learner/0, 4.02 kill replay/0, 4.63 kill actor/0"),
        (7, "1 slow worker/0, 1.1 slow worker/1, 71.45 kill parameter_server/0"),  # lost at the end
        (114, "2.7442 delay replay/0"),  # from here on, mutations alone: it ends before the learner
        (63, "1.39 kill counter/0"),  # it dies early
        (271, "1.73 slow worker/1, 2.76 kill counter/0, 3.8 kill parameter_server/0"),
        (943, "3.02 delay parameter_server/0, 3.32 stop worker/0"),  # a snapshot lacks a step
    ],
)
def test_what_was_found(seed, faults):
    assert simulate.violation(Schedule.written(seed, faults)) == ""


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
        ("[]", "a schedule must have version 1, got"),
        ('{"version": 2}', "a schedule must have version 1, got"),
        ('{"version": 1, "seed": "x", "faults": []}', "a seed must be an integer of at least 0"),
        ('{"version": 1, "seed": 1, "faults": [[1, "burn", "worker/0"]]}', "of kill, .* 'burn'"),
        ('{"version": 1, "seed": 1, "faults": [[1, "kill", "actor/0"]]}', "worker/1, .* 'actor/0'"),
        ('{"version": 1, "seed": 1, "faults": [["1", "kill", "worker/0"]]}', r"\[seconds, kind"),
    ],
)
def test_bad_schedules_are_one_sentence(text, sentence):
    with pytest.raises(ValueError, match=sentence):
        Schedule.parse(text)
