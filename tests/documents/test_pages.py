"""A page's blocks do what they are there for: they run in turn, in one directory."""

import importlib
import importlib.util
import os
import shutil
from pathlib import Path

import jax
import numpy as np
import pytest
from document_blocks import EXECUTED, PAGES, TUTORIALS, blocks, command_lines, read, run_block

from retrax.datatypes import Row, Sample
from retrax.environments import make


def first_of_each_command():
    """These run as processes, as users run them; `--resume` is a command of its own."""
    found = {}
    for page in PAGES:
        for block in blocks(read(page)):
            for words in command_lines(block.text) if block.language == "bash" else ():
                found.setdefault((*words[:2], "--resume" in words), words)
    return list(found.values())


def cases():
    """The blocks of each page; those that need an engine of programs apart."""
    for page in PAGES:
        # The README's blocks that install are run by `.ci/run`.
        all_blocks = [block for block in blocks(read(page)) if "venv" not in block.text]
        for distributed in (False, True):
            found = [
                block
                for block in all_blocks
                if block.language in EXECUTED and ("distributed" in block.language) == distributed
            ]
            if found:
                marks = [pytest.mark.distributed] if distributed else []
                name = f"{page}-distributed" if distributed else page
                yield pytest.param(page, found, id=name, marks=marks)


# Libraries of how-tos: modules with the functions that the pages call, in place of those that are
# not installed. They check what they get.
STAND_INS = Path(__file__).parent / "stand_ins"
TRACKERS = ("mlflow", "trackio", "wandb")
NEEDED = {"ray.tune": "pyarrow"}  # what there must be, where it is another module
# Found before a page imports a stand-in, which would then count as installed.
MISSING = [
    name
    for name in (*TRACKERS, "optuna", "ray.tune")
    if not importlib.util.find_spec(NEEDED.get(name, name))
]


@pytest.fixture
def libraries(page, tmp_path, monkeypatch):
    """Makes stand-ins importable, and keeps trackers from the network."""
    flag = "jax_disable_most_optimizations"
    before = jax.config.read(flag)
    if page == "README.md":  # whose runs are long: they are compiled as a reader's
        jax.config.update(flag, False)
        monkeypatch.setenv(flag.upper(), "0")
    here = [str(tmp_path)]
    for name in MISSING:
        if f"import {name.rpartition('.')[2]}\n" not in read(page):
            continue
        if name in TRACKERS:
            shutil.copy(STAND_INS / "tracker.py", tmp_path / f"{name}.py")
        else:
            here.append(str(STAND_INS / name))
    for folder in here:
        monkeypatch.syspath_prepend(folder)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([*here, os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))
    yield
    jax.config.update(flag, before)


@pytest.mark.timeout(1800)  # many commands
@pytest.mark.usefixtures("libraries")
@pytest.mark.parametrize(("page", "found"), [*cases()])
def test_a_page_does_what_it_says(page, found, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    modules = [block for block in blocks(read(page)) if block.module]
    for block in [*modules, *found]:
        run_block(page, block, processes=first_of_each_command())
    logs = [path.read_text() for path in tmp_path.rglob("log.txt")]
    assert not [log for log in logs if "A logger of metrics failed" in log]


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=[pytest.mark.distributed] if "launch(" in read(page) else [])
        for page in TUTORIALS
    ],
)
def test_a_tutorial_is_one_program(page, tmp_path, monkeypatch):
    """It asserts its results."""
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "tutorial"}
    for block in blocks(read(page)):
        run_block(page, block, names)


def test_the_example_of_an_agent_learns_by_the_definition_of_dqn(tmp_path, monkeypatch):
    """Errors and the gradient of the last bias, in NumPy: a step, a termination, a time limit."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (module,) = (b for b in blocks(read("docs/how_to/agent.md")) if b.module == "dqn.py")
    run_block("docs/how_to/agent.md", module)
    dqn = importlib.import_module("dqn")
    spec, rng = make("catch", seed=0, num_envs=1).spec, np.random.default_rng(0)
    agent, size = dqn.make_agent(spec, dqn.Config(discount=0.8)), spec.observations.shape
    first, second = (agent.init(jax.random.key(k)) for k in range(2))
    learner = first._replace(target_params=second.params)
    discount, weights = np.array([1, 0, 1], np.float32), np.array([1, 0.5, 2], np.float32)
    seen, action = rng.random((3, 2, *size), np.float32), rng.integers(3, size=(3, 2))
    reward = np.stack([np.zeros(3), [0.5, -3.0, 0.1]], axis=1).astype(np.float32)
    discounts = np.stack([np.ones(3), discount], axis=1).astype(np.float32)
    is_first, is_last = np.zeros((2, 3, 2), bool)
    is_first[:, 0] = is_last[1:, 1] = True
    rows = Row(seen, reward, discounts, is_first, is_last, action.astype(np.int32), {})
    gradients, update = agent.gradients(learner, Sample(rows, weights, np.ones((3, 2), bool)))

    def values(params, seen):
        hidden = seen.reshape(3, -1)
        layers = list(params.values())
        for layer in layers[:-1]:
            hidden = np.maximum(hidden @ np.float64(layer["w"]) + layer["b"], 0)
        return hidden @ np.float64(layers[-1]["w"]) + layers[-1]["b"]

    q_tm1 = values(learner.params, rows.observation[:, 0])
    q_t = values(learner.target_params, rows.observation[:, 1])
    action = rows.action[:, 0]
    target = rows.reward[:, 1] + 0.8 * discount * q_t.max(axis=1)
    error = target - q_tm1[np.arange(3), action]
    np.testing.assert_allclose(update.priorities, np.abs(error), rtol=1e-4)
    wanted = np.zeros(3)
    np.add.at(wanted, action, -weights * np.clip(error, -1, 1) / 3)
    np.testing.assert_allclose(
        gradients[list(learner.params)[-1]]["b"], wanted, rtol=1e-4, atol=1e-6
    )
