"""Pages of the documentation site: hooks of MkDocs, named in `mkdocs.yml`.

Nothing is written twice. The repository's Markdown files are the pages, under their own paths; each
public module has a reference page, made from its docstrings; what a page links to besides is
copied (pictures, data) or shown as a listing. Equations become MathML here, and their font is part
of the site, so that a browser needs no file from another host and no font of its own.
"""

import ast
import functools
import html
import itertools
import posixpath
import re
import textwrap
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert as to_mathml
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
PACKAGE = "retrax"
FOLDERS = ("agents/*", "launchpad_programs", "evaluation/*", "examples/*")
PAGES = ("*.md", "docs/**/*.md", *(f"{folder}/README.md" for folder in FOLDERS))
OUTSIDE = ("tests", "benchmarks", "docs", "examples", "build", "dist", "runs")
COPIED = (".png", ".gif", ".svg", ".csv", ".json")
STYLE = "docs/site.css"
FONT = "STIXTwoMath-Regular.ttf"  # of equations (SIL Open Font License); the style sheet names it
LISTING = "~~~~~~~~"  # a fence that no listed file has

# Weights of pages in the search, where one has 1: how-tos before what 200 pages of reference name.
BOOSTS = {"docs/how_to/": 4.0, "docs/": 2.0, "reference/": 0.02}

# Words of the field that the titles do not have: the search shows these pages first.
TAGS = {
    "docs/cite.md": ["BibTeX", "citation"],
    "docs/concepts.md": ["replay buffer"],
    "docs/how_to/export.md": ["inference", "deployment"],
    "docs/how_to/metrics.md": ["TensorBoard"],
    "docs/how_to/resume.md": ["checkpoint", "checkpoints"],
    "docs/how_to/search.md": ["Optuna", "sweep"],
    "docs/how_to/trackers.md": ["wandb"],
}

_FENCE = re.compile(r"^( *```.*?^ *```$)", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"\]\(([^)#:\s]+)(#[^)]*)?\)")
# Alone in a cell: a name, or the text of a link.
_NAME = re.compile(r'(?<=<code>)[\w.]+(?=</code></t[dh]>)|(?<=">)[^<>\s]+(?=</a></td>)')
_INLINE_CODE = re.compile(r"<code>[^<>]*</code>")
# What latex2mathml makes of `\log` and `\sim`, and the operators with the spaces of LaTeX.
_OPERATORS = {
    "<mi>log</mi>": '<mo lspace="0.17em" rspace="0.17em">log</mo>',
    "<mi>&#x0007E;</mi>": "<mo>&#x0223C;</mo>",
}
_MATH = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', re.DOTALL)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Adds the reference to the navigation, before the last entry."""
    modules.cache_clear()  # `mkdocs serve` builds again after a change
    _parsed.cache_clear()
    config.nav.insert(len(config.nav) - 1, {"Reference": _navigation()})
    return config


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Replaces the files of `docs_dir` by those that the repository gives."""
    for file in list(files):
        if file.src_dir == config.docs_dir:
            files.remove(file)
    contents: dict[str, str | bytes] = {}
    for page in pages():
        contents[page], linked = with_links(page)
        contents |= linked
    for module in modules():
        contents[reference_page(module)] = reference(module)
    contents[STYLE] = (ROOT / STYLE).read_bytes()
    contents[f"docs/{FONT}"] = (resources.files("ziamath") / "fonts" / FONT).read_bytes()
    for name, content in sorted(contents.items()):
        files.append(File.generated(config, name, content=content))
        if name.startswith("source/"):
            files.get_file_from_path(name).inclusion = InclusionLevel.NOT_IN_NAV
    return files


def on_page_markdown(markdown: str, *, page: Page, **_: Any) -> None:
    """Tells the search what a page weighs, and its tags; listings are not searched."""
    path = page.file.src_uri
    page.meta["tags"] = TAGS.get(path, [])
    boost = next((weight for start, weight in BOOSTS.items() if path.startswith(start)), 1.0)
    page.meta["search"] = {"boost": boost, "exclude": path.startswith("source/")}


def on_page_content(html: str, **_: Any) -> str:
    """Replaces LaTeX by MathML. Names in tables break after `_.,:/`, options not after `--`."""
    html = _NAME.sub(lambda match: re.sub(r"(?<=[_.,:/])(?=\w)", "<wbr>", match[0]), html)
    html = _INLINE_CODE.sub(
        lambda match: re.sub(r"--\w+", r'<span class="option">\g<0></span>', match[0]), html
    )
    return _MATH.sub(_mathml, html)


def pages() -> list[str]:
    """The Markdown files that are pages, relative to the repository."""
    return sorted({path.relative_to(ROOT).as_posix() for glob in PAGES for path in ROOT.glob(glob)})


@functools.cache
def modules() -> dict[str, Path]:
    """The public modules of the package, by name, packages before what they hold."""
    found = {}
    folders = [path for path in ROOT.iterdir() if path.is_dir() and not path.name.startswith(".")]
    sources = [folder.rglob("*.py") for folder in folders if folder.name not in OUTSIDE]
    for path in itertools.chain(ROOT.glob("*.py"), *sources):
        parts = path.relative_to(ROOT).with_suffix("").parts
        parts = parts[:-1] if parts[-1] == "__init__" else parts
        if not any(part.startswith("_") for part in parts):
            found[".".join((PACKAGE, *parts))] = path
    return dict(sorted(found.items()))


def reference_page(module: str) -> str:
    """The page of a module."""
    parts = module.split(".")[1:]
    name = "index" if modules()[module].name == "__init__.py" else parts.pop()
    return "/".join(("reference", *parts, f"{name}.md"))


def shown_at(path: str) -> str:
    """The file of the site that shows a file or folder of the repository."""
    if (ROOT / path).is_dir():
        names = (posixpath.join(path, name) for name in ("README.md", "__init__.py"))
        path = next(name for name in names if (ROOT / name).exists())
    if not path.endswith(".py"):
        return path if path.endswith((".md", *COPIED)) else f"source/{path}.md"
    of_path = {file: module for module, file in modules().items()}
    module = of_path.get(ROOT / path)
    return reference_page(module) if module else f"source/{path}.md"


def with_links(page: str) -> tuple[str, dict[str, str | bytes]]:
    """A page whose links lead to files of the site, and the files that only links lead to."""
    linked: dict[str, str | bytes] = {}
    folder = posixpath.dirname(page)

    def replace(match: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(folder, match[1]))
        name = shown_at(path)
        if name.startswith("source/"):
            linked[name] = listing(path)
        elif name.endswith(COPIED):
            linked[name] = (ROOT / path).read_bytes()
        anchor = match[2] or ""
        if anchor and name.startswith("reference/"):  # `module.py#name`: the definition
            definition = _definition(ROOT / path, anchor[1:])
            parts = (PACKAGE, *Path(path).with_suffix("").parts, definition)
            anchor = "#" + ".".join(parts)
        return f"]({posixpath.relpath(name, folder or '.')}{anchor})"

    parts = _FENCE.split((ROOT / page).read_text(encoding="utf-8"))
    parts[::2] = [_LINK.sub(replace, part) for part in parts[::2]]
    parts[1::2] = [_for_python_markdown(part) for part in parts[1::2]]
    return "".join(parts), linked


def _for_python_markdown(fence: str) -> str:
    """A fenced block as MkDocs reads it: one word after the fence, four spaces in a list."""
    fence = re.sub(r"^( *```\w+) .*", r"\1", fence)
    return textwrap.indent(fence, "  ") if fence.startswith("  `") else fence


def listing(path: str) -> str:
    """A page that shows a text file."""
    text = (ROOT / path).read_text(encoding="utf-8")
    language = {".py": "python", ".sh": "bash"}.get(Path(path).suffix, "text")
    return f"# {path}\n\n{LISTING}{language}\n{text}\n{LISTING}\n"


def reference(module: str) -> str:
    """The reference page of a module: docstring, re-exported names, then everything defined."""
    tree = _parsed(modules()[module])
    lines = [f"# {module}", "", f"::: {module}", "    options:", f"      members: {_own(tree)}", ""]
    exported = list(_exported(module, tree))
    if exported:
        lines += ["## Public names", "", "| name | what it is |", "| --- | --- |"]
    for name, target, summary in exported:
        anchor = f'<a id="{module}.{name}"></a>'
        lines.append(f"| {anchor}[`{name}`][{target}] | {summary} |")
    return "\n".join(lines) + "\n"


def _own(tree: ast.Module) -> list[str] | bool:
    """The public names that a module defines itself."""
    names = []
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.append(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names += [target.id for target in targets if isinstance(target, ast.Name)]
    return [name for name in names if not name.startswith("_")] or False


def _exported(module: str, tree: ast.Module) -> Iterator[tuple[str, str, str]]:
    """Names of `__all__` that are imported: name, full name of the definition, its summary."""
    public: list[str] = []
    sources: dict[str, tuple[str, str]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            value = node.value
            if isinstance(value, ast.Call):  # list(TABLE): the keys of a table of the module
                (value,) = (
                    other.value
                    for other in tree.body
                    if isinstance(other, ast.Assign)
                    and ast.unparse(other.targets[0]) == ast.unparse(value.args[0])
                )
            public = list(ast.literal_eval(value))
        elif isinstance(node, ast.ImportFrom) and node.level:
            up = node.level - (modules()[module].name == "__init__.py")
            base = module.rsplit(".", up)[0] if up else module
            source = f"{base}.{node.module}" if node.module else base
            names = [(alias.asname or alias.name, alias.name) for alias in node.names]
            if names == [("*", "*")]:
                names = [(name, name) for name in _own(_parsed(modules()[source])) or []]
            sources |= {known: (source, original) for known, original in names}
    for name in public:
        source, original = sources.get(name, ("_", ""))  # "_": defined here
        if not any(part.startswith("_") for part in f"{source}.{original}".split(".")):
            yield name, f"{source}.{original}", _summary(source, original)


def _summary(module: str, name: str) -> str:
    """The first sentence of a definition's docstring; empty for other names."""
    inner = modules().get(f"{module}.{name}")
    tree = _parsed(inner or modules()[module])
    for node in [tree] if inner else tree.body:
        if isinstance(node, ast.Module) or getattr(node, "name", None) == name:
            first = (ast.get_docstring(node) or "").partition("\n")[0]
            parts = first.split("`")  # code is at odd places, and is not escaped
            parts[::2] = [html.escape(part).replace("*", "\\*") for part in parts[::2]]
            return "`".join(parts).replace("|", "\\|")
    exported = {} if inner else {known: summary for known, _, summary in _exported(module, tree)}
    return exported.get(name, "")


def _definition(path: Path, name: str) -> str:
    """The definition of this name, or the one that it is inside of: a closure has no anchor."""
    nodes = [
        node for node in _parsed(path).body if isinstance(node, ast.FunctionDef | ast.ClassDef)
    ]
    inside = {
        getattr(inner, "name", ""): node.name for node in nodes for inner in ast.walk(node)
    } | {node.name: node.name for node in nodes}
    return inside[name]


@functools.cache
def _parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def _navigation() -> list[Any]:
    """A tree of the reference pages: packages are folders, whose first page is their own."""
    tree: list[Any] = []
    folders = {PACKAGE: tree}
    for module in modules():
        page, (parent, _, name) = reference_page(module), module.rpartition(".")
        if page.endswith("index.md"):
            inner = folders.setdefault(module, [])
            if parent:
                folders[parent].append({name: inner})
            inner.append(page)
        else:
            folders[parent].append({name: page})
    return tree


def _mathml(match: re.Match[str]) -> str:
    """An equation; one with a line of its own may be wider than a phone, and is scrolled then."""
    display = "block" if match[2] == "[" else "inline"
    equation = to_mathml(html.unescape(match[3]).strip(), display=display)
    for made, wanted in _OPERATORS.items():
        equation = equation.replace(made, wanted)
    return f'<div class="equation">{equation}</div>' if display == "block" else equation
