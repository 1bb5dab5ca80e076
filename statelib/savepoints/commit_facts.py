"""The facts that the catalog records of a completed checkpoint or savepoint."""

from dataclasses import replace

from statelib.errors import CorruptStateError
from statelib.model.checkpoint import FileRecord
from statelib.model.record import CommitFacts
from statelib.savepoints.opened import Checkpoint
from statelib.savepoints.verification.held_files import check_files
from statelib.storage.registry import PLACES
from statelib.wire.checksum import crc32c


def commit_facts(opened: Checkpoint, report_uri: str) -> CommitFacts:
    """Return the facts that the catalog records of a snapshot whose files are complete on storage. ``report_uri``: the
    URI of the report about the check of the snapshot.

    Raises InvalidRequestError as :func:`~statelib.savepoints.verification.held_files.check_files` does, and
    CorruptStateError (``no-manifest``) for a snapshot without a manifest."""
    manifest = opened.manifest
    if manifest is None:
        raise CorruptStateError(f"{opened.directory}: _metadata has no statelib manifest", kind="no-manifest")
    check_files(opened)
    return CommitFacts(
        attempt=manifest.attempt,
        entries=manifest.entries,
        keys=manifest.total_keys,
        size_bytes=opened.metadata_size_bytes + sum(f.size_bytes for f in manifest.files),
        events=manifest.events,
        report=report_uri,
        metadata_crc32c=crc32c(opened.metadata_bytes),
        metadata_size_bytes=opened.metadata_size_bytes,
        files=tuple(_absolute(opened.directory, f) for f in manifest.files),
        measured=manifest.measured,
    )


def _absolute(directory: str, record: FileRecord) -> FileRecord:
    return replace(record, path=PLACES.file_uri(directory, record.path))
