"""Listing and verifying the objects below a checkpoint's prefix. Functions here only read."""

from collections.abc import Callable, Sequence

from statelib.errors import NotFoundError
from statelib.model.checkpoint import FileRecord
from statelib.storage.objects.bucket import Bucket
from statelib.storage.objects.reader import ObjectReader
from statelib.storage.objects.uris import ObjectLocation, object_location
from statelib.storage.ports.inventory import FileFinding, SourceEntry, StoredFile, finding, read_finding
from statelib.storage.retries import Retries
from statelib.storage.uris import AllowedRoot, file_handle
from statelib.wire.checksum import ContentHash


def verify_objects(
    directory: str, files: Sequence[FileRecord], read_data: bool, retries: Retries, allowed_root: AllowedRoot = None
) -> list[FileFinding]:
    """Return one finding per record, like :func:`statelib.storage.filesystem.inventory.verify_files`.

    Raises InvalidRequestError (``outside-root``), and RetryableError if the storage does not answer."""
    reader = ObjectReader(directory, retries, allowed_root=allowed_root)
    places = [reader.locate(file_handle(record.path, record.size_bytes)) for record in files]
    buckets = {uri: Bucket(uri, retries) for uri in {place.bucket_uri for place in places}}
    pairs = zip(files, places, strict=True)
    return [_verify(buckets[place.bucket_uri], record, place, read_data) for record, place in pairs]


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


def source_entries(root: str, retries: Retries) -> list[SourceEntry]:
    """Return the objects below a prefix; if there are none, the object of exactly this key."""
    location = object_location(root)
    bucket, prefix = Bucket(location.bucket_uri, retries), f"{location.key}/" if location.key else ""
    below = [item for item in bucket.list(location.key) if item.key.startswith(prefix)]
    entries = [SourceEntry(tuple(item.key[len(prefix) :].split("/")), item.modified_at_ms) for item in below]
    return entries or _object(bucket, location.key)


def _object(bucket: Bucket, key: str) -> list[SourceEntry]:
    """Return the object of exactly this key, or an empty list if there is none."""
    try:
        return [SourceEntry((), bucket.look(key).modified_at_ms)] if key else []
    except NotFoundError as error:
        if error.kind != "missing-file":
            raise
        return []
