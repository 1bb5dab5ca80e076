"""Orphans: files on storage that no checkpoint will ever refer to. Told by their names, never by their age alone.

A file's name holds the attempt that wrote it, and lies in the directory of a checkpoint; what the
catalog says of those two decides. A file that leads to neither is not ours and is left alone.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from statelib.model.ids import CheckpointId
from statelib.model.record import CheckpointState

METADATA_NAME = "_metadata"
TASK_OWNED_DIRECTORY = "taskowned"
ATTEMPT_PREFIX = 24
"""Digits of an attempt that all its Spark tasks share; the last eight are the task's own."""

_ATTEMPT = re.compile(r"(?<![0-9a-f])[0-9a-f]{32}(?![0-9a-f])")
_TEMPORARY = re.compile(r"\..*\.tmp")


class Verdict(StrEnum):
    """What a file on storage is."""

    LIVE = "LIVE"
    """Of a completed or pending checkpoint, or gc's to remove."""
    ORPHAN = "ORPHAN"
    """Of an attempt or checkpoint that has ended without it."""
    UNKNOWN_ATTEMPT = "UNKNOWN_ATTEMPT"
    """Of an attempt that the catalog never heard of, older than the grace period."""
    YOUNG = "YOUNG"
    """The same, but younger: whoever writes it may be about to tell."""
    UNKNOWN_CHECKPOINT = "UNKNOWN_CHECKPOINT"
    """A ``_metadata`` that the catalog never heard of: the catalog is older than the storage."""
    TASK_OWNED = "TASK_OWNED"
    """Of a task, which alone removes it."""
    FOREIGN = "FOREIGN"
    """Not named by statelib: somebody else put it there."""


REMOVABLE = (Verdict.ORPHAN, Verdict.UNKNOWN_ATTEMPT)


@dataclass(frozen=True)
class Listed:
    """A file found on storage: absolute URI; modified by the storage's own clock."""

    uri: str
    size_bytes: int
    modified_at_ms: int


@dataclass(frozen=True)
class Known:
    """What the catalog knows, read after the listing was made: whoever wrote a listed file had
    told the catalog of the attempt before.

    ``files``: URIs that are LIVE, or CONDEMNED and hence gc's. ``open_attempts`` and
    ``ended_attempts``: their first 24 digits. ``checkpoints``: directory URI to id and state."""

    files: Collection[str]
    open_attempts: Collection[str]
    ended_attempts: Collection[str]
    checkpoints: Mapping[str, tuple[CheckpointId, CheckpointState]]


@dataclass(frozen=True)
class Found:
    file: Listed
    verdict: Verdict


_KEEPS_METADATA = (
    CheckpointState.PENDING,
    CheckpointState.COMPLETED,
    CheckpointState.QUARANTINED,
    CheckpointState.DELETING,
)
_MAY_WRITE = (CheckpointState.PENDING, CheckpointState.DELETING)


def classify(files: Sequence[Listed], known: Known, storage_now_ms: int, grace_ms: int) -> tuple[Found, ...]:
    """A verdict for each file, in order. ``storage_now_ms``: the storage's own clock."""
    return tuple(Found(file, _verdict(file, known, storage_now_ms - grace_ms)) for file in files)


def _verdict(file: Listed, known: Known, young_since_ms: int) -> Verdict:
    directory, _, name = file.uri.rpartition("/")
    if file.uri in known.files:
        return Verdict.LIVE
    if directory.endswith(f"/{TASK_OWNED_DIRECTORY}"):
        return Verdict.TASK_OWNED
    if name == METADATA_NAME:
        return _of_metadata(directory, known)
    attempt = _ATTEMPT.search(name)
    if attempt:
        found = _of_attempt(attempt.group()[:ATTEMPT_PREFIX], known)
    else:
        found = _of_temporary(directory, known) if _TEMPORARY.fullmatch(name) else Verdict.FOREIGN
    if found is not None:
        return found
    return Verdict.YOUNG if file.modified_at_ms > young_since_ms else Verdict.UNKNOWN_ATTEMPT


def _of_attempt(prefix: str, known: Known) -> Verdict | None:
    if prefix in known.open_attempts:
        return Verdict.LIVE
    return Verdict.ORPHAN if prefix in known.ended_attempts else None


def _of_temporary(directory: str, known: Known) -> Verdict | None:
    """Whoever publishes into a pending checkpoint may be writing it at this moment."""
    if directory not in known.checkpoints:
        return None
    return Verdict.LIVE if known.checkpoints[directory][1] in _MAY_WRITE else Verdict.ORPHAN


def _of_metadata(directory: str, known: Known) -> Verdict:
    if directory not in known.checkpoints:
        return Verdict.UNKNOWN_CHECKPOINT
    return Verdict.LIVE if known.checkpoints[directory][1] in _KEEPS_METADATA else Verdict.ORPHAN
