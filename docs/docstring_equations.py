"""Indented equations in docstrings become code blocks of the reference: an extension of griffe.

Markdown would join their lines, and read their asterisks as emphasis. It would also read an
argument's bound that comes first, as in `steps: >= 1`, as a quotation.
"""

import re
from typing import Any

import griffe

_BOUND = re.compile(r"(?<=: )>(?==? ?\d)")
_SECTION = re.compile(r"^(Args|Attributes|Returns|Yields|Raises):$", re.MULTILINE)


def with_equations(docstring: str) -> str:
    """The docstring with a fence around indented lines up to its first section."""
    found = _SECTION.search(docstring)
    end = found.start() if found else len(docstring)
    lines: list[str] = []
    in_list = in_equation = False
    for line in docstring[:end].splitlines():
        indented = line.startswith("  ")
        in_list = line.startswith("* ") or (in_list and indented)
        if (indented and not in_list) != in_equation:
            lines += ["```"] if in_equation else ["", "```text"]
            in_equation = not in_equation
        lines.append(line)
    if in_equation:
        lines.append("```")
    return "\n".join([*lines, _BOUND.sub(r"\>", docstring[end:])])


class Equations(griffe.Extension):
    """Rewrites every docstring after it was read."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrites the docstring of one module, class or function."""
        if obj.docstring:
            obj.docstring.value = with_equations(obj.docstring.value)
