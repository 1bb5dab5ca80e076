"""Checks of the names of states, fields, columns and operators. Pure: they yield problems and never raise."""

import unicodedata
from collections.abc import Iterable, Iterator

from statelib.definition.problems import Problem, Where

MAX_NAME_BYTES = 255
"""The longest name in UTF-8 bytes. Names become parts of file names, of Java's short texts and of catalog rows."""
MARKS = ":<>,"
"""The marks that separate the fields of a row in the text of a type."""


def name_problems(name: str, where: Where, *, in_type: bool = False) -> Iterator[Problem]:
    """Yield the problem of a name, if it has one. ``in_type``: the name becomes part of a type's text, as the names of
    fields and columns do."""
    size_bytes = len(name.encode(errors="replace"))
    if size_bytes > MAX_NAME_BYTES:
        yield Problem(where, f"expected a name of at most {MAX_NAME_BYTES} bytes, found {size_bytes}")
    elif any(unicodedata.category(character) in ("Cc", "Cs") for character in name):
        yield Problem(where, f"expected a name without control characters, found {name!r}")
    elif in_type and (not name or any(mark in name for mark in MARKS) or name != name.strip()):
        expected = f"expected a name without any of {' '.join(MARKS)} and without blanks around it"
        yield Problem(where, f"{expected}, found {name!r}")


def alike(names: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield each name that differs from an earlier one only in capital letters, as the pair of the earlier one and
    this one. Spark, DuckDB and Delta Lake cannot distinguish two such columns or tables."""
    seen: dict[str, str] = {}
    for name in names:
        earlier = seen.setdefault(name.lower(), name)
        if earlier != name:
            yield earlier, name
