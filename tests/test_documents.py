"""What the documents say about the package itself, and the figures that scripts draw."""

import importlib.util
import json
import re
from pathlib import Path

import pytest

from retrax.agents.entry import agent_names, find_agent
from retrax.experiments.commands import main

ROOT = Path(__file__).parents[1]
OWN_AGENTS = {path.parent.name for path in (ROOT / "agents").glob("*/config.py")}
_spec = importlib.util.spec_from_file_location("figures", ROOT / "docs" / "figures.py")
figures = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(figures)


def row(page, name):
    """The cells of a table's row, after its name."""
    [line] = re.findall(rf"^\| {re.escape(name)} \| (.*) \|$", page, re.MULTILINE)
    return line.split(" | ")


@pytest.fixture(scope="module")
def comparison():
    return (ROOT / "docs" / "comparison.md").read_text(encoding="utf-8")


def test_our_agents_and_commands(comparison):
    [agents], [commands] = row(comparison, "agents"), row(comparison, "commands")
    assert set(agents.split(", ")) == OWN_AGENTS <= set(agent_names())
    assert commands.split(", ") == list(main._COMMANDS)
    for agent in OWN_AGENTS:
        cells = re.findall(rf"^\| {agent} \| (.*)$", comparison, re.MULTILINE | re.IGNORECASE)[0]
        assert cells.startswith("yes"), agent


@pytest.mark.parametrize("name", sorted(OWN_AGENTS))
def test_fields_that_a_readme_explains_exist(name):
    readme = (ROOT / "agents" / name / "README.md").read_text(encoding="utf-8")
    named = re.findall(r"\(`(\w+)`; ", readme)
    assert set(named) <= set(find_agent(name).Config.__dataclass_fields__)
    assert named or name == "agent57"


def test_our_versions_of_python_and_license(comparison):
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    [versions], [license_] = row(comparison, "Python"), row(comparison, "license")
    assert versions.split(", ") == re.findall(r'"Programming Language :: Python :: (.*)"', project)
    assert f'license = "{license_}"' in project
    [programs] = row(comparison, "Python of programs of many processes")
    assert programs == "3.10 on Linux"
    assert "python_version < '3.11' and sys_platform == 'linux'" in project


def test_tables_have_cells_of_equal_number(comparison):
    tables = re.findall(r"(?:^\|.*\|\n)+", comparison, re.MULTILINE)
    bars = [{line.count("|") for line in table.splitlines()} for table in tables]
    assert bars == [{3}, {9}, {6}]


def test_other_libraries_are_asked_for_the_same_agents(comparison):
    _, first, second = re.findall(r"(?:^\|.*\|\n)+", comparison, re.MULTILINE)
    names = [re.findall(r"^\| (\w.*?) \|", table, re.MULTILINE) for table in (first, second)]
    assert set(names[0]) - set(names[1]) == {"distributional Retrace"}


@pytest.mark.parametrize("name", figures.FIGURES)
def test_figures_are_those_that_the_script_draws(name):
    drawn = (ROOT / "docs" / name).read_text(encoding="utf-8")
    assert drawn == figures.svg(*figures.FIGURES[name]), "run python docs/figures.py"


def test_every_definition_that_a_page_links_to_exists():
    links = [
        (page, *link)
        for page in ROOT.glob("docs/*.md")
        for link in re.findall(r"\[`(\w+)`\]\(([^)#]+\.py)#(\w+)\)", page.read_text("utf-8"))
    ]
    assert len(links) > 50
    for page, name, path, anchor in links:
        source = (page.parent / path).read_text(encoding="utf-8")
        assert name == anchor
        assert re.search(rf"^(def|class) {name}\b", source, re.MULTILINE), f"{page.name}: {name}"


def test_results_name_no_folder_of_the_machine_that_made_them():
    """`search_path` of a run's config.json, which is absolute, is replaced by "."."""
    configs = list((ROOT / "docs" / "results").rglob("config.json"))
    assert len(configs) > 100
    wrong = [
        path for path in configs if json.loads(path.read_text()).get("search_path", ".") != "."
    ]
    assert not wrong
