import functools
import re
import sys

import jax
import numpy as np
import pytest
from benchmark_modules import install
from dm_env import specs
from fresh_python import run_python
from source_files import PROJECT

from retrax.agents import AgentEntry, agent_names, find_agent
from retrax.datatypes import EnvironmentSpec

ENTRY = """
from retrax.agents import AgentEntry

def make_agent(environment_spec, config, *, network="default"):
    return (environment_spec, config, network)

ENTRY = AgentEntry(
    name="mine", make_agent=make_agent, Config=dict, presets={"default": dict}, replay=lambda c: c
)
OTHER = ENTRY.override("other", network="my own")
NUMBER = 3
FUNCTION = make_agent
"""

install = functools.partial(install, group="retrax.agents")


@pytest.fixture
def site(own_modules, monkeypatch):
    """A directory on the Python path, like that of installed packages."""
    directory = own_modules / "site"
    directory.mkdir()
    monkeypatch.syspath_prepend(directory)
    return directory


def write(directory, name, text=ENTRY):
    directory.mkdir(exist_ok=True, parents=True)
    (directory / f"{name}.py").write_text(text)
    return name


def refused(name, message, **options):
    with pytest.raises(ValueError, match=message) as caught:
        find_agent(name, **options)
    text = str(caught.value)
    assert "\n" not in text
    assert text.endswith(".")


def test_registered_agents_are_found_by_name_and_only_they_are_imported(site):
    write(site, "entry_test_one")
    install(site, "one", entry_test_x="entry_test_one:OTHER", entry_test_y="entry_test_absent:Y")
    assert {"entry_test_x", "entry_test_y"} <= set(agent_names())
    assert agent_names() == sorted(agent_names())
    assert "entry_test_one" not in sys.modules
    entry = find_agent("entry_test_x")
    assert isinstance(entry, AgentEntry)
    assert entry.make_agent("spec", "config") == ("spec", "config", "my own")


def test_an_attribute_of_a_module_in_the_current_directory(own_modules):
    write(own_modules, "entry_test_here")
    assert find_agent("entry_test_here:ENTRY").name == "mine"
    assert sys.path[0] == str(own_modules)
    path = list(sys.path)
    assert find_agent("entry_test_here:OTHER").name == "other"
    assert sys.path == path


def test_an_attribute_of_a_package_in_another_directory(own_modules):
    write(own_modules / "elsewhere" / "entry_test_package", "agent")
    write(own_modules / "elsewhere" / "entry_test_package", "__init__", "")
    elsewhere = own_modules / "elsewhere"
    assert find_agent("entry_test_package.agent:ENTRY", search_path=elsewhere).name == "mine"


def test_names_that_name_no_agent_or_two_are_refused(site):
    """With the nearest name and the list, both distributions, or the one that is broken."""
    install(site, "one", entry_test_x="entry_test_one:OTHER", entry_test_other="a:C")
    refused(
        "entry_test_z",
        r"unknown agent 'entry_test_z' \(did you mean entry_test_x\?\); registered are .*"
        r"entry_test_other, entry_test_x.*package\.module:NAME",
    )
    refused("!", r"unknown agent '!'; registered are")
    refused(
        "entry_test_x",
        "'entry_test_x', registered by one as entry_test_one:OTHER, cannot be imported: "
        "ModuleNotFoundError: No module named 'entry_test_one'",
    )
    write(site, "entry_test_one")
    install(site, "two", entry_test_x="entry_test_two:OTHER", entry_test_y="entry_test_one:ABSENT")
    refused("entry_test_y", "AttributeError: .*ABSENT")
    refused(
        "entry_test_x",
        r"'entry_test_x' is registered more than once in the group retrax.agents: "
        r"one \(entry_test_one:OTHER\), two \(entry_test_two:OTHER\)",
    )


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (None, "ModuleNotFoundError: No module named 'entry_test_bad'"),
        ("import entry_test_missing", "No module named 'entry_test_missing'"),
        ("raise RuntimeError('first\\nsecond')", r"RuntimeError: first\.$"),
        ("import sys; sys.exit()", r"SystemExit\.$"),
        ("def (", "SyntaxError: "),
        (
            ENTRY.replace('{"default": dict}', "{}"),
            r"ValueError: AgentEntry\.presets of 'mine' must have at least one preset\.$",
        ),
    ],
)
def test_a_module_that_cannot_be_imported(text, reason, own_modules):
    if text is not None:
        write(own_modules, "entry_test_bad", text)
    message = f"module 'entry_test_bad' cannot be imported from {re.escape(str(own_modules))} or .*"
    refused("entry_test_bad:ENTRY", message + reason, search_path=own_modules)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("here:ENTRI", "_here' has no attribute 'ENTRI'; its agents are ENTRY, OTHER"),
        ("empty:X", "'X'; it has no AgentEntry"),
        ("here:NUMBER", "must be an AgentEntry; its type is int"),
        ("here:FUNCTION", "must be an AgentEntry; its type is function"),
        ("here:", "as NAME or package.module:NAME, got 'entry_test_here:'"),
    ],
)
def test_a_wrong_attribute(name, message, own_modules):
    write(own_modules, "entry_test_here")
    write(own_modules, "entry_test_empty", "")
    refused(f"entry_test_{name}", message)
    refused(":ENTRY", "as NAME or package.module:NAME, got ':ENTRY'")


def test_our_agents_are_registered_as_others_are(tmp_path):
    """One after another, in a new process: each is imported when it is asked for, not before.

    As pyproject.toml has them: the metadata of the installed package may be older.
    """
    names = ["acer", "agent57", "d4pg", "reactor"]
    install(tmp_path, "retrax", **PROJECT["project"]["entry-points"]["retrax.agents"])
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
        "from retrax.agents import agent_names, find_agent\n"
        "print(agent_names())\n"
        "for name in reversed(agent_names()):\n"
        "    found = find_agent(name).name\n"
        "    print(found, [n for n in agent_names() if f'retrax.agents.{n}' in sys.modules])"
    )
    imported = [f"{name} {names[number:]}" for number, name in enumerate(names)]
    assert run_python("-c", code).splitlines() == [str(names), *reversed(imported)]


@pytest.mark.parametrize("name", ["acer", "agent57", "d4pg", "reactor"])
@pytest.mark.parametrize(("side", "small"), [(10, True), (84, False)])
def test_the_default_preset_takes_images_of_any_size(name, side, small):
    entry = find_agent(name)
    torques = specs.BoundedArray((2,), np.float32, -1.0, 1.0)
    actions = torques if name == "d4pg" else specs.DiscreteArray(3)
    image = specs.BoundedArray((side, side, 4), np.uint8, 0, 255)
    spec = EnvironmentSpec(image, actions)
    preset = entry.preset_of("module:NAME", spec)
    assert preset.startswith("small") == small
    jax.eval_shape(entry.make_agent(spec, entry.config_of(preset)).init, jax.random.key(0))
