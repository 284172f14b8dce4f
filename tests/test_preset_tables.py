"""Tables of presets in the agents' READMEs are those that the configs give."""

import pathlib

import pytest
from benchmark_modules import load

from retrax.agents.entry import agent_names, find_agent
from retrax.agents.reactor import Config

ROOT = pathlib.Path(__file__).parents[1]
preset_tables = load("preset_tables", ROOT / "docs")


def test_all_agents_of_the_package_have_a_table_of_all_fields():
    folders = {path.parent.name for path in (ROOT / "agents").glob("*/config.py")}
    assert set(preset_tables.AGENTS) == folders <= set(agent_names())
    docstrings = preset_tables.field_docstrings(Config)
    assert list(docstrings) == list(Config.__dataclass_fields__)


@pytest.mark.parametrize("name", preset_tables.AGENTS)
def test_the_readme_has_the_generated_table(name):
    text = preset_tables.readme_of(name).read_text(encoding="utf-8")
    assert text == preset_tables.with_table(text, find_agent(name)), (
        "run python docs/preset_tables.py"
    )


def test_rows_by_hand():
    lines = preset_tables.table(find_agent("reactor")).splitlines()
    for start in (
        "| field | `paper` | `paper_workers` | `small` | `small_short` | meaning, and the paper's",
        "| `discount` | 0.99 | 0.99 | 0.99 | 0.99 | Discount factor gamma. Unspecified in",
        "| `learning_rate` | 5e-5 | 5e-5 | 0.001 | 0.001 | Adam's learning rate. Paper: 5e-5",
        "| `replay.batch_size` | 4 | 4 | 16 | 16 |",
    ):
        assert any(line.startswith(start) for line in lines), start
