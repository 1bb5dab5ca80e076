"""Copying whole objects within a bucket. The storage copies them, so their bytes do not pass through this process."""

from statelib.model.handles import FileStateHandle, StreamStateHandle, whole_file
from statelib.storage.filesystem.reader import check_size
from statelib.storage.objects.bucket import Bucket
from statelib.storage.objects.uris import SCHEMES, ObjectLocation, location_if_object, object_location


def in_bucket_of(handle: StreamStateHandle, directory: ObjectLocation) -> FileStateHandle | None:
    """Return the handle if it stands for a whole object in the bucket of ``directory`` that one request can copy, so
    that the copy is complete when the request is answered. Otherwise return None."""
    file = whole_file(handle)
    original = None if file is None else location_if_object(file.path)
    if file is None or original is None:
        return None
    same_bucket = original.bucket_uri == directory.bucket_uri
    return file if same_bucket and file.size_bytes <= SCHEMES[directory.scheme].copied_bytes else None


def copy_object(objects: Bucket, original: FileStateHandle, target: ObjectLocation) -> None:
    """Copy an object to a new key of the same bucket. If this raises, the caller has to delete ``target``.

    Raises NotFoundError (``missing-file``), CorruptStateError (``size-mismatch``)."""
    objects.copy(object_location(original.path).key, target.key, original.size_bytes)
    check_size(original.path, original.size_bytes, objects.size(target.key))
