"""Problems of a pipeline file: the place of each, and a text that helps to correct it."""

from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from statelib.errors import InvalidRequestError

Where = tuple[str | int, ...]
"""Path of a field, for example ``("states", "activity", "fields", "flights", "agg")``."""


BAD_PIPELINE = "bad-pipeline"


@dataclass(frozen=True)
class Problem:
    """One problem of a file. ``kind``: the kind of the error that is raised if all problems have the same one."""

    where: Where
    text: str
    kind: str = BAD_PIPELINE


@dataclass(frozen=True)
class DefinitionError:
    """A pipeline file that does not load. ``message`` names the file, and has one line per problem. ``pipeline``: the
    name of a pipeline that has another file already; '' for a file with another fault. ``group``: the group that
    the file names although it does not load; '' if it names none."""

    path: str
    message: str
    hint: str = ""
    kind: str = BAD_PIPELINE
    pipeline: str = ""
    group: str = ""

    def may_be(self, pipeline: str) -> bool:
        """Return whether the file is probably meant as the file of the pipeline: by the name in it, or else by its own
        name."""
        return pipeline == (self.pipeline or Path(self.path).stem)

    def error(self) -> InvalidRequestError:
        """Return the error of an operation that needs the file."""
        return InvalidRequestError(self.message, kind=self.kind, hint=self.hint)


def dotted(where: Where) -> str:
    """Return the path of a field with dots."""
    return ".".join(map(str, where))


def did_you_mean(word: str, allowed: Iterable[str]) -> str:
    """Return ``, did you mean 'x'?`` with the most similar allowed word, '' if none is similar."""
    close = get_close_matches(word, list(allowed), 1)
    return f", did you mean {close[0]!r}?" if close else ""
