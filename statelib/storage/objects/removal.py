"""Removing the objects of checkpoints, for retention, gc and the orphan sweep.

Deleting an object that is gone succeeds, so the lost reply of a delete is harmless. Two kinds of objects are not listed
as files: :data:`LOCATION_NAME` stands for a directory, :data:`PUT_PROBE_NAME` belongs to a root.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from statelib.errors import NotFoundError, RetryableError
from statelib.storage.names import CLOCK_PROBE_NAME, LOCATION_NAME, PUT_PROBE_NAME
from statelib.storage.objects.bucket import Bucket
from statelib.storage.objects.uris import ObjectLocation, object_location
from statelib.storage.ports.inventory import StoredFile
from statelib.storage.ports.removal import outside_root
from statelib.storage.retries import Retries

_STAND_INS = (LOCATION_NAME, PUT_PROBE_NAME)


@dataclass(frozen=True)
class ObjectRemover:
    """A :class:`~statelib.storage.ports.removal.CheckpointRemover` of buckets."""

    retries: Retries = field(repr=False)
    files_at_once: ClassVar[int] = 100

    def list_files(self, directory: str) -> list[StoredFile]:
        root = object_location(directory)
        start = len(root.key) + 1 if root.parts else 0
        return [
            StoredFile(item.key[start:], item.size_bytes, item.modified_at_ms, True)
            for item in self._bucket(root).list(root.key)
            if item.key.rpartition("/")[2] not in _STAND_INS
        ]

    def list_directories(self, directory: str) -> frozenset[str]:
        root = object_location(directory)
        return frozenset(f"{root.bucket_uri}/{key}" for key in self._bucket(root).prefixes(root.key))

    def now_ms(self, directory: str) -> int:
        probe = object_location(directory).below(CLOCK_PROBE_NAME)
        bucket = self._bucket(probe)

        def attempt() -> int:
            bucket.put(probe.key, 0, lambda: iter(()))
            try:
                return bucket.look(probe.key).modified_at_ms
            except NotFoundError:  # another sweep reads the clock too and has just removed the probe
                raise RetryableError(f"reading the clock of {directory}: no probe", kind="storage-io") from None

        try:
            return self.retries.run(attempt)
        finally:
            bucket.delete(probe.key)

    def remove_file(self, uri: str, roots: Sequence[str]) -> bool:
        location = _below_root(uri, roots)
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
        for location in [_below_root(uri, roots) for uri in uris]:
            keys.setdefault(location.bucket_uri, []).append(location.key)
        for bucket_uri, bucket_keys in keys.items():
            Bucket(bucket_uri, self.retries).delete_all(bucket_keys)

    def remove_directory(self, uri: str, roots: Sequence[str]) -> bool:
        location = _below_root(uri, roots)
        bucket, stand_in = self._bucket(location), location.below(LOCATION_NAME).key
        try:
            keys = [item.key for item in bucket.list(location.key, at_most=2)]
        except NotFoundError:  # the bucket is gone, and all that was in it
            return False
        if keys != [stand_in]:
            return False
        bucket.delete(stand_in)
        return True

    def _bucket(self, location: ObjectLocation) -> Bucket:
        return Bucket(location.bucket_uri, self.retries)


def _below_root(uri: str, roots: Sequence[str]) -> ObjectLocation:
    """Return the location of a URI. Raise InvalidRequestError (``outside-root``) unless it lies below a root."""
    location = object_location(uri)
    if not any(object_location(root).holds(location) for root in roots):
        raise outside_root(location.uri, roots)
    return location
