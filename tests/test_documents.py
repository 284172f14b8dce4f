"""What can be said of the documents without running them; `pytest -m documents` does.

What they say about the package, their commands, links, and figures and tables made by scripts.
"""

import re
from pathlib import Path

import pytest
from benchmark_modules import load
from document_blocks import EXECUTED, PAGES, ROOT, TUTORIALS, blocks, command_lines, read
from fresh_python import run_python

from retrax.agents.entry import agent_names, find_agent
from retrax.command import main, parsing
from retrax.command.train import TrainArguments, parse_run
from retrax.launchpad_programs.launch import LaunchArguments
from retrax.training.assembly import spec_of

# All but the results, which keep the commands of their commits.
ALL_PAGES = sorted(
    path.relative_to(ROOT).as_posix()
    for pattern in ("*.md", "*/README.md", "*/*/README.md", "docs/**/*.md")
    for path in {*ROOT.glob(pattern)}
    if "results" not in (parts := path.relative_to(ROOT).parts) and not parts[0].startswith(".")
)
# Pages whose blocks are executed by a test of their subject.
ELSEWHERE = {
    "agents/reactor/README.md": "tests/agents/test_reactor.py",
    "docs/zoo.md": "tests/test_zoo.py",
    "launchpad_programs/README.md": "tests/launchpad_programs/test_program.py",
}
OWN_AGENTS = {path.parent.name for path in (ROOT / "agents").glob("*/config.py")}
figures, preset_tables = (load(name, ROOT / "docs") for name in ("figures", "preset_tables"))


def row(page, name):
    """The cells of a table's row, after its name."""
    [line] = re.findall(rf"^\| {re.escape(name)} \| (.*) \|$", page, re.MULTILINE)
    return line.split(" | ")


@pytest.fixture(scope="module")
def comparison():
    return read("docs/comparison.md")


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
    project = read("pyproject.toml")
    [versions], [license_] = row(comparison, "Python"), row(comparison, "license")
    assert versions.split(", ") == re.findall(r'"Programming Language :: Python :: (.*)"', project)
    assert f'license = "{license_}"' in project
    [programs] = row(comparison, "Python of programs of many processes")
    assert programs == f"Ray: {versions}; Launchpad: 3.10 on Linux"
    assert "python_version < '3.11' and sys_platform == 'linux'" in project


def test_tables_have_cells_of_equal_number_and_ask_all_for_the_same_agents(comparison):
    tables = re.findall(r"(?:^\|.*\|\n)+", comparison, re.MULTILINE)
    assert [{line.count("|") for line in table.splitlines()} for table in tables] == [{3}, {9}, {6}]
    names = [set(re.findall(r"^\| (\w.*?) \|", table, re.MULTILINE)) for table in tables[1:]]
    assert names[0] - names[1] == {"distributional Retrace"}


@pytest.mark.parametrize("name", figures.FIGURES)
def test_figures_are_those_that_the_script_draws(name):
    assert read(f"docs/{name}") == figures.svg(*figures.FIGURES[name]), "run python docs/figures.py"


def test_all_agents_of_the_package_have_a_table_of_all_fields():
    assert set(preset_tables.AGENTS) == OWN_AGENTS
    config = find_agent("reactor").Config
    assert list(preset_tables.field_docstrings(config)) == list(config.__dataclass_fields__)


@pytest.mark.parametrize("name", preset_tables.AGENTS)
def test_the_readme_has_the_generated_table(name):
    text = preset_tables.readme_of(name).read_text(encoding="utf-8")
    written = preset_tables.with_table(text, find_agent(name))
    assert text == written, "run python docs/preset_tables.py"


def test_every_definition_that_a_page_links_to_exists():
    links = [
        (page, *link)
        for page in [*ROOT.glob("docs/*.md"), *ROOT.glob("agents/*/README.md")]
        for link in re.findall(r"\[`(\w+)`\]\(([^)#]+\.py)#(\w+)\)", page.read_text("utf-8"))
    ]
    assert len(links) > 50
    for page, name, path, anchor in links:
        source = (page.parent / path).read_text(encoding="utf-8")
        assert name == anchor
        assert re.search(rf"^ *(def|class) {name}\b", source, re.MULTILINE), f"{page.name}: {name}"


def test_set_up_is_what_we_promise_and_continuous_integration_runs_it():
    bash = [block for block in blocks(read("README.md")) if block.language == "bash"]
    assert bash[0].text.splitlines() == [
        "python3 -m venv .venv && . .venv/bin/activate",
        "pip install -e '.[all,dev]'",
        "retrax train reactor --environment catch",
        "pytest",
    ]
    assert "pip install -r requirements.txt\nretrax launch" in bash[3].text
    script = read(".ci/run")
    assert (script.count("readme 0"), script.count("readme 3")) == (3, 1)
    assert "pip install -r requirements-3.12.txt" in script
    for number, block in enumerate(bash):
        assert run_python(ROOT / ".ci" / "readme_commands.py", number) == block.text


def test_the_readme_is_short_and_shows_a_learning_curve():
    text = read("README.md")
    assert len(text.splitlines()) <= 150
    assert len(re.findall(r"^\|", text, re.MULTILINE)) <= 2 + 10  # rows of tables
    commands = [line for b in blocks(text) if "bash" in b.language for line in b.text.splitlines()]
    assert max(map(len, commands)) <= 80
    assert re.search(r"!\[[^]]+\]\(docs/results/\S+\.png\)", text[:1000])


def test_links_lead_somewhere():
    assert len(ALL_PAGES) > 30
    for page in [*ALL_PAGES, *(str(path) for path in ROOT.glob("docs/results/**/*.md"))]:
        for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", read(page)):
            assert ((ROOT / page).parent / link).exists(), f"{page}: {link}"


def test_every_block_is_executed_by_a_test():
    with_blocks = {
        page
        for page in ALL_PAGES
        if any(found.language in EXECUTED for found in blocks(read(page)))
    }
    assert with_blocks == {*PAGES, *TUTORIALS, *ELSEWHERE}
    for page, test in ELSEWHERE.items():
        assert page in read(test), page
    for page in with_blocks:  # what is indented is not found
        assert not re.search(r"^ +```(bash|python)", read(page), re.MULTILINE), page


def test_lists_of_pages_are_complete():
    site, tutorials = read("mkdocs.yml"), read("docs/tutorials/README.md")
    assert [page for page in PAGES[3:] if page not in site] == []
    assert [page for page in TUTORIALS if f"]({Path(page).name})" not in tutorials] == []
    assert [page for page in TUTORIALS if "\nassert " not in read(page)] == []


class Understood(BaseException):
    """The arguments are parsed; what follows is work."""


def parse_command(arguments, monkeypatch):
    """Parses the arguments of `retrax` as the command does, and does nothing else."""
    command, *words = arguments
    if form := {"train": TrainArguments, "launch": LaunchArguments}.get(command):
        if "--resume" in words:  # of a directory that is not there
            start = form(agent="", environment="")
            _, unknown = parsing.parse_known(start, words, prog=command)
            assert unknown == []
        else:
            parse_run(form, words, prog=f"retrax {command}", make_spec=spec_of)
        return
    understand = parsing.tyro.cli

    def stop(*arguments, **options):
        understand(*arguments, **options)
        raise Understood

    with monkeypatch.context() as patch:
        patch.setattr(parsing.tyro, "cli", stop)
        with pytest.raises(Understood):
            main.main(arguments)


def commands_of(text):
    """The arguments of every command line of retrax in a page."""
    found = [block.text for block in blocks(text) if block.language != "python"]
    found += re.findall(r"^ {4}(retrax .*\n)", text, re.MULTILINE)
    for words in command_lines("".join(found)):
        words = words[words[0] == "exec" :]
        if words[0] == "retrax":
            yield words[1:]
        elif words[:3] == ["python", "-m", "retrax.launchpad_programs"]:
            yield ["launch", *words[3:]]


PAGES_WITH_COMMANDS = [page for page in ALL_PAGES if [*commands_of(read(page))]]


@pytest.mark.parametrize("page", PAGES_WITH_COMMANDS)
def test_commands_are_understood(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    for block in blocks(read(page)):
        if block.module:
            Path(block.module).write_text(block.text)
    for arguments in commands_of(read(page)):
        parse_command(arguments, monkeypatch)
