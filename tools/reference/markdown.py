"""Tables and headings of the generated pages."""

from collections.abc import Iterable, Sequence

NOTICE = "<!-- Written by `make docs` from {source}: change that, not this. -->\n"


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(headings) + " |", "|" + "---|" * len(headings)]
    lines += ["| " + " | ".join(cell(text) for text in row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def cell(text: str) -> str:
    """Text that neither ends a cell nor begins a tag of HTML, outside of code."""
    parts = " ".join(text.split()).replace("|", "\\|").split("`")
    parts[::2] = [part.replace("<", "&lt;") for part in parts[::2]]
    return "`".join(parts)


def code(text: str) -> str:
    return f"`{text}`" if text else ""
