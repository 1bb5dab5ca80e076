"""Taking objects away: what retention, gc and the orphan sweep do to a bucket.

A lost reply of a delete is harmless, because deleting what is gone is success. The objects that stand for what
buckets do not have are no files: :data:`LOCATION_NAME` is a directory, :data:`PROBE_NAME` belongs to a root.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from statelib.errors import InvalidRequestError, NotFoundError, RetryableError
from statelib.storage.filesystem.inventory import StoredFile
from statelib.storage.filesystem.removal import outside_root
from statelib.storage.objects.bucket import Bucket
from statelib.storage.objects.publish import PROBE_NAME
from statelib.storage.objects.storage import LOCATION_NAME
from statelib.storage.objects.uris import ObjectLocation, is_object, object_location
from statelib.storage.retries import Retries

CLOCK_NAME = ".clock.tmp"
_STAND_INS = (LOCATION_NAME, PROBE_NAME)


@dataclass(frozen=True)
class ObjectRemover:
    """A :class:`~statelib.storage.filesystem.removal.CheckpointRemover` of buckets."""

    retries: Retries = field(repr=False)
    files_at_once: ClassVar[int] = 100

    def list_files(self, directory: str) -> list[StoredFile]:
        root = object_location(directory)
        start = len(root.key) + 1 if root.parts else 0
        return [
            StoredFile(found.key[start:], found.size_bytes, found.modified_at_ms, True)
            for found in self._bucket(root).list(root.key)
            if found.key.rpartition("/")[2] not in _STAND_INS
        ]

    def list_directories(self, directory: str) -> frozenset[str]:
        root = object_location(directory)
        return frozenset(f"{root.bucket_uri}/{key}" for key in self._bucket(root).prefixes(root.key))

    def now_ms(self, directory: str) -> int:
        probe = object_location(directory).below(CLOCK_NAME)
        bucket = self._bucket(probe)

        def attempt() -> int:
            bucket.put(probe.key, 0, lambda: iter(()))
            try:
                return bucket.look(probe.key).modified_at_ms
            except NotFoundError:  # another sweep looks at the clock and has just removed it
                raise RetryableError(f"reading the clock of {directory}: no probe", kind="storage-io") from None

        try:
            return self.retries.run(attempt)
        finally:
            bucket.delete(probe.key)

    def remove_file(self, uri: str, roots: Sequence[str]) -> bool:
        location = _placed(uri, roots)
        bucket = self._bucket(location)
        try:
            bucket.look(location.key)
        except NotFoundError as error:
            if error.kind != "missing-file":
                raise
            return False
        bucket.delete(location.key)
        return True

    def remove_files(self, uris: Sequence[str], roots: Sequence[str]) -> None:
        keys: dict[str, list[str]] = {}
        for location in [_placed(uri, roots) for uri in uris]:
            keys.setdefault(location.bucket_uri, []).append(location.key)
        for bucket_uri, chosen in keys.items():
            Bucket(bucket_uri, self.retries).delete_all(chosen)

    def remove_directory(self, uri: str, roots: Sequence[str]) -> bool:
        location = _placed(uri, roots)
        bucket, stand_in = self._bucket(location), location.below(LOCATION_NAME).key
        if [found.key for found in bucket.list(location.key, at_most=2)] != [stand_in]:
            return False
        bucket.delete(stand_in)
        return True

    def _bucket(self, location: ObjectLocation) -> Bucket:
        return Bucket(location.bucket_uri, self.retries)


def is_object_below(uri: str, roots: Sequence[str]) -> bool:
    """As :func:`statelib.storage.filesystem.removal.is_below`, of objects."""
    try:
        _placed(uri, roots)
    except InvalidRequestError:
        return False
    return True


def _placed(uri: str, roots: Sequence[str]) -> ObjectLocation:
    location = object_location(uri)
    if not any(object_location(root).holds(location) for root in roots if is_object(root)):
        raise outside_root(location.uri, roots)
    return location
