"""Which names states, fields, columns and operators may have. Pure: finds problems, never raises."""

import unicodedata
from collections.abc import Iterator

from statelib.definition.problems import Problem, Where

MAX_NAME_BYTES = 255
"""Names become parts of files, of Java's short texts and of rows of the catalog: what all of them take, of UTF-8."""
MARKS = ":<>,"
"""The marks of a type's text, in which the fields of a row stand between them."""


def name_problems(name: str, where: Where, *, in_type: bool = False) -> Iterator[Problem]:
    """``in_type``: the name becomes part of a type's text, as those of fields and columns do."""
    size_bytes = len(name.encode(errors="replace"))
    if size_bytes > MAX_NAME_BYTES:
        yield Problem(where, f"expected a name of at most {MAX_NAME_BYTES} bytes, found {size_bytes}")
    elif any(unicodedata.category(character) in ("Cc", "Cs") for character in name):
        yield Problem(where, f"expected a name without control characters, found {name!r}")
    elif in_type and (not name or any(mark in name for mark in MARKS) or name != name.strip()):
        expected = f"expected a name without any of {' '.join(MARKS)} and without blanks around it"
        yield Problem(where, f"{expected}, found {name!r}")
