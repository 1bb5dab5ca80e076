"""Identifiers: plain values with names, so that one cannot be handed in for another."""

import re
from typing import NewType

from statelib.errors import InvalidRequestError

PipelineName = NewType("PipelineName", str)
CheckpointId = NewType("CheckpointId", int)
"""Grows by one a pipeline and is never reused, aborted checkpoints included."""
Epoch = NewType("Epoch", int)
"""Fencing token of a coordinator: only grows; a smaller one may change nothing."""
AttemptId = NewType("AttemptId", str)
"""32 lower-case hex digits, new for every try at writing a checkpoint; part of every file name."""

MAX_NUMBER = 2**53 - 1
"""The largest id, epoch and generation: what every reader of JSON keeps exactly. No pipeline gets there by itself."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")


def pipeline_name(text: str) -> PipelineName:
    """Check a pipeline's name: it becomes part of paths, DAG ids and SQL rows.

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
    """Return an id, epoch or generation that is about to be given out.

    Raises InvalidRequestError (``numbers-exhausted``): what is written with a larger one could not be read."""
    if value > MAX_NUMBER:
        raise InvalidRequestError(
            f"pipeline {pipeline} would get the {what} {value}: expected at most {MAX_NUMBER}",
            kind="numbers-exhausted",
            hint="a forged snapshot was entered into the catalog: rebuild it without that one",
        )
    return value


def is_pipeline_name(text: str) -> bool:
    """Whether a pipeline may have that name."""
    return _NAME.fullmatch(text) is not None and ".." not in text
