"""Functions that write tables and code for the generated pages."""

from collections.abc import Iterable, Sequence

NOTICE = "<!-- Written by `make docs` from {source}: change that, not this. -->\n"


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = ["| " + " | ".join(headings) + " |", "|" + "---|" * len(headings)]
    lines += ["| " + " | ".join(cell(text) for text in row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def cell(text: str) -> str:
    """Return text that neither ends a table cell nor begins an HTML tag. Code is not changed."""
    parts = " ".join(text.split()).replace("|", "\\|").split("`")
    parts[::2] = [part.replace("<", "&lt;") for part in parts[::2]]
    return "`".join(parts)


def code(text: str) -> str:
    """Return ``text`` as inline code; '' for ''."""
    return f"`{text}`" if text else ""
