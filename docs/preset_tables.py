"""Writes the table of preset values into each agent's README: `python docs/preset_tables.py`.

A row is a field of the agent's config, in the order of the class; its docstring has the paper's
value and section. The table stands between two marker comments.
"""

import ast
import dataclasses
import inspect
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from retrax.agents.entry import AgentEntry, find_agent
from retrax.datatypes import ReplayConfig

ROOT = Path(__file__).parents[1]
BEGIN = "<!-- preset table: written by docs/preset_tables.py -->"
END = "<!-- end of preset table -->"
AGENTS = ("acer", "agent57", "d4pg", "reactor")
SMALL = ("small", "small_continuous", "small_long", "small_minatar", "small_short")


def field_docstrings(config: type) -> dict[str, str]:
    """The docstrings under the fields of a dataclass, each in one line."""
    (definition,) = ast.parse(textwrap.dedent(inspect.getsource(config))).body
    assert isinstance(definition, ast.ClassDef)
    docstrings = {}
    for field, text in zip(definition.body, definition.body[1:], strict=False):
        if not (isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)):
            continue
        if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant):
            docstrings[field.target.id] = " ".join(str(text.value.value).split())
    return docstrings


def main_presets(entry: AgentEntry) -> list[str]:
    """Names of the presets that have a column: not those of ablations and of single suites."""
    return [name for name in entry.presets if name.startswith(("paper", "atari")) or name in SMALL]


def cell(value: Any) -> str:
    """A field's value in a cell."""
    if isinstance(value, bool) or value is None:
        return str(value)
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        short = f"{value:g}"
        text = short if float(short) == value else repr(value)
        return text.replace("e-0", "e-").replace("e+0", "e")
    if isinstance(value, tuple):
        inner = (f"({cell(x)})" if isinstance(x, tuple) else cell(x) for x in value)
        return ", ".join(inner) or "none"
    return str(value)


def rows(entry: AgentEntry) -> Iterator[tuple[str, list[str], str]]:
    """Name, values of the main presets and docstring of each field."""
    configs = [entry.presets[name]() for name in main_presets(entry)]
    docstrings = field_docstrings(entry.Config)
    of_replay = field_docstrings(ReplayConfig)
    for field in dataclasses.fields(entry.Config):
        values = [getattr(config, field.name) for config in configs]
        if not isinstance(values[0], ReplayConfig):
            yield field.name, [cell(value) for value in values], docstrings[field.name]
            continue
        yield field.name, ["" for _ in values], docstrings[field.name]
        for part in dataclasses.fields(ReplayConfig):
            parts = [cell(getattr(value, part.name)) for value in values]
            yield f"{field.name}.{part.name}", parts, of_replay[part.name]


def table(entry: AgentEntry) -> str:
    """The Markdown table of an agent."""
    names = [f"`{name}`" for name in main_presets(entry)]
    lines = [["field", *names, "meaning, and the paper's value"], ["---"] * (len(names) + 2)]
    for name, values, text in rows(entry):
        lines.append([f"`{name}`", *values, text.replace("|", "\\|")])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def with_table(readme: str, entry: AgentEntry) -> str:
    """A README with its table replaced.

    Raises:
      ValueError: the README has not both markers, once each and in order.
    """
    before, begin, rest = readme.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end) or BEGIN in rest or END in before or END in after:
        raise ValueError(f"{entry.name}'s README must have {BEGIN!r} and then {END!r}, once each.")
    return f"{before}{BEGIN}\n{table(entry)}\n{END}{after}"


def readme_of(name: str) -> Path:
    """The README of an agent."""
    return ROOT / "agents" / name / "README.md"


def main() -> None:
    """Writes the tables of all agents."""
    for name in AGENTS:
        path = readme_of(name)
        text = path.read_text(encoding="utf-8")
        path.write_text(with_table(text, find_agent(name)), encoding="utf-8")


if __name__ == "__main__":
    main()
