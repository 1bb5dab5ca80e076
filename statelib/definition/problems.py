"""What is wrong in a pipeline file: where, and in words that help."""

from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches

Where = tuple[str | int, ...]
"""Path of a field, for example ``("states", "activity", "fields", "flights", "agg")``."""


@dataclass(frozen=True)
class Problem:
    where: Where
    text: str


@dataclass(frozen=True)
class DefinitionError:
    """A pipeline file that does not load; ``message`` names the file, and has a line a problem."""

    path: str
    message: str
    hint: str = ""


def dotted(where: Where) -> str:
    return ".".join(map(str, where))


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """``, did you mean 'x'?`` or nothing."""
    close = get_close_matches(word, list(known), 1)
    return f", did you mean {close[0]!r}?" if close else ""
