"""What may import what, and what may be called where: rules that the sources are read for.

Each rule is a function of parsed source; it is shown a source that breaks it before it is trusted.
Names that only one file may use are banned by ruff: see `banned-api` in pyproject.toml.
"""

import ast
import graphlib
import importlib
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import source_files

import retrax
from retrax.launchpad_programs.kinds import KINDS

ROOT = Path(retrax.__file__).parent
# From folder (or module at the root) to those that it may import, besides itself.
LAYERS: dict[str, tuple[str, ...]] = {
    "basics": (),
    "datatypes": ("basics",),
    "losses": ("basics", "datatypes"),
    "networks": ("basics", "datatypes", "losses"),
    "environments": ("basics", "datatypes"),
    "replay": ("basics", "datatypes"),
    "agents": ("basics", "datatypes", "losses", "networks"),
}
for layer in ("training", "device", "evaluation", "command", "launchpad_programs"):
    LAYERS[layer] = tuple(LAYERS)
# The most lines that each room may have: `cat` of its Python files. Whoever makes a room smaller
# lowers its number in the same commit; none is ever raised.
BUDGETS = {
    "root": 352,
    "basics": 447,
    "losses": 1272,
    "networks": 1447,
    "agents": 4567,
    "environments": 3520,
    "replay": 2924,
    "training": 3624,
    "device": 800,
    "evaluation": 1807,
    "command": 2028,
    "launchpad_programs": 3170,
    "tests": 27999,
}
BUDGETS["simulator"] = 444  # `engines/simulated.py`, which launchpad_programs does not count
# At the root: what users import, above everything.
PUBLIC = ("retrax", "retrax.testing")
DISTRIBUTED = ("acme", "courier", "launchpad", "ray", "reverb", "tensorflow")
ENGINES = "retrax.launchpad_programs.engines"
USERS_OF_LAUNCHPAD = (f"{ENGINES}.launchpad", "retrax.launchpad_programs.acme_adapters")


class Source(NamedTuple):
    """A parsed module: its full name, whether it is an `__init__.py`, and its tree."""

    name: str
    is_package: bool
    tree: ast.Module


class Import(NamedTuple):
    """One imported name: the absolute name of what may be a module, or something in one."""

    name: str
    relative: bool
    line: int


def parse(name: str, text: str, is_package: bool = False) -> Source:
    return Source(name, is_package, ast.parse(text))


def find_sources() -> list[Source]:
    sources = []
    for path in sorted(source_files.MODULES):
        if path.parts[0] in {path.name, *LAYERS}:
            parts = ["retrax", *path.with_suffix("").parts]
            is_package = parts[-1] == "__init__"
            name = ".".join(parts[:-1] if is_package else parts)
            text = (ROOT / path).read_text(encoding="utf-8")
            sources.append(parse(name, text, is_package))
    return sources


SOURCES = find_sources()
MODULES = {source.name for source in SOURCES}


def imports_of(source: Source) -> Iterator[Import]:
    """All of them, those inside of functions and of `if TYPE_CHECKING` too."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Import):
            yield from (Import(alias.name, False, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            prefix = node.module or ""
            if node.level:
                parts = source.name.split(".")
                up = node.level - source.is_package
                base = parts[: max(0, len(parts) - up)]
                assert base, f"{source.name}:{node.lineno} imports from above the package"
                prefix = ".".join([*base, *filter(None, [node.module])])
            for alias in node.names:
                yield Import(f"{prefix}.{alias.name}", node.level > 0, node.lineno)


def is_within(name: str, module: str) -> bool:
    return name == module or name.startswith(f"{module}.")


def imports(source: Source, is_wrong: Callable[[Import], bool]) -> list[str]:
    """The wrong ones, a sentence each."""
    return [
        f"{source.name}:{found.line} imports {found.name}"
        for found in imports_of(source)
        if is_wrong(found)
    ]


def layer_of(name: str) -> str | None:
    """The layer that a name lies in; None for other modules at the root."""
    return next((part for part in name.split(".")[1:2] if part in LAYERS), None)


def may_import(source: Source, name: str) -> bool:
    """Whether `name`, which is within retrax, is below `source` or beside it."""
    here, there = layer_of(source.name), layer_of(name)
    if source.name in PUBLIC or name == "retrax.__version__":
        return True
    return here is not None and (there == here or there in LAYERS[here])


def upward_imports(source: Source) -> list[str]:
    """Imports against the order of the layers."""
    return imports(
        source, lambda found: is_within(found.name, "retrax") and not may_import(source, found.name)
    )


def absolute_imports(source: Source) -> list[str]:
    """Imports of our own modules that are not relative."""
    return imports(source, lambda found: is_within(found.name, "retrax") and not found.relative)


def is_distributed(name: str) -> bool:
    return is_within(name, "retrax.launchpad_programs") or name.startswith("retrax.replay.reverb")


def is_of(found: Import, libraries: tuple[str, ...]) -> bool:
    return any(is_within(found.name, library) for library in libraries)


def tier_imports(source: Source) -> list[str]:
    """Imports of the distributed tier, or of what only it may import, from the core."""
    if is_distributed(source.name) or source.name == "retrax":
        return []
    return imports(source, lambda found: is_of(found, DISTRIBUTED) or is_distributed(found.name))


def engine_imports(source: Source) -> list[str]:
    """Imports of an engine's libraries, but in its own modules."""
    of_launchpad = (
        source.name.startswith("retrax.replay.reverb") or source.name in USERS_OF_LAUNCHPAD
    )
    mine = () if of_launchpad else tuple(name for name in DISTRIBUTED if name != "ray")
    theirs = () if source.name.startswith(f"{ENGINES}.ray") else ("ray",)
    return imports(source, lambda found: is_of(found, mine + theirs))


def asks_for_a_kind(source: Source) -> list[str]:
    """Comparisons with the label of a kind of nodes; what is particular to one is in `kinds`."""
    programs = "retrax.launchpad_programs"
    if not is_within(source.name, programs) or source.name == f"{programs}.kinds":
        return []
    places: list[ast.AST] = []
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Compare):
            places += [node.left, *node.comparators]
        elif isinstance(node, ast.MatchValue):
            places.append(node.value)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            places += node.args if node.func.attr in ("startswith", "removeprefix") else []
    return [
        f"{source.name}:{inner.lineno} asks for {inner.value!r}"
        for place in places
        for inner in ast.walk(place)
        if isinstance(inner, ast.Constant)
        and isinstance(inner.value, str)
        and inner.value.partition("/")[0] in KINDS
    ]


# What a simulation runs: it reads time, and waits, through a `Clock` alone.
NODES = r"(launchpad_programs|replay)(?!\.(engines|reverb|interface)).*|training\.(learner|workers)"


def reads_time_itself(source: Source) -> list[str]:
    """Uses of `time`, and of all in `threading` but locks, which are not waited for long."""
    if not re.fullmatch(NODES, source.name.removeprefix("retrax.")):
        return []
    return [
        f"{source.name}:{node.lineno} uses {ast.unparse(node)}"
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) in ("time", "threading")
        if node.attr not in ("Lock", "RLock")
    ]


RULES: list[Callable[[Source], list[str]]] = [
    upward_imports,
    absolute_imports,
    tier_imports,
    engine_imports,
    asks_for_a_kind,
    reads_time_itself,
]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_the_package_keeps_the_rule(rule):
    assert [violation for source in SOURCES for violation in rule(source)] == []


@pytest.mark.parametrize(
    ("rule", "module", "text", "violation"),
    [
        (upward_imports, "losses.a", "from ..networks.base import x", "retrax.networks.base.x"),
        (upward_imports, "losses.a", "from .. import agents", "retrax.agents"),
        (upward_imports, "networks.a", "def f():\n  from ..agents.b import c", "agents.b.c"),
        (upward_imports, "agents.b.a", "from ...replay.store import x", "retrax.replay.store.x"),
        (upward_imports, "agents.b.a", "import retrax.environments.tiny", "environments.tiny"),
        (upward_imports, "device.a", "from ..training.loop import x", None),
        (upward_imports, "command.a", "from .. import __version__", None),
        (upward_imports, "_private", "from .basics import x", "retrax.basics.x"),
        (upward_imports, "testing", "from .agents.conformance import x", None),
        (upward_imports, "training.a", "from ..testing import x", "retrax.testing.x"),
        (absolute_imports, "agents.a", "from retrax.losses import x", "retrax.losses.x"),
        (absolute_imports, "agents.a", "import retrax", "retrax"),
        (absolute_imports, "agents.a", "from ..losses import x", None),
        (tier_imports, "replay.store", "import reverb", "reverb"),
        (tier_imports, "command.a", "def f():\n  from acme.utils import x", "acme.utils.x"),
        (tier_imports, "command.a", "from ..replay import reverb_table", "reverb_table"),
        (tier_imports, "replay.reverb_table", "import reverb", None),
        (tier_imports, "replay.store", "import acmeology, tensorflow_metadata", None),
        (engine_imports, "launchpad_programs.actor", "import launchpad", "launchpad"),
        (engine_imports, "launchpad_programs.launch", "def f():\n  import ray", "ray"),
        (engine_imports, "launchpad_programs.engines.ray", "import ray", None),
        (engine_imports, "launchpad_programs.engines.ray", "import reverb", "reverb"),
        (asks_for_a_kind, "launchpad_programs.a", "f(x == 'actor')", "asks for 'actor'"),
        (asks_for_a_kind, "launchpad_programs.b.a", "'replay/0' != x", "asks for 'replay/0'"),
        (asks_for_a_kind, "launchpad_programs.a", "x.startswith('actor/')", "asks for 'actor/'"),
        (asks_for_a_kind, "launchpad_programs.a", "match x:\n  case 'counter': y", "'counter'"),
        (asks_for_a_kind, "launchpad_programs.a", "f('actor', x == 'starting')", None),
        (asks_for_a_kind, "launchpad_programs.kinds", "x == 'actor'", None),
        (reads_time_itself, "replay.node", "time.monotonic()", "uses time.monotonic"),
        (reads_time_itself, "training.workers", "threading.Event()", "uses threading.Event"),
        (reads_time_itself, "launchpad_programs.a", "threading.RLock(), clock.sleep(1)", None),
    ],
)
def test_the_rules_can_fail(rule, module, text, violation):
    found = rule(parse(f"retrax.{module}", text))
    assert bool(found) == (violation is not None), found
    assert all(violation in sentence for sentence in found)


def test_relative_imports_are_resolved_from_packages_and_modules():
    texts = "from . import a\nfrom .b import c\nfrom .. import d"
    package = parse("retrax.agents.reactor", texts, is_package=True)
    module = parse("retrax.agents.reactor.agent", texts)
    expected = ["retrax.agents.reactor.a", "retrax.agents.reactor.b.c", "retrax.agents.d"]
    assert [found.name for found in imports_of(package)] == expected
    assert [found.name for found in imports_of(module)] == expected
    with pytest.raises(AssertionError, match="from above the package"):
        list(imports_of(parse("retrax.losses.a", "from .... import x")))


def test_every_module_has_a_layer():
    assert rooms() - {"tests"} <= LAYERS.keys()
    names = {path.name for path in source_files.MODULES if path.parts[0] == path.name}
    assert names == {"__init__.py", "datatypes.py", "testing.py"}
    assert len(SOURCES) > 30  # the rules were not shown an empty folder


PACKAGES = [s.name for s in SOURCES if s.is_package and not is_distributed(s.name)]


@pytest.mark.parametrize("name", PACKAGES)
def test_public_names_exist(name):
    """Ruff holds that they have docstrings, and that a package lists what it imports for users."""
    module = importlib.import_module(name)
    assert [each for each in dir(module) if not hasattr(module, each)] == []
    inner = {"basics", "command", "tests"} if name == "retrax" else rooms()
    assert rooms() <= {*dir(module), *inner}


def rooms() -> set[str]:
    """Folders with Python files; benchmarks, documents and examples have no budget."""
    others = {"benchmarks", "docs", "build", "examples"}
    found = {path.parts[0] for path in source_files.MODULES if path.parts[0] != path.name}
    return {name for name in found - others if not name.startswith(".")}


def lines_of(room: str) -> int:
    """Lines of a room's Python files; the room "root" has those at the root of the package."""
    simulator = Path("launchpad_programs/engines/simulated.py")
    wanted = {simulator} if room == "simulator" else set(source_files.MODULES) - {simulator}
    paths = [x for x in wanted if room in ("simulator", x.parts[0], "root" * (len(x.parts) == 1))]
    return sum((ROOT / path).read_bytes().count(b"\n") for path in paths)


def test_rooms_keep_their_budgets():
    lines = {room: lines_of(room) for room in rooms() | {"root", "simulator"}}
    assert {room: n for room, n in lines.items() if n > BUDGETS.get(room, 0)} == {}


def imported_files(source: Source, names: set[str]) -> set[str]:
    """The files of ours that a file imports, in functions too, but not for annotations alone."""
    annotations = {
        inner
        for node in ast.walk(source.tree)
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")
        for inner in ast.walk(node)
    }
    lines = {node.lineno for node in annotations if isinstance(node, ast.stmt)}
    found = [found for found in imports_of(source) if found.line not in lines]
    files = {f.name if f.name in names else f.name.rpartition(".")[0] for f in found}
    return files & names - {source.name}


def circle(sources: list[Source]) -> list[str]:
    """Files that import each other: those of one circle."""
    names = {source.name for source in sources}
    graph = {source.name: imported_files(source, names) for source in sources}
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        return sorted(set(error.args[1]))
    return []


def test_no_files_import_each_other():
    assert circle(SOURCES) == []


def test_circles_are_found():
    a = parse("retrax.a", "from .b import x")
    b = parse("retrax.b", "def f():\n  from .c import x")
    c = parse("retrax.c", "from . import a")
    end = parse("retrax.d", "from .a import x\nfrom .e import y")
    assert circle([a, b, c, end, parse("retrax.e", "")]) == ["retrax.a", "retrax.b", "retrax.c"]
    typed = parse("retrax.c", "if TYPE_CHECKING:\n  from . import a")
    assert circle([a, b, typed, end]) == []


def test_examples_are_what_somebody_else_would_write():
    """Short, and unknown to the package, which they import as others do."""
    sources = [p for p in (ROOT / "examples" / "rainbow").glob("*.py") if "test" not in p.name]
    assert 0 < sum(len(path.read_text().splitlines()) for path in sources) <= 350
    assert not [s.name for s in SOURCES for found in imports_of(s) if "rainbow" in found.name]
    texts = [path.read_text(encoding="utf-8") for path in (ROOT / "examples").rglob("*.py")]
    assert any("from retrax" in text for text in texts)
    assert not [text for text in texts if "from .." in text or "retrax._" in text]
