"""Snapshots with a forged manifest, made from good snapshots; on files and on objects."""

from collections.abc import Callable
from dataclasses import replace

from statelib.formats.manifest.trailer import append_manifest
from statelib.formats.metadata.metadata_file import encode_metadata
from statelib.model.checkpoint import CheckpointManifest, FileRecord
from statelib.model.key_groups import KeyGroupRange
from statelib.savepoints.opened import open_checkpoint
from statelib.storage.registry import PLACES
from statelib.wire.checksum import content_hash
from tests.integration.garbage import bytes_at, put_bytes

Change = Callable[[CheckpointManifest], CheckpointManifest]


def rewritten(directory: str, change: Change) -> None:
    """Write the ``_metadata`` of the snapshot there anew, with the manifest that ``change`` makes."""
    opened = open_checkpoint(directory)
    assert opened.manifest is not None
    data = append_manifest(encode_metadata(opened.metadata), change(opened.manifest))
    put_bytes(f"{opened.directory}/_metadata", data)


def copied(directory: str, to: str, change: Change | None = None) -> str:
    """Copy a snapshot that lies in one directory, and return the URI of the copy."""
    target = PLACES.kind(to).normalised(to)
    for file in PLACES.kind(directory).list_files(directory):
        put_bytes(f"{target}/{file.path}", bytes_at(f"{directory}/{file.path}"))
    if change is not None:
        rewritten(target, change)
    return target


def described(uri: str, named: str | None = None) -> FileRecord:
    """Return a record that describes a file correctly. ``named``: the path in the record, None: the file's URI."""
    data = bytes_at(uri)
    checksums = content_hash(data)
    return FileRecord(named or uri, len(data), checksums.crc32c, 0, KeyGroupRange(0, 0), xxh3=checksums.xxh3)


def also_naming(*records: FileRecord) -> Change:
    """Let the manifest name more files than the snapshot has."""
    return lambda manifest: replace(manifest, files=(*manifest.files, *records))
