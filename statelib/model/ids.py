"""Identifiers: plain values with types of their own, so that mypy finds where one is passed for another."""

import re
from typing import NewType

from statelib.errors import InvalidRequestError

PipelineName = NewType("PipelineName", str)
CheckpointId = NewType("CheckpointId", int)
"""The number of a checkpoint: per pipeline one more than the last. No number is reused, not even after an abort."""
Epoch = NewType("Epoch", int)
"""The fencing token of a coordinator. It only grows; a coordinator with a smaller epoch may change nothing."""
AttemptId = NewType("AttemptId", str)
"""The id of one try at writing a checkpoint: 32 lower-case hex digits. The name of each file that the try writes
begins with it."""
ATTEMPT_PREFIX = 24
"""The number of leading digits of an attempt that all its Spark tasks share. The last eight digits differ per task."""

MAX_NUMBER = 2**53 - 1
"""The largest id, epoch and generation: the largest integer that every JSON reader keeps exactly. No pipeline reaches
it by itself."""

SAVEPOINTS_DIRECTORY = "savepoints"
"""The directory of savepoints in a storage's root, beside the directories of pipelines, none of which may have its
name."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")


def pipeline_name(text: str) -> PipelineName:
    """Return the text as a pipeline name after checking it. The name becomes part of paths, DAG ids and SQL rows.

    Raises InvalidRequestError (kind ``bad-name``) unless it matches
    ``[A-Za-z0-9][A-Za-z0-9_.-]{0,127}`` and holds no ``..``.
    """
    if not is_pipeline_name(text):
        raise InvalidRequestError(
            f"pipeline name {text[:140]!r}: expected letters, digits, '_', '.', '-', at most 128, no '..'",
            kind="bad-name",
        )
    return PipelineName(text)


def issued_number(value: int, pipeline: PipelineName, what: str) -> int:
    """Return ``value``, a new id, epoch or generation, after checking that it can be stored.

    Raises InvalidRequestError (``numbers-exhausted``) above :data:`MAX_NUMBER`: a file with a larger number could not
    be read."""
    if value > MAX_NUMBER:
        raise InvalidRequestError(
            f"pipeline {pipeline} would get the {what} {value}: expected at most {MAX_NUMBER}",
            kind="numbers-exhausted",
            hint="a forged snapshot was entered into the catalog: rebuild it without that one",
        )
    return value


def is_pipeline_name(text: str) -> bool:
    """Return whether the text is allowed as a pipeline's name."""
    return _NAME.fullmatch(text) is not None and ".." not in text
