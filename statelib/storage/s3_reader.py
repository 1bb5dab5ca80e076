"""Reading the objects of a checkpoint back: bound to one prefix of one bucket, and verified."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from statelib.errors import InvalidRequestError
from statelib.model.handles import ByteStreamStateHandle, FileStateHandle, RelativeFileStateHandle, StreamStateHandle
from statelib.storage.descriptors import write_all
from statelib.storage.failures import storage_errors
from statelib.storage.reader import check_crc, check_size, copy_inline, new_file, range_of
from statelib.storage.retries import Retries
from statelib.storage.s3_objects import S3Objects
from statelib.storage.s3_uris import S3Location, is_s3, s3_location
from statelib.storage.uris import relative_parts, shown
from statelib.wire.checksum import crc32c


@dataclass(frozen=True)
class S3Reader:
    """Reads handles of the ``_metadata`` in ``directory_uri``. A value: picklable.

    ``checksums``: path as in the handle -> (size in bytes, crc32c), None where none are known.
    ``allowed_root``: absolute URIs may lead below here too; otherwise only into the directory itself."""

    directory_uri: str
    retries: Retries = field(repr=False, compare=False)
    checksums: Mapping[str, tuple[int, int]] | None = field(default=None, repr=False)
    allowed_root: str | None = None

    def read(self, handle: StreamStateHandle) -> memoryview:
        """All bytes. Raises as :class:`statelib.storage.views.StateReader` says."""
        if isinstance(handle, ByteStreamStateHandle):
            return memoryview(handle.data)
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

        self._objects.scan(self.locate(handle).key, begin)
        self._check_crc(handle, crc32c(data))
        return memoryview(data).toreadonly()

    def read_range(self, handle: StreamStateHandle, start: int, stop: int) -> memoryview:
        """Bytes ``start`` to ``stop`` (exclusive); only the object's size is verified.

        Raises CorruptStateError (``bad-range``) unless 0 <= start <= stop <= size."""
        if isinstance(handle, ByteStreamStateHandle):
            start, stop = range_of(start, stop, handle.size_bytes, handle.name)
            return memoryview(handle.data)[start:stop]
        start, stop = range_of(start, stop, handle.size_bytes, handle.path)
        data, size_bytes = self._objects.read_range(self.locate(handle).key, start, stop)
        self._check_sizes(handle, size_bytes)
        return memoryview(data)

    def copy_to(self, handle: StreamStateHandle, local_path: str) -> None:
        """Copy into a new file, verified while it streams; nothing is left of a copy that fails.

        Raises ConflictError (``name-taken``) where a file lies already; otherwise as :meth:`read`."""
        if isinstance(handle, ByteStreamStateHandle):
            copy_inline(handle, local_path)
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

            self._objects.scan(location.key, begin)
            self._check_crc(handle, crc)

    def locate(self, handle: FileStateHandle | RelativeFileStateHandle) -> S3Location:
        """Where a handle's object is; decided without any request.

        Raises InvalidRequestError (``outside-root``, ``bad-path``)."""
        directory = s3_location(self.directory_uri)
        if isinstance(handle, RelativeFileStateHandle):
            return directory.below(*relative_parts(handle.path))
        roots = [directory] if self.allowed_root is None else [directory, s3_location(self.allowed_root)]
        if is_s3(handle.path):
            location = s3_location(handle.path)
            if any(root.holds(location) for root in roots):
                return location
        raise InvalidRequestError(
            f"handle of {shown(handle.path)}: expected an object below {' or '.join(root.uri for root in roots)}",
            kind="outside-root",
        )

    @cached_property
    def _objects(self) -> S3Objects:
        return S3Objects(s3_location(self.directory_uri).bucket, self.retries)

    def _checked(self, handle: FileStateHandle | RelativeFileStateHandle) -> int:
        """The size of the object, looked at before so much memory is taken."""
        size_bytes = self._objects.size(self.locate(handle).key)
        self._check_sizes(handle, size_bytes)
        return size_bytes

    def _check_sizes(self, handle: FileStateHandle | RelativeFileStateHandle, found: int) -> None:
        where = self.locate(handle).uri
        check_size(where, handle.size_bytes, found)
        known = (self.checksums or {}).get(handle.path)
        if known is not None:
            check_size(where, known[0], found)

    def _check_crc(self, handle: FileStateHandle | RelativeFileStateHandle, found: int) -> None:
        known = (self.checksums or {}).get(handle.path)
        if known is not None:
            check_crc(self.locate(handle).uri, known[1], found)
