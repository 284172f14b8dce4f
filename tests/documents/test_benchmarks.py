"""Every benchmark runs, at a size that takes seconds, and prints its figures."""

import json
import pathlib
import subprocess
import sys

import pytest

BENCHMARKS = pathlib.Path(__file__).parents[2] / "benchmarks"


def run(script, *arguments, cwd=None):
    command = [sys.executable, BENCHMARKS / script, *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, timeout=300)


# Commands, and below each what it prints.
RUNS = """\
acer_step.py --environment catch --updates 3 --num-envs 4
    update on resident data; training loop; share of the loop outside jitted calls
reactor_step.py --environment catch --updates 3 --keys 1000
    update on resident data; share of the target in it; naive scan / ours; set_priorities
agent57_step.py --batch 1 --trace 2 --scale 0.05 --memory 100 --repeats 1
    acting step; share of the look-up; update of 1 x 2
memory.py --repeats 1 --only small
    agent57 small; haiku; ours
d4pg_step.py --preset small --updates 3 --rows 1200
    updates/s in the training loop; loop / resident; drawing for a call; setting its priorities
parameter_server.py --agent acer --workers 1 --steps 900 --engine train --gradients 2
    the server alone; a gradient has; | one process |; | 1 |
acting.py acer --environment CartPole-v1 --steps 400 --repeats 1
    the library alone; behind our interface; an actor; cores   (limit: at least 0.5)
on_device.py acer --environment catch --steps 160 --repeats 1
    one process; steps per second of processor time; on the device / one process:
ppo.py --environment catch --seeds 1 --acer-steps 800 --ppo-steps 1024 --goal -2
    acer       800 steps; ppo      1,024 steps; steps/s, -2 after
replay_node.py --direct --rows 400 --seconds 0.05 --repeats 1
    sequences/s read; rows/s written; MB/s of frames read
priority_tree.py --keys 1000 --seconds 0.001
    1000 keys; probabilities
snapshots.py store flips memory --gigabytes 1e-4
    | ours | write |; | ours | read |; 100 of 100 flipped bits; 700 snapshots
abuse.py two_at_once --count 1
    | 0 and 2; | 1 |
""".splitlines()


@pytest.mark.parametrize(("arguments", "printed"), [*zip(RUNS[::2], RUNS[1::2], strict=True)])
def test_benchmark_runs(arguments, printed, tmp_path):
    result = run(*arguments.split(), cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    for line in printed.strip().split("; "):
        assert line in result.stdout


def write_program(path, text):
    path.write_text(text)
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    ("command", "needs", "parameters"),
    [
        (("agent57_beside_torch.py", "--batch", "1", "--torch"), "torch and numpy", "agent57"),
        (("d4pg_beside_sbx.py", "--sbx"), "sbx-rl", "ddpg"),
    ],
)
def test_stand_ins_are_of_one_size_with_ours(command, needs, parameters, tmp_path):
    """Without its library a stand-in ends; one of another size is refused."""
    count = {"agent57": agent57_parameters, "ddpg": ddpg_parameters}[parameters]()
    one = f"#!{sys.executable}\nprint('{{\"parameters\": 1}}')\n"
    other = write_program(tmp_path / "python", one)
    silent = write_program(tmp_path / "silent", "#!/bin/sh\n")
    for python, sentence in (
        (silent, f"The stand-in ended: does {silent} have {needs}?"),
        (other, f"{count} parameters here, 1 in the stand-in."),
    ):
        result = run(*command, python)
        assert (result.returncode, result.stdout) == (1, "")
        assert result.stderr.splitlines()[-1] == sentence


def test_d4pg_beside_sbx_compares_medians(tmp_path):
    """With a stand-in that takes 1,000 seconds, and the parameters of SBX's networks."""
    about = {"parameters": ddpg_parameters(), "jax": "1", "sbx": "2"}
    slow = f"#!{sys.executable}\nprint('{json.dumps(about)}', *4 * ['1000.0'], sep='\\n')\n"
    python = write_program(tmp_path / "python", slow + "input()\n" * 4)
    result = run("d4pg_beside_sbx.py", "--sbx", python, "--updates", "2", "--per-call", "2")
    assert (result.returncode, result.stderr) == (0, "")
    assert "stand-in   1000000.00 ms an update" in result.stdout
    [ratio] = [x for x in result.stdout.splitlines() if x.startswith("SBX / retrax")]
    assert ratio.endswith("(limit 1.4: ok)")
    assert float(ratio.split()[3]) > 1000
    assert "the products alone" in result.stdout


def ddpg_parameters():
    """Of SBX's policy and critic, by hand: 17 observations, 6 actions, layers of 400 and 300."""
    shared = 401 * 300
    return (18 * 400 + shared + 301 * 6) + (24 * 400 + shared + 301)


def agent57_parameters():
    """Of two value networks, the embedding, the classifier and the predictor, by hand."""
    torso = (8 * 8 * 1 + 1) * 32 + (4 * 4 * 32 + 1) * 64 + (3 * 3 * 64 + 1) * 64
    features = 7 * 7 * 64  # 84 -> 20 -> 9 -> 7
    lstm = (512 + 18 + 2 + 32 + 512 + 1) * 4 * 512
    heads = 2 * 513 * 512 + 513 * (1 + 18)
    value = torso + (features + 1) * 512 + lstm + heads
    embedding, predictor = torso + (features + 1) * 32, torso + (features + 1) * 128
    return 2 * value + embedding + predictor + 65 * 128 + 129 * 18


# A wrong line that its test does not find.
SURVIVOR = {
    "name": "counts_steps_before_learning",
    "file": "replay/schedule.py",
    "old": "acted = self.steps - self.learning_since",
    "new": "acted = self.steps",
    "tests": ["tests/replay/test_schedule.py::test_a_restored_schedule_continues_identically"],
}


def test_a_mutation_is_killed():
    result = run("mutations.py", "schedule_counts_steps_before_learning")
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.splitlines()[-1] == "1 of 1 killed"


def test_mutations_that_survive_or_do_not_apply_are_failures(tmp_path):
    gone = {**SURVIVOR, "name": "gone", "old": "a line that is not there"}
    (tmp_path / "some.json").write_text(json.dumps([SURVIVOR, gone]))
    words = ("mutations.py", "--lists", tmp_path, "--jobs", "2", "--results", tmp_path / "done.csv")
    result = run(*words)
    assert (result.returncode, result.stderr) == (1, "")
    assert [" ".join(line.split()) for line in result.stdout.splitlines()] == [
        "survived some: counts_steps_before_learning",
        "does not apply some: gone",
        "0 of 2 killed",
    ]
    again = run(*words)
    assert (again.returncode, again.stdout) == (1, "0 of 2 killed\n"), "nothing is run again"
