"""The errors of statelib, classed by what the caller should do about them.

The class says how to react, ``kind`` says what happened (append-only words, safe to match
on), ``hint`` names the command or setting that helps. Messages say what, where, expected,
found; names out of damaged bytes cannot make them unreadable. All of them survive pickling, because Spark and
Airflow carry them across processes.
"""

from typing import Any, ClassVar

from statelib.visible import visible

MAX_MESSAGE = 4000
"""Characters; of a longer one the middle is left out."""


class StatelibError(Exception):
    """Root of every error that statelib raises on purpose."""

    keeps_lines: ClassVar[bool] = True
    """Whether the message may have several lines, of statelib's making."""

    def __init__(self, message: str, *, kind: str, hint: str = "") -> None:
        self.message = _readable(message, self.keeps_lines)
        super().__init__(self.message)
        self.kind = kind
        self.hint = visible(hint, lines=True)

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.message, self.kind, self.hint)


class RetryableError(StatelibError):
    """Nothing is wrong with the request: the same call may succeed later."""


class ConflictError(StatelibError):
    """Somebody else changed the thing first (epoch lost, name taken): re-read, then decide."""


class NotFoundError(StatelibError):
    """The named thing does not exist."""


class InvalidRequestError(StatelibError):
    """The request itself is wrong: change it before calling again."""


class CorruptStateError(StatelibError):
    """Stored bytes are not what was written: never served, never repaired by guessing."""

    keeps_lines = False


class UnsupportedError(StatelibError):
    """The bytes are well-formed but statelib does not handle this feature; names the feature."""

    keeps_lines = False


def _readable(message: str, keeps_lines: bool) -> str:
    """Return the message with hidden characters as escapes, and nothing longer than :data:`MAX_MESSAGE`."""
    if len(message) > MAX_MESSAGE:
        message = f"{message[: MAX_MESSAGE // 2]} [...] {message[-MAX_MESSAGE // 2 + 7 :]}"
    return visible(message, lines=keeps_lines)


def _rebuild(cls: type[StatelibError], message: str, kind: str, hint: str) -> StatelibError:
    return cls(message, kind=kind, hint=hint)
