"""The form in which an error of a task reaches the driver. It is JSON text, because Spark passes only the text of an
error that a task raised."""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass

from statelib import errors
from statelib.errors import StatelibError
from statelib.model.failure import CheckpointFailureReason

MAX_MESSAGE = 500
"""The maximum number of characters of the message of an error that is not of statelib."""
USER_CODE = re.compile(r"in (?:function \S+ of state |hooks\.\w+, \S+, of subtask )")
"""The beginning of the note about a function of the user, in an exception that the function raised."""


@dataclass(frozen=True)
class TaskError:
    """An error of one subtask.

    Attributes:
        subtask: The number of the subtask.
        reason: The reason that the catalog records for the attempt.
        type: The name of the exception's class.
        message: The message of the exception, and the user's function that raised it.
        kind: The ``kind`` of an error of statelib; '' for any other exception.
        hint: The ``hint`` of an error of statelib.
    """

    subtask: int
    reason: CheckpointFailureReason
    type: str
    message: str
    kind: str = ""
    hint: str = ""

    @staticmethod
    def of(
        error: Exception, subtask: int, reason: CheckpointFailureReason = CheckpointFailureReason.TASK_FAILURE
    ) -> "TaskError":
        """Return the form of an exception that the subtask raised."""
        if isinstance(error, StatelibError):
            return TaskError(subtask, reason, type(error).__name__, error.message, error.kind, error.hint)
        places = [note for note in getattr(error, "__notes__", ()) if USER_CODE.match(note)]
        message = ", ".join([str(error)[:MAX_MESSAGE], *places])
        return TaskError(subtask, reason, type(error).__name__, message)

    @staticmethod
    def from_json(text: str) -> "TaskError":
        """Return the error that :meth:`to_json` wrote."""
        values = json.loads(text)
        return TaskError(**{**values, "reason": CheckpointFailureReason(values["reason"])})

    def to_json(self) -> str:
        """Return the error as one line."""
        return json.dumps(asdict(self))

    def note(self, token: str) -> str:
        """Return the note that :func:`task_error_in` finds with this token."""
        return f"statelib {token}: {self} {self.to_json()}"

    def __str__(self) -> str:
        ended = "failed" if self.reason is CheckpointFailureReason.TASK_FAILURE else "declined the checkpoint"
        text = " ".join(f"{self.type}: {self.message}".split())
        return f"subtask {self.subtask} {ended}, {self.reason}: {text[:MAX_MESSAGE]}"

    def error(self) -> StatelibError | None:
        """Return the error of statelib that the subtask raised; None if it raised another exception."""
        error_class = getattr(errors, self.type, None) if self.kind else None
        if not (isinstance(error_class, type) and issubclass(error_class, StatelibError)):
            return None
        error: StatelibError = error_class(self.message, kind=self.kind, hint=self.hint)
        return error


@contextmanager
def noting_task_error(
    token: str, subtask: int, reason: CheckpointFailureReason = CheckpointFailureReason.TASK_FAILURE
) -> Iterator[None]:
    """Add the :class:`TaskError` of an exception of the block to its notes, which are part of the text that Spark
    passes on. If such blocks are nested, the note of the inner one counts.

    ``token``: a secret of the driver and its tasks, such as the id of the attempt, so that the text of a user's
    exception cannot be mistaken for a note."""
    try:
        yield
    except Exception as error:
        task_error = TaskError.of(error, subtask, reason)
        error.add_note(task_error.note(token))
        raise


def task_error_in(error: BaseException, token: str) -> TaskError | None:
    """Return the first error that :func:`noting_task_error` noted with this token in ``error``; None if there is
    none."""
    text = "\n".join([str(error), *getattr(error, "__notes__", ())])
    note = re.search(rf"statelib {token}: .*? (\{{\"subtask\".*\}})\s*$", text, re.MULTILINE)
    return None if note is None else TaskError.from_json(note[1])


@contextmanager
def raising_task_errors(token: str) -> Iterator[None]:
    """Raise the error of statelib that a task raised, in place of the error of the block that contains its text. Other
    errors are not changed. The raised error has the note of the task."""
    try:
        yield
    except Exception as error:
        task_error = task_error_in(error, token)
        own_error = task_error.error() if task_error is not None else None
        if task_error is None or own_error is None or isinstance(error, StatelibError):
            raise
        own_error.add_note(task_error.note(token))
        raise own_error from error


def failure_in(error: BaseException, token: str) -> tuple[CheckpointFailureReason, str]:
    """Return the (reason, text) that the catalog records for a failed attempt: those of the :class:`TaskError` in
    ``error``, else TASK_FAILURE and the first line of its text."""
    task_error = task_error_in(error, token)
    if task_error is not None:
        return task_error.reason, str(task_error)
    first_line = next((line for line in str(error).splitlines() if line.strip()), "")
    return CheckpointFailureReason.TASK_FAILURE, f"{type(error).__name__}: {first_line[:MAX_MESSAGE]}"
