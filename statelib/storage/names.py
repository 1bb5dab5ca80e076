"""The layout on disk: the names of all directories and files of a storage, made and recognised in one place.

In ``<root>`` lie ``<pipeline>/chk-<id>/``, ``<pipeline>/shared/``, ``<pipeline>/taskowned/`` and
``savepoints/savepoint-<pipeline>-<id>/``; a savepoint may also lie in a directory that its user chose. A snapshot's
directory holds ``_metadata`` and state files named ``<attempt>-<subtask>-<number>``, as the two others of a pipeline
do. In a bucket these are the prefixes of keys. Names that begin with a dot belong to statelib itself.
"""

import itertools
import re

from statelib.errors import InvalidRequestError
from statelib.model.ids import MAX_NUMBER, AttemptId, CheckpointId, PipelineName, is_pipeline_name
from statelib.storage.uris import shown

TASK_OWNED_DIRECTORY = "taskowned"
"""The directory of task-owned state in a pipeline's directory, as in Flink. Several of its
checkpoints may refer to its files, and gc removes a file to which none refers."""

METADATA_NAME = "_metadata"
"""The name of the file that makes a snapshot. It lies in the snapshot's directory."""

SHARED_DIRECTORY = "shared"
"""The directory, in a pipeline's directory, of files to which several of its checkpoints may refer."""

CHECKPOINT_PREFIX = "chk-"
"""The beginning of the name of a checkpoint's directory."""

SAVEPOINT_PREFIX = "savepoint-"
"""The beginning of the name of a savepoint's directory."""

LOCATION_NAME = ".location"
"""The name of the empty object that stands for a snapshot's directory in a bucket, which has no directories."""

PUT_PROBE_NAME = ".statelib-if-none-match"
"""The name of the object, below the root in a bucket, with which a storage shows that it honours ``If-None-Match``."""

CLOCK_PROBE_NAME = ".clock.tmp"
"""The name of the object that is written and removed to read the clock of a bucket's storage."""

STATE_FILE = re.compile(r"([0-9a-f]{32})-[0-9]+-[0-9]+")
"""The pattern of a state file's name: the attempt that wrote it, the subtask and a number."""

TEMPORARY_FILE = re.compile(r"\..*\.tmp")
"""The pattern of the name of a temporary file or a probe, which a process that was killed may leave behind."""

_ATTEMPT = re.compile(r"[0-9a-f]{32}")
_NUMBER = re.compile(r"0|[1-9][0-9]{0,15}")
_task_owned_numbers = itertools.count()


def _checked_number(value: int, what: str) -> int:
    """Return an id that becomes part of a name. Raise InvalidRequestError (``bad-id``) unless it is an integer >= 0;
    its annotation does not guarantee that."""
    if type(value) is not int or value < 0:
        raise InvalidRequestError(f"{what} {shown(str(value))}: expected an integer >= 0", kind="bad-id")
    return value


def checkpoint_directory(checkpoint_id: CheckpointId) -> str:
    """Return the name of a checkpoint's directory in its pipeline's directory: ``chk-<id>``.

    Raises InvalidRequestError (``bad-id``)."""
    return f"{CHECKPOINT_PREFIX}{_checked_number(checkpoint_id, 'checkpoint id')}"


def checkpoint_number(directory: str) -> CheckpointId | None:
    """Return the checkpoint id in a directory's name, the inverse of :func:`checkpoint_directory`. Return None for any
    other name."""
    number = directory.removeprefix(CHECKPOINT_PREFIX)
    if number == directory or not _NUMBER.fullmatch(number) or int(number) > MAX_NUMBER:
        return None
    return CheckpointId(int(number))


def savepoint_directory(pipeline: PipelineName, checkpoint_id: CheckpointId) -> str:
    """Return the name of a savepoint's directory: ``savepoint-<pipeline>-<id>``. It lies in
    :data:`statelib.model.ids.SAVEPOINTS_DIRECTORY` or in a directory that the user chose.

    Raises InvalidRequestError (``bad-id``)."""
    return f"{SAVEPOINT_PREFIX}{pipeline}-{_checked_number(checkpoint_id, 'checkpoint id')}"


def savepoint_parts(directory: str) -> tuple[PipelineName, CheckpointId] | None:
    """Return the pipeline and the id in the name of a savepoint's directory, the inverse of
    :func:`savepoint_directory`. Return None for any other name."""
    pipeline, _, number = directory.removeprefix(SAVEPOINT_PREFIX).rpartition("-")
    is_savepoint = directory.startswith(SAVEPOINT_PREFIX) and is_pipeline_name(pipeline) and _NUMBER.fullmatch(number)
    return (PipelineName(pipeline), CheckpointId(int(number))) if is_savepoint and int(number) <= MAX_NUMBER else None


def file_prefix(attempt: AttemptId, subtask: int) -> str:
    """Return the beginning of the file names of one subtask's attempt: ``<attempt>-<subtask>-``. A number follows it.

    Raises InvalidRequestError (``bad-attempt``, ``bad-id``)."""
    if not _ATTEMPT.fullmatch(attempt):
        raise InvalidRequestError(
            f"attempt {shown(attempt)}: expected 32 lower-case hexadecimal digits", kind="bad-attempt"
        )
    return f"{attempt}-{_checked_number(subtask, 'subtask')}-"


def temporary_name(name: str, number: int) -> str:
    """Return the name of a file that becomes file ``name`` when it is complete. Several writers take several
    numbers."""
    return f".{name}.{number}.tmp"


def is_numbered(name: str, prefix: str) -> bool:
    """Return whether a name is ``prefix`` followed by a decimal number."""
    number = name.removeprefix(prefix)
    return number != name and number.isascii() and number.isdecimal()


def task_owned_name(attempt: AttemptId, subtask: int) -> str:
    """Return a new name for a file of task-owned state. It is unique, because this process counts its names and no
    other process works for the same attempt."""
    return f"{file_prefix(attempt, subtask)}{next(_task_owned_numbers)}"


def is_task_owned(path: str) -> bool:
    """Return whether a file's path or URI lies in a directory of task-owned state."""
    return TASK_OWNED_DIRECTORY in path.split("/")[:-1]
