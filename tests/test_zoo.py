"""The agents in docs/zoo: each plays its environment as its page says."""

import contextlib
import re

import numpy as np
import pytest
from benchmark_modules import load
from document_blocks import ROOT, blocks, read, run_block

from retrax import environments

PAGE = read("docs/zoo.md")
AGENTS = sorted(path.parent for path in (ROOT / "docs" / "zoo").glob("*/agent.json"))
EPISODES = 10


def returns(agent):
    with contextlib.closing(
        environments.make(agent.description["environment"], seed=1, num_envs=1)
    ) as environment:
        timestep, state, found = environment.reset(), agent.begin(), [0.0]
        while len(found) <= EPISODES:
            decision = agent.act(state, *(field[0] for field in timestep))
            state = decision.state
            timestep = environment.step(np.asarray(decision.action)[None])
            found[-1] += float(timestep.reward[0])
            if timestep.step_type[0] == 2:
                found.append(0.0)
    return found[:-1]


@pytest.mark.parametrize("folder", AGENTS, ids=lambda folder: folder.name)
def test_it_plays_as_its_page_says(folder):
    [line] = [line for line in PAGE.splitlines() if f"zoo/{folder.name}/agent.json" in line]
    [wanted] = re.findall(r"\| (-?[\d.]+) \(", line)
    assert np.mean(returns(load("act", folder).ExportedAgent())) == pytest.approx(float(wanted))


def test_they_are_small():
    files = [path for path in (ROOT / "docs" / "zoo").rglob("*") if path.suffix != ".pyc"]
    assert AGENTS
    functions = [path for path in files if path.suffix == ".stablehlo"]
    assert not [path for path in functions if b".py" in path.read_bytes()]  # nor paths of a machine
    assert sum(path.stat().st_size for path in files if path.is_file()) < 300_000


def test_the_code_of_the_page_plays_an_episode(monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    monkeypatch.syspath_prepend(str(ROOT))
    [block] = [block for block in blocks(PAGE) if block.language == "python"]
    run_block("docs/zoo.md", block)
    assert capsys.readouterr().out == "1.0\n"
