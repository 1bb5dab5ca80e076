"""What is wrong in a pipeline file: where, and in words that help."""

from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches

Where = tuple[str | int, ...]
"""Path of a field, for example ``("states", "activity", "fields", "flights", "agg")``."""


BAD_PIPELINE = "bad-pipeline"


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong. ``kind``: the kind of the error that is raised where all problems have the same."""

    where: Where
    text: str
    kind: str = BAD_PIPELINE


@dataclass(frozen=True)
class DefinitionError:
    """A pipeline file that does not load; ``message`` names the file, and has a line for each problem."""

    path: str
    message: str
    hint: str = ""
    kind: str = BAD_PIPELINE


def dotted(where: Where) -> str:
    return ".".join(map(str, where))


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """``, did you mean 'x'?`` or nothing."""
    close = get_close_matches(word, list(known), 1)
    return f", did you mean {close[0]!r}?" if close else ""
