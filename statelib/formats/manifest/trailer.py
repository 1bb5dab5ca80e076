"""The trailer of ``_metadata`` that holds statelib's manifest; Flink stops reading before it.

Layout, big-endian; E is the offset where Flink's version-3 part ends::

    E   8 bytes  "STATELIB"
        u32      version = 1
        u32      length of the body
        body     UTF-8 JSON (``formats.manifest.manifest_json``)
        u32      CRC-32C of every byte before this field, Flink's part included
        u32      length of the trailer, from E to the end of the file
        8 bytes  "BILETATS"

Every damaged bit and every cut is detected: the CRC covers all but the last 12 bytes, and those must lead back to E.
Source: docs/spec/formats.md#manifest (Flink ignores bytes after its part).
"""

import json

from statelib.errors import CorruptStateError, StatelibError, UnsupportedError
from statelib.formats.manifest.manifest_json import manifest_from_json, manifest_to_json
from statelib.formats.metadata.metadata_file import WRITTEN_VERSION, decode_metadata
from statelib.model.amounts import number_of
from statelib.model.checkpoint import CheckpointManifest, CheckpointMetadata
from statelib.wire.checksum import crc32c
from statelib.wire.reader import Reader
from statelib.wire.writer import Writer

MANIFEST_VERSION = 1
OWN_STATE_PREFIX = "statelib."
"""The prefix of the operator states that statelib writes only together with a manifest or its signature."""
_START, MANIFEST_END = b"STATELIB", b"BILETATS"
_HEAD_BYTES, FOOT_BYTES = 16, 16
SIGNATURE = b"\0written:STATELIB"
"""The last bytes of ``_metadata`` in a savepoint that statelib wrote for Flink, which has no manifest.

They only record who wrote the file: a file without them is read in the same way, unless it has operator state of
statelib, which a rewritten savepoint of a pipeline keeps.
"""


def append_manifest(metadata: bytes, manifest: CheckpointManifest) -> bytes:
    """Return the whole ``_metadata`` file: Flink's bytes of version 3 (from ``encode_metadata``), then the trailer."""
    body = json.dumps(manifest_to_json(manifest), separators=(",", ":"), sort_keys=True, ensure_ascii=False).encode()
    writer = Writer()
    writer.put(metadata)
    writer.put(_START)
    writer.u32(MANIFEST_VERSION)
    writer.u32(len(body))
    writer.put(body)
    writer.u32(crc32c(writer.getvalue()))
    writer.u32(_HEAD_BYTES + len(body) + FOOT_BYTES)
    writer.put(MANIFEST_END)
    return writer.getvalue()


def read_checkpoint_file(
    data: bytes | memoryview, what: str = "_metadata", expect_manifest: bool = False
) -> tuple[CheckpointMetadata, CheckpointManifest | None]:
    """Read a whole ``_metadata`` file; the manifest is None if Flink wrote the file.

    ``expect_manifest``: statelib wrote the file, so a missing manifest is an error. ``what`` names the file in errors.
    Raise CorruptStateError (``corrupt-metadata``, or the kind of the damaged part), and UnsupportedError for versions
    and handles that cannot be read.
    """
    view = memoryview(data).cast("B")
    if bytes(view[-len(MANIFEST_END) :]) == MANIFEST_END:
        return _read_with_manifest(view, what)
    metadata, end = decode_metadata(view, what)
    is_signed = bytes(view[end:]) == SIGNATURE
    if end != len(view) and not is_signed:
        raise _corrupt(what, f"{len(view) - end} unknown bytes after Flink's part, which ends at offset {end}")
    if expect_manifest or (_has_own_state(metadata) and not is_signed):
        raise _corrupt(what, f"statelib's manifest is missing at offset {end}: the file was cut short")
    return metadata, None


def _read_with_manifest(view: memoryview, what: str) -> tuple[CheckpointMetadata, CheckpointManifest]:
    if len(view) < _HEAD_BYTES + FOOT_BYTES:
        raise _corrupt(what, f"{number_of(len(view), 'byte')} cannot hold a manifest")
    crc_at = len(view) - FOOT_BYTES
    stored, size = read_foot(Reader(view[crc_at:], what))
    computed = crc32c(view[:crc_at])
    if stored != computed:
        raise _corrupt(what, f"CRC-32C is {computed:08x}, expected {stored:08x}")
    metadata, end = decode_metadata(view, what)
    if end + size != len(view):
        raise _corrupt(what, f"the manifest starts at offset {len(view) - size}, expected {end}")
    manifest_reader = Reader(view[end:crc_at], f"{what}, manifest")
    return metadata, _manifest(read_body(manifest_reader, manifest_reader.remaining), manifest_reader.what)


def read_foot(reader: Reader) -> tuple[int, int]:
    """Read the last 16 bytes of the file, and return its CRC-32C and the size of the trailer in bytes."""
    crc_and_size = reader.u32("CRC-32C"), reader.u32("size of the manifest")
    reader.take(len(MANIFEST_END), "end")
    return crc_and_size


def read_body(reader: Reader, size_bytes: int) -> memoryview:
    """Read the start of the trailer and return its JSON body, which ends ``size_bytes`` after the reader's offset.

    Raise CorruptStateError (``corrupt-metadata``), and UnsupportedError (``manifest-version``).
    """
    end = reader.offset + size_bytes
    start = bytes(reader.take(len(_START), "start"))
    if start != _START:
        raise _corrupt(reader.what, f"starts with {start!r}, expected {_START!r}")
    version, length = reader.u32("version"), reader.u32("length")
    if version != MANIFEST_VERSION:
        raise UnsupportedError(
            f"{reader.what}: version {version}, can be read: {MANIFEST_VERSION}",
            kind="manifest-version",
            hint="a newer statelib wrote it",
        )
    if length != end - reader.offset:
        raise _corrupt(reader.what, f"body of {length} bytes, found {end - reader.offset}")
    return reader.take(length, "body")


def _manifest(body: memoryview, what: str) -> CheckpointManifest:
    try:
        return manifest_from_json(json.loads(bytes(body)))
    except (ValueError, OverflowError, RecursionError) as error:
        raise _corrupt(what, f"the body is not what statelib writes: {error}") from error
    except StatelibError as error:
        raise _corrupt(what, f"the body is not what statelib writes: {error.message}") from error


def _has_own_state(metadata: CheckpointMetadata) -> bool:
    """Return whether ``metadata`` has an operator state that is only written together with a manifest. Flink keeps such
    a state in the savepoints of a job that was started from one of statelib's; they have a later version."""
    if metadata.version != WRITTEN_VERSION:
        return False
    handles = (state.operator for operator in metadata.operators for _, state in operator.subtasks)
    return any(name.startswith(OWN_STATE_PREFIX) for handle in handles if handle for name, _, _ in handle.states)


def _corrupt(what: str, problem: str) -> CorruptStateError:
    return CorruptStateError(f"{what}: {problem}", kind="corrupt-metadata")
