"""Listing and verifying the objects below a checkpoint's prefix. Functions here only read."""

from collections.abc import Callable, Sequence

from statelib.errors import NotFoundError
from statelib.model.checkpoint import FileRecord
from statelib.model.handles import FileStateHandle, RelativeFileStateHandle
from statelib.storage.filesystem.inventory import FileFinding, StoredFile, finding, read_finding
from statelib.storage.objects.bucket import Bucket
from statelib.storage.objects.reader import ObjectReader
from statelib.storage.objects.uris import ObjectLocation, is_object, object_location
from statelib.storage.retries import Retries
from statelib.storage.uris import AllowedRoot
from statelib.wire.checksum import ContentHash


def verify_objects(
    directory: str, files: Sequence[FileRecord], read_data: bool, retries: Retries, allowed_root: AllowedRoot = None
) -> list[FileFinding]:
    """Return one finding per record, like :func:`statelib.storage.filesystem.inventory.verify_files`.

    Raises InvalidRequestError (``outside-root``), and RetryableError if the storage does not answer."""
    reader = ObjectReader(directory, retries, allowed_root=allowed_root)
    places = [reader.locate(_handle(record)) for record in files]
    objects = Bucket(object_location(directory).bucket_uri, retries)
    return [_verify(objects, record, place, read_data) for record, place in zip(files, places, strict=True)]


def _handle(record: FileRecord) -> FileStateHandle | RelativeFileStateHandle:
    return (FileStateHandle if is_object(record.path) else RelativeFileStateHandle)(record.path, record.size_bytes)


def _verify(objects: Bucket, record: FileRecord, place: ObjectLocation, read_data: bool) -> FileFinding:
    try:
        size = objects.size(place.key)
        if size != record.size_bytes:
            return finding(record, "size", size)
        if not read_data:
            return finding(record, "", size)
        return read_finding(record, size, _content(objects, place.key))
    except NotFoundError as error:
        if error.kind != "missing-file":
            raise
        return finding(record, "missing")


def _content(objects: Bucket, key: str) -> ContentHash:
    """Read an object and return the checksums of its bytes."""
    content = ContentHash()

    def begin(_size_bytes: int) -> Callable[[memoryview], None]:
        nonlocal content
        content = ContentHash()
        return content.update

    objects.scan(key, begin)
    return content


def list_objects(directory: str, retries: Retries) -> list[StoredFile]:
    """Return all objects below a prefix, sorted by key. Raises NotFoundError (``missing-file``) if there are none,
    because a bucket has no empty directories."""
    root = object_location(directory)
    objects = Bucket(root.bucket_uri, retries).list(root.key)
    if not objects:
        raise NotFoundError(f"listing {root.uri}: no object below it", kind="missing-file")
    start = len(root.key) + 1 if root.parts else 0
    return [StoredFile(item.key[start:], item.size_bytes, item.modified_at_ms, True) for item in objects]
