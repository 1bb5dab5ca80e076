"""Reading the objects of a checkpoint. A reader belongs to one prefix of one bucket and verifies what it reads."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from statelib.errors import InvalidRequestError
from statelib.model.handles import (
    ByteStreamStateHandle,
    FilePart,
    RelativeFileStateHandle,
    SegmentFileStateHandle,
    StreamStateHandle,
    checksum_key,
)
from statelib.storage.filesystem.descriptors import write_all
from statelib.storage.filesystem.failures import storage_errors
from statelib.storage.filesystem.reader import (
    check_crc,
    check_file_size,
    check_relocatable,
    copy_inline,
    new_file,
    range_of,
    start_of,
)
from statelib.storage.objects.bucket import Bucket
from statelib.storage.objects.uris import ObjectLocation, location_if_object, object_location
from statelib.storage.retries import Retries
from statelib.storage.uris import AllowedRoot, relative_parts, roots_with, shown
from statelib.wire.checksum import crc32c


@dataclass(frozen=True)
class ObjectReader:
    """A :class:`~statelib.storage.ports.views.StateReader` of the handles in the ``_metadata`` of ``directory_uri``. It
    is a value and can be pickled.

    ``checksums`` maps :func:`~statelib.model.handles.checksum_key` of objects and segments to (size in bytes, crc32c);
    None if there are none.
    ``allowed_root``: absolute URIs may lead below it or below the directory, None for the directory only."""

    directory_uri: str
    retries: Retries = field(repr=False, compare=False)
    checksums: Mapping[str, tuple[int, int]] | None = field(default=None, repr=False)
    allowed_root: AllowedRoot = None

    def read(self, handle: StreamStateHandle) -> memoryview:
        """Return all bytes of a handle, verified. Raises like :meth:`statelib.storage.ports.views.StateReader.read`."""
        if isinstance(handle, ByteStreamStateHandle):
            return memoryview(handle.data)
        if isinstance(handle, SegmentFileStateHandle):
            return self._segment(handle)
        data = bytearray(self._checked(handle))
        filled = 0

        def begin(size_bytes: int) -> Callable[[memoryview], None]:
            nonlocal filled
            filled = 0
            self._check_sizes(handle, size_bytes)
            return take

        def take(block: memoryview) -> None:
            nonlocal filled
            data[filled : filled + len(block)] = block
            filled += len(block)

        location = self.locate(handle)
        self._bucket_of(location).scan(location.key, begin)
        self.check_crc(handle, crc32c(data))
        return memoryview(data).toreadonly()

    def read_range(self, handle: StreamStateHandle, start: int, stop: int) -> memoryview:
        """Return the bytes ``start`` (inclusive) to ``stop`` (exclusive) of a handle. Only the size of the object is
        verified.

        Raises like :meth:`read`, and CorruptStateError (``bad-range``) unless 0 <= start <= stop <= size."""
        if isinstance(handle, ByteStreamStateHandle):
            start, stop = range_of(start, stop, handle.size_bytes, handle.name)
            return memoryview(handle.data)[start:stop]
        start, stop = range_of(start, stop, handle.size_bytes, handle.path)
        return memoryview(self._range(handle, start, stop))

    def copy_to(self, handle: StreamStateHandle, local_path: str) -> None:
        """Copy a handle's bytes into a new local file. They are verified while they are copied, and nothing is left of
        a copy that fails.

        Raises like :meth:`read`, and ConflictError (``name-taken``) if the local file exists."""
        if isinstance(handle, ByteStreamStateHandle):
            copy_inline(handle, local_path)
            return
        if isinstance(handle, SegmentFileStateHandle):
            segment = self._segment(handle)
            with new_file(local_path) as target, storage_errors(f"writing {local_path}"):
                write_all(target, segment)
            return
        location = self.locate(handle)
        crc = 0
        with new_file(local_path) as target:

            def begin(size_bytes: int) -> Callable[[memoryview], None]:
                nonlocal crc
                crc = 0
                self._check_sizes(handle, size_bytes)
                with storage_errors(f"writing {local_path}"):
                    os.ftruncate(target, 0)
                    os.lseek(target, 0, os.SEEK_SET)
                return take

            def take(block: memoryview) -> None:
                nonlocal crc
                crc = crc32c(block, crc)
                with storage_errors(f"writing {local_path}"):
                    write_all(target, block)

            self._bucket_of(location).scan(location.key, begin)
            self.check_crc(handle, crc)

    def locate(self, handle: FilePart) -> ObjectLocation:
        """Return the location of a handle's object. No request is made.

        Raises InvalidRequestError (``outside-root``, ``bad-path``, ``task-owned``)."""
        directory = object_location(self.directory_uri)
        if isinstance(handle, RelativeFileStateHandle):
            return directory.below(*relative_parts(handle.path))
        roots = [object_location(root) for root in roots_with(self.directory_uri, self.allowed_root)]
        location = location_if_object(handle.path)
        if location is not None and any(root.holds(location) for root in roots):
            return location
        check_relocatable(handle.path, " or ".join(root.uri for root in roots))
        raise InvalidRequestError(
            f"handle of {shown(handle.path)}: expected an object below {' or '.join(root.uri for root in roots)}",
            kind="outside-root",
        )

    @cached_property
    def _objects(self) -> Bucket:
        return Bucket(object_location(self.directory_uri).bucket_uri, self.retries)

    def _bucket_of(self, location: ObjectLocation) -> Bucket:
        """Return the bucket of an object. The files of a snapshot that was moved may lie in other buckets than its
        ``_metadata``."""
        own = self._objects
        return own if location.bucket_uri == own.uri else Bucket(location.bucket_uri, self.retries)

    def _segment(self, handle: SegmentFileStateHandle) -> memoryview:
        """Return all bytes of a segment, verified. A segment is small, because only small streams are merged."""
        data = self._range(handle, 0, handle.size_bytes)
        self.check_crc(handle, crc32c(data))
        return memoryview(data)

    def _range(self, handle: FilePart, start: int, stop: int) -> bytes:
        begin, location = start_of(handle), self.locate(handle)
        data, size_bytes = self._bucket_of(location).read_range(location.key, begin + start, begin + stop)
        self._check_sizes(handle, size_bytes)
        return data

    def _checked(self, handle: FilePart) -> int:
        """Return the size of a handle's object in bytes, verified. It is called before memory of that size is
        allocated."""
        location = self.locate(handle)
        size_bytes = self._bucket_of(location).size(location.key)
        self._check_sizes(handle, size_bytes)
        return size_bytes

    def _check_sizes(self, handle: FilePart, size_bytes: int) -> None:
        check_file_size(self.locate(handle).uri, handle, size_bytes, self.checksums or {})

    def check_crc(self, handle: StreamStateHandle, crc: int) -> None:
        """Compare the CRC-32C of a handle's bytes with the recorded one. Inline state always passes, because the
        checksum of ``_metadata`` covers its bytes.

        Raises CorruptStateError (``checksum-mismatch``)."""
        if isinstance(handle, ByteStreamStateHandle):
            return
        recorded = (self.checksums or {}).get(checksum_key(handle))
        if recorded is not None:
            check_crc(self.locate(handle).uri, recorded[1], crc)
