"""The names of what an attempt writes, made and recognised."""

import re

from statelib.errors import InvalidRequestError
from statelib.model.ids import AttemptId
from statelib.storage.uris import shown

_ATTEMPT = re.compile(r"[0-9a-f]{32}")


def checked_number(value: int, what: str) -> int:
    """An id that becomes part of a name: a plain integer, whatever its annotation promised."""
    if type(value) is not int or value < 0:
        raise InvalidRequestError(f"{what} {shown(str(value))}: expected an integer >= 0", kind="bad-id")
    return value


def file_prefix(attempt: AttemptId, subtask: int) -> str:
    """What the names of one try's files begin with; a number follows."""
    if not _ATTEMPT.fullmatch(attempt):
        raise InvalidRequestError(
            f"attempt {shown(attempt)}: expected 32 lower-case hexadecimal digits", kind="bad-attempt"
        )
    return f"{attempt}-{checked_number(subtask, 'subtask')}-"


def is_numbered(name: str, prefix: str) -> bool:
    """Whether a name is ``prefix`` and a number."""
    number = name.removeprefix(prefix)
    return number != name and number.isascii() and number.isdecimal()
