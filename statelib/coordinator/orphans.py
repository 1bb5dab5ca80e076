"""The classification of orphans: files on storage that no checkpoint will ever refer to.

A file's name contains the attempt that wrote it, and the file is in the directory of a checkpoint. The catalog's
records of that attempt and that checkpoint decide, never the age of the file alone. A file that names neither was not
written by statelib and is never removed.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from statelib.model.ids import ATTEMPT_PREFIX, CheckpointId
from statelib.model.record import CheckpointState
from statelib.storage.names import METADATA_NAME, TEMPORARY_FILE

_ATTEMPT = re.compile(r"(?<![0-9a-f])[0-9a-f]{32}(?![0-9a-f])")


class Verdict(StrEnum):
    """The result of classifying one file on storage."""

    LIVE = "LIVE"
    """The file belongs to a completed or pending checkpoint, or only gc may remove it."""
    ORPHAN = "ORPHAN"
    """The file belongs to an attempt or a checkpoint that has ended and does not refer to it."""
    UNKNOWN_ATTEMPT = "UNKNOWN_ATTEMPT"
    """The file belongs to an attempt that the catalog has no record of, and is older than the grace period."""
    YOUNG = "YOUNG"
    """The file belongs to an attempt that the catalog has no record of, and is younger than the grace period: the
    process that writes it may be about to record the attempt."""
    UNKNOWN_CHECKPOINT = "UNKNOWN_CHECKPOINT"
    """The file is the ``_metadata`` of a checkpoint that the catalog has no record of: the catalog is older than the
    storage."""
    FOREIGN = "FOREIGN"
    """The name is none that statelib gives to a file: another program wrote it. Or a user put the file into the
    place of a snapshot that had ended."""


REMOVABLE = (Verdict.ORPHAN, Verdict.UNKNOWN_ATTEMPT)
"""The verdicts of files that the orphan sweep removes."""


@dataclass(frozen=True)
class Listed:
    """A file on storage, as its listing returned it.

    Attributes:
        uri: The absolute URI.
        size_bytes: The size in bytes.
        modified_at_ms: The time of the last change, in milliseconds, by the clock of the storage.
    """

    uri: str
    size_bytes: int
    modified_at_ms: int


@dataclass(frozen=True)
class CatalogRecords:
    """The records of the catalog that decide about files on storage.

    They are read after the files were listed. An attempt is recorded before it writes, so the attempt of each listed
    file is among them.

    Attributes:
        files: The URIs that are LIVE, or CONDEMNED, which only gc removes.
        open_attempts: The first 24 digits of each attempt that has not ended.
        ended_attempts: The first 24 digits of each attempt that has ended.
        checkpoints: The id and the state of each checkpoint, by the URI of its directory.
    """

    files: Collection[str]
    open_attempts: Collection[str]
    ended_attempts: Collection[str]
    checkpoints: Mapping[str, tuple[CheckpointId, CheckpointState]]


@dataclass(frozen=True)
class ClassifiedFile:
    """A file on storage and its verdict."""

    file: Listed
    verdict: Verdict


_KEEPS_METADATA = (
    CheckpointState.PENDING,
    CheckpointState.COMPLETED,
    CheckpointState.QUARANTINED,
    CheckpointState.DELETING,
)
_MAY_WRITE = (CheckpointState.PENDING, CheckpointState.DELETING)


def classify(
    files: Sequence[Listed], catalog: CatalogRecords, storage_now_ms: int, grace_ms: int
) -> tuple[ClassifiedFile, ...]:
    """Return each file with its verdict, in the order of ``files``.

    Args:
        files: The files on storage.
        catalog: The records of the catalog, read after the files were listed.
        storage_now_ms: The present time in milliseconds, by the clock of the storage.
        grace_ms: The grace period in milliseconds. A younger file of an unknown attempt is YOUNG.
    """
    return tuple(ClassifiedFile(file, _verdict(file, catalog, storage_now_ms - grace_ms)) for file in files)


def _verdict(file: Listed, catalog: CatalogRecords, young_since_ms: int) -> Verdict:
    """Return the verdict of one file. A file that was changed after ``young_since_ms`` is young."""
    directory, _, name = file.uri.rpartition("/")
    if file.uri in catalog.files:
        return Verdict.LIVE
    if name == METADATA_NAME:
        return _verdict_of_metadata(directory, catalog)
    attempt = _ATTEMPT.search(name)
    if attempt:
        verdict = _verdict_by_attempt(attempt.group()[:ATTEMPT_PREFIX], catalog)
    else:
        verdict = _verdict_of_temporary(directory, catalog) if TEMPORARY_FILE.fullmatch(name) else Verdict.FOREIGN
    if verdict is not None:
        return verdict
    return Verdict.YOUNG if file.modified_at_ms > young_since_ms else Verdict.UNKNOWN_ATTEMPT


def _verdict_by_attempt(prefix: str, catalog: CatalogRecords) -> Verdict | None:
    """Return the verdict of a file by the prefix of its attempt; None if the catalog has no record of the attempt."""
    if prefix in catalog.open_attempts:
        return Verdict.LIVE
    return Verdict.ORPHAN if prefix in catalog.ended_attempts else None


def _verdict_of_temporary(directory: str, catalog: CatalogRecords) -> Verdict | None:
    """Return the verdict of a temporary file; None if the catalog has no record of the checkpoint at ``directory``.

    It is LIVE if a process that publishes the checkpoint may be writing it at this moment."""
    if directory not in catalog.checkpoints:
        return None
    return Verdict.LIVE if catalog.checkpoints[directory][1] in _MAY_WRITE else Verdict.ORPHAN


def _verdict_of_metadata(directory: str, catalog: CatalogRecords) -> Verdict:
    """Return the verdict of the ``_metadata`` file in ``directory``."""
    if directory not in catalog.checkpoints:
        return Verdict.UNKNOWN_CHECKPOINT
    return Verdict.LIVE if catalog.checkpoints[directory][1] in _KEEPS_METADATA else Verdict.ORPHAN
