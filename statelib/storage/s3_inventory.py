"""What lies below a checkpoint's prefix on S3, compared with what should: nothing is changed here."""

from collections.abc import Callable, Sequence

from statelib.errors import NotFoundError
from statelib.model.checkpoint import FileRecord
from statelib.model.handles import FileStateHandle, RelativeFileStateHandle
from statelib.storage.inventory import FileFinding, Problem, StoredFile
from statelib.storage.retries import Retries
from statelib.storage.s3_objects import S3Objects
from statelib.storage.s3_reader import S3Reader
from statelib.storage.s3_uris import S3Location, is_s3, s3_location
from statelib.wire.checksum import crc32c


def s3_verify_files(
    directory: str, files: Sequence[FileRecord], read_data: bool, retries: Retries, allowed_root: str | None = None
) -> list[FileFinding]:
    """As :func:`statelib.storage.inventory.verify_files`. A storage that does not answer raises RetryableError: it
    says nothing about the objects."""
    reader = S3Reader(directory, retries, allowed_root=allowed_root)
    places = [reader.locate(_handle(record)) for record in files]
    objects = S3Objects(s3_location(directory).bucket, retries)
    return [_verify(objects, record, place, read_data) for record, place in zip(files, places, strict=True)]


def _handle(record: FileRecord) -> FileStateHandle | RelativeFileStateHandle:
    return (FileStateHandle if is_s3(record.path) else RelativeFileStateHandle)(record.path, record.size_bytes)


def _verify(objects: S3Objects, record: FileRecord, place: S3Location, read_data: bool) -> FileFinding:
    def finding(problem: Problem, size: int | None = None, crc: int | None = None) -> FileFinding:
        return FileFinding(record.path, record.key_group_range, record.size_bytes, size, record.crc32c, crc, problem)

    try:
        size = objects.size(place.key)
        if size != record.size_bytes:
            return finding("size", size)
        if not read_data:
            return finding("", size)
        crc = _crc32c(objects, place.key)
        return finding("" if crc == record.crc32c else "checksum", size, crc)
    except NotFoundError as error:
        if error.kind != "missing-file":
            raise
        return finding("missing")


def _crc32c(objects: S3Objects, key: str) -> int:
    crc = 0

    def begin(_size_bytes: int) -> Callable[[memoryview], None]:
        nonlocal crc
        crc = 0
        return take

    def take(block: memoryview) -> None:
        nonlocal crc
        crc = crc32c(block, crc)

    objects.scan(key, begin)
    return crc


def s3_list_files(directory: str, retries: Retries) -> list[StoredFile]:
    """All objects below a prefix, by key. Raises NotFoundError (``missing-file``) if there are none, since S3 has
    no empty directories."""
    root = s3_location(directory)
    found = S3Objects(root.bucket, retries).list(root.key)
    if not found:
        raise NotFoundError(f"listing {root.uri}: no object below it", kind="missing-file")
    start = len(root.key) + 1 if root.parts else 0
    return [StoredFile(item.key[start:], item.size_bytes, item.modified_at_ms, True) for item in found]
