"""Draws the figures of the documents from the text below: `python docs/figures.py`.

A figure is a set of boxes (centre, lines of text) and arrows between points, written as SVG.
"""

from html import escape
from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).parent
LINE, WIDTH, HEIGHT = 18, 190, 70


class Box(NamedTuple):
    """A box: the centre, and its lines; the first is its title."""

    x: int
    y: int
    lines: tuple[str, ...]


class Arrow(NamedTuple):
    """An arrow from one point to another, with its label at a point of its own."""

    start: tuple[int, int]
    end: tuple[int, int]
    label: str
    at: tuple[int, int]


LOOP = (
    Box(110, 60, ("environments", "E are stepped together")),
    Box(490, 60, ("actor", "explore or exploit")),
    Box(490, 260, ("replay", "rows, sequences")),
    Box(110, 260, ("learner", "gradients, then apply")),
    Arrow((205, 45), (395, 45), "TimeStep [E, ...]", (300, 36)),
    Arrow((395, 75), (205, 75), "action [E, ...]", (300, 94)),
    Arrow((490, 95), (490, 225), "Row [E, ...]", (545, 165)),
    Arrow((395, 245), (205, 245), "Sample [B, T+1, ...]", (300, 236)),
    Arrow((205, 275), (395, 275), "priorities [B]", (300, 294)),
    Arrow((150, 225), (430, 95), "acting_params", (215, 155)),
)
FIGURES = {"concepts.svg": ((600, 320), LOOP)}


def text(x: int, y: int, words: str, *, bold: bool = False) -> str:
    """A line of text, centred at a point."""
    weight = ' font-weight="bold"' if bold else ""
    return f'<text x="{x}" y="{y}" text-anchor="middle"{weight}>{escape(words)}</text>'


def svg(size: tuple[int, int], parts: tuple[Box | Arrow, ...]) -> str:
    """A figure."""
    width, height = size
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        'font-family="sans-serif" font-size="13" fill="#222">',
        '<defs><marker id="head" markerWidth="9" markerHeight="8" refX="8" refY="4" orient="auto">'
        '<path d="M0,0 L9,4 L0,8 z"/></marker></defs>',
        f'<rect width="{width}" height="{height}" rx="8" fill="#fff"/>',
    ]
    for part in parts:
        if isinstance(part, Arrow):
            (x1, y1), (x2, y2) = part.start, part.end
            points = f'x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}"'
            lines.append(f'<line {points} stroke="#222" marker-end="url(#head)"/>')
            lines.append(text(*part.at, part.label))
            continue
        left, top = part.x - WIDTH // 2, part.y - HEIGHT // 2
        corner = f'x="{left}" y="{top}" width="{WIDTH}" height="{HEIGHT}"'
        lines.append(f'<rect {corner} rx="6" fill="#e8eaf6" stroke="#3f51b5"/>')
        first = part.y + 5 - LINE * (len(part.lines) - 1) // 2
        for number, words in enumerate(part.lines):
            lines.append(text(part.x, first + LINE * number, words, bold=number == 0))
    return "\n".join([*lines, "</svg>"]) + "\n"


def main() -> None:
    """Writes all figures."""
    for name, (size, parts) in FIGURES.items():
        (FOLDER / name).write_text(svg(size, parts), encoding="utf-8")


if __name__ == "__main__":
    main()
