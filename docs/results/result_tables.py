"""Writes the computed cells of the tables in docs/results.

    python docs/results/result_tables.py [PAGE ...] [--draw]

Above every table of a page stands a comment. `<!-- computed: NAME -->`: the function NAME of the
page's report.py gives the cells of a row that the files beside it determine; the other cells say
what the row is, and stand in the page alone. `<!-- copied -->`: the output of a command that was
not kept. With `--draw` the figures are drawn, too, by `draw` of report.py
or of figures.py, and kept with 256 colors.
"""

import argparse
import importlib.util
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

from PIL import Image
from result_files import FOLDER

Row = dict[str, str]
COMPUTED, COPIED = re.compile(r"<!-- computed: (\w+) -->"), "<!-- copied -->"
NOT_KEPT = " *"  # at the end of a row's first cell: none of its figures is computed


def plain(cell: str) -> str:
    """A cell without emphasis, which a report never decides about."""
    return cell.replace("**", "").replace("`", "")


def cells(line: str) -> list[str]:
    """The cells of a table's line."""
    return [cell.strip() for cell in line.strip()[1:-1].split("|")]


def with_computed_cells(line: str, header: list[str], row: Row, compute: Callable) -> str:
    """A line of a table with its computed cells replaced; emphasis of equal ones is kept.

    Raises:
      ValueError: nothing is computed, or a column that the table has not.
    """
    computed = compute(row)
    if not computed and not row[header[0]].endswith(NOT_KEPT):
        raise ValueError(f"nothing is computed in {line!r}")
    if unknown := set(computed) - set(header):
        raise ValueError(f"there is no column {unknown} in {header}")
    old = zip(header, cells(line), strict=True)
    new = [
        cell if plain(cell) == computed.get(name, plain(cell)) else computed[name]
        for name, cell in old
    ]
    return "|" + "|".join(f" {cell} " if cell else " " for cell in new) + "|"


def filled(text: str, report: ModuleType | None) -> str:
    """A page with the computed cells of its tables replaced.

    Raises:
      ValueError: a table has no comment, or see `with_computed_cells`.
    """
    return "\n".join(_filled_lines(text.split("\n"), report))


def _filled_lines(lines: list[str], report: ModuleType | None) -> Iterator[str]:
    comment, header, first, number = "", [], "", 0
    for line in lines:
        number = number + 1 if line.startswith("|") else 0
        if line and not number:
            comment = line
        if number == 1:
            header = [plain(cell) for cell in cells(line)]
            match = COMPUTED.fullmatch(comment)
            if not match and comment != COPIED:
                raise ValueError(f"no comment says where the figures are from: {line!r}")
            comment = ""
        if number > 2 and match:
            row = dict(zip(header, map(plain, cells(line)), strict=True))
            first = row[header[0]] = row[header[0]] or first  # an empty one: as above
            line = with_computed_cells(line, header, row, getattr(report, match[1]))
        yield line


def pages() -> list[str]:
    """Names of the folders that are pages."""
    return sorted(path.parent.name for path in FOLDER.glob("*/README.md"))


def find_report(page: str, name: str = "report") -> ModuleType | None:
    """The report.py of a page, or another module; None if it has none."""
    path = FOLDER / page / f"{name}.py"
    if not path.is_file():
        return None
    spec = importlib.util.spec_from_file_location(f"{name}_{page}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def with_few_colors(path: Path) -> None:
    """Keeps a figure with 256 colors: a third of the bytes, and no difference that one sees."""
    with Image.open(path) as drawn:
        figure = drawn.convert("RGB")
    figure.quantize(256, dither=Image.Dither.NONE).save(path, optimize=True)


def main() -> None:
    """Writes the pages."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument(
        "pages", nargs="*", metavar="PAGE", help=f"all if none: {', '.join(pages())}"
    )
    parser.add_argument("--draw", action="store_true", help="draw the figures, too")
    options = parser.parse_args()
    for page in options.pages or pages():
        path, report = FOLDER / page / "README.md", find_report(page)
        path.write_text(filled(path.read_text(encoding="utf-8"), report), encoding="utf-8")
        if options.draw:
            for module in (report, find_report(page, "figures")):
                getattr(module, "draw", lambda: None)()
            for figure in path.parent.glob("*.png"):
                with_few_colors(figure)


if __name__ == "__main__":
    main()
