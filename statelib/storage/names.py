"""The names of snapshots' directories, and of what an attempt writes in them: made and recognised."""

import itertools
import re

from statelib.errors import InvalidRequestError
from statelib.model.ids import MAX_NUMBER, AttemptId, CheckpointId, PipelineName
from statelib.storage.uris import shown

TASK_OWNED_DIRECTORY = "taskowned"
"""Below a pipeline's directory, as in Flink; what lies there no coordinator removes."""

SHARED_DIRECTORY = "shared"
"""Below a pipeline's directory: files that several of its checkpoints may refer to."""

SAVEPOINTS_DIRECTORY = "savepoints"
"""Below a storage's root, beside the pipelines."""

CHECKPOINT_PREFIX = "chk-"
"""Of the name of a checkpoint's directory."""
_ATTEMPT = re.compile(r"[0-9a-f]{32}")
_NUMBER = re.compile(r"0|[1-9][0-9]{0,15}")
_task_owned = itertools.count()


def _checked_number(value: int, what: str) -> int:
    """An id that becomes part of a name: a plain integer, whatever its annotation promised."""
    if type(value) is not int or value < 0:
        raise InvalidRequestError(f"{what} {shown(str(value))}: expected an integer >= 0", kind="bad-id")
    return value


def checkpoint_directory(checkpoint_id: CheckpointId) -> str:
    """The name of a checkpoint's directory in its pipeline's: ``chk-<id>``."""
    return f"{CHECKPOINT_PREFIX}{_checked_number(checkpoint_id, 'checkpoint id')}"


def checkpoint_number(directory: str) -> CheckpointId | None:
    """The other way round; None for any other name."""
    number = directory.removeprefix(CHECKPOINT_PREFIX)
    if number == directory or not _NUMBER.fullmatch(number) or int(number) > MAX_NUMBER:
        return None
    return CheckpointId(int(number))


def savepoint_directory(pipeline: PipelineName, checkpoint_id: CheckpointId) -> str:
    """The name of a savepoint's directory, in :data:`SAVEPOINTS_DIRECTORY` or where its user wants it."""
    return f"savepoint-{pipeline}-{_checked_number(checkpoint_id, 'checkpoint id')}"


def file_prefix(attempt: AttemptId, subtask: int) -> str:
    """What the names of one try's files begin with; a number follows."""
    if not _ATTEMPT.fullmatch(attempt):
        raise InvalidRequestError(
            f"attempt {shown(attempt)}: expected 32 lower-case hexadecimal digits", kind="bad-attempt"
        )
    return f"{attempt}-{_checked_number(subtask, 'subtask')}-"


def is_numbered(name: str, prefix: str) -> bool:
    """Whether a name is ``prefix`` and a number."""
    number = name.removeprefix(prefix)
    return number != name and number.isascii() and number.isdecimal()


def task_owned_name(attempt: AttemptId, subtask: int) -> str:
    """A name that is not given twice: numbers are this process's own, and no other process works for the attempt."""
    return f"{file_prefix(attempt, subtask)}{next(_task_owned)}"


def is_task_owned(path: str) -> bool:
    """Whether a file's path or URI leads into the directory of task-owned state."""
    return TASK_OWNED_DIRECTORY in path.split("/")[:-1]
