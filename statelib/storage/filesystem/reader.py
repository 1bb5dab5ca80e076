"""Reading the files of a checkpoint back: bound to one directory, verified, never through a link."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from statelib.errors import CorruptStateError, InvalidRequestError
from statelib.model.handles import (
    ByteStreamStateHandle,
    ChangeFileStateHandle,
    FilePart,
    RelativeFileStateHandle,
    SegmentFileStateHandle,
    StreamStateHandle,
    checksum_key,
)
from statelib.storage.filesystem.descriptors import opened_directory, opened_file, read_up_to, write_all
from statelib.storage.filesystem.failures import storage_errors
from statelib.storage.names import is_task_owned
from statelib.storage.uris import AllowedRoot, parts_below, relative_parts, roots_with, shown
from statelib.storage.uris import local_path as parse_path
from statelib.wire.checksum import crc32c

BLOCK_BYTES = 1 << 20

_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True)
class DirectoryReader:
    """Reads handles of the ``_metadata`` in ``directory_uri``. A value: picklable, holds nothing open.

    ``checksums``: :func:`~statelib.model.handles.checksum_key` of files and of segments ->
    (size in bytes, crc32c), None where none are known.
    ``allowed_root``: absolute paths may lead here too; otherwise only into the directory itself.
    """

    directory_uri: str
    checksums: Mapping[str, tuple[int, int]] | None = field(default=None, repr=False)
    allowed_root: AllowedRoot = None

    def read(self, handle: StreamStateHandle) -> memoryview:
        """All bytes, read-only. Raises as :class:`statelib.storage.views.StateReader` says, and
        CorruptStateError (``not-a-regular-file``) for a link or special file in its place."""
        if isinstance(handle, ByteStreamStateHandle):
            return memoryview(handle.data)
        with self._opened(handle) as (file, where):
            size_bytes = _bytes_in(handle, os.fstat(file).st_size)
            data = read_up_to(file, size_bytes, start_of(handle))
        check_size(where, size_bytes, len(data))
        self.check_crc(handle, crc32c(data))
        return memoryview(data).toreadonly()

    def read_range(self, handle: StreamStateHandle, start: int, stop: int) -> memoryview:
        """Bytes ``start`` to ``stop`` (exclusive); only the file's size is verified.

        Raises CorruptStateError (``bad-range``) unless 0 <= start <= stop <= size."""
        size_bytes = handle.size_bytes
        if isinstance(handle, ByteStreamStateHandle):
            start, stop = range_of(start, stop, size_bytes, handle.name)
            return memoryview(handle.data)[start:stop]
        start, stop = range_of(start, stop, size_bytes, handle.path)
        with self._opened(handle) as (file, where):
            data = read_up_to(file, stop - start, start_of(handle) + start)
        check_size(where, stop - start, len(data))
        return memoryview(data).toreadonly()

    def copy_to(self, handle: StreamStateHandle, local_path: str) -> None:
        """Copy into a new file, verified while it streams; nothing is left of a copy that fails.

        Raises ConflictError (``name-taken``) where a file lies already; otherwise as :meth:`read`."""
        if isinstance(handle, ByteStreamStateHandle):
            copy_inline(handle, local_path)
            return
        with self._opened(handle) as (file, where), new_file(local_path) as target:
            size_bytes = _bytes_in(handle, os.fstat(file).st_size)
            copied, crc = _copy(_blocks_of(file, handle), target, local_path)
            check_size(where, size_bytes, copied)
            self.check_crc(handle, crc)

    @contextmanager
    def _opened(self, handle: FilePart) -> Iterator[tuple[int, str]]:
        """(descriptor, path for messages) of a file of the right size."""
        root, parts = self.locate(handle)
        where = "/".join((root.rstrip("/"), *parts))
        with (
            storage_errors(f"reading {where}"),
            opened_directory(root, parts[:-1]) as parent,
            opened_file(parent, parts[-1]) as file,
        ):
            check_file_size(where, handle, os.fstat(file).st_size, self.checksums or {})
            yield file, where

    def locate(self, handle: FilePart) -> tuple[str, tuple[str, ...]]:
        """(root, components below it) of a handle's file; decided without any I/O.

        Raises InvalidRequestError (``outside-root``, ``bad-path``), UnsupportedError (``unknown-scheme``)."""
        directory = parse_path(self.directory_uri)
        if isinstance(handle, RelativeFileStateHandle):
            return directory, relative_parts(handle.path)
        path = parse_path(handle.path)
        roots = [parse_path(root) for root in roots_with(directory, self.allowed_root)]
        for root in roots:
            parts = parts_below(path, root)
            if parts is not None:
                return root, parts
        check_relocatable(path, " or ".join(roots))
        raise InvalidRequestError(
            f"handle of {shown(path)}: expected a file below {' or '.join(roots)}",
            kind="outside-root",
            hint="of a snapshot that was moved, say what lies where now: --relocate OLD_PREFIX=NEW_PREFIX; one of this"
            " deployment needs STATELIB_STORAGE set to its root",
        )

    def check_crc(self, handle: StreamStateHandle, found: int) -> None:
        """Inline bytes have the checksum of ``_metadata``."""
        if isinstance(handle, ByteStreamStateHandle):
            return
        known = (self.checksums or {}).get(checksum_key(handle))
        if known is not None:
            root, parts = self.locate(handle)
            check_crc("/".join((root.rstrip("/"), *parts)), known[1], found)


def check_relocatable(path: str, roots: str) -> None:
    """Raises InvalidRequestError (``task-owned``) for a file that belongs to a task, not to a checkpoint."""
    if is_task_owned(path):
        raise InvalidRequestError(
            f"handle of {shown(path)}: a file that its task owns stays where it was written, expected it below {roots}",
            kind="task-owned",
            hint="read it where it was written, with STATELIB_STORAGE set to that root, or say where its files lie now:"
            " --relocate OLD_PREFIX=NEW_PREFIX",
        )


def copy_inline(handle: ByteStreamStateHandle, local_path: str) -> None:
    """Write the bytes of an inline handle into a new file."""
    with new_file(local_path) as target, storage_errors(f"writing {local_path}"):
        write_all(target, handle.data)


def range_of(start: int, stop: int, size_bytes: int, what: str) -> tuple[int, int]:
    """(start, stop), once it is sure that they lie within the stream."""
    if not 0 <= start <= stop <= size_bytes:
        raise CorruptStateError(
            f"{shown(what)}: bytes {start} to {stop}, expected a range within its {size_bytes} bytes", kind="bad-range"
        )
    return start, stop


def blocks(file: int) -> Iterator[bytes]:
    """The bytes of an open file from its start, a block at a time."""
    offset = 0
    while block := os.pread(file, BLOCK_BYTES, offset):
        yield block
        offset += len(block)


def _blocks_of(file: int, handle: FilePart) -> Iterator[bytes]:
    """A handle's bytes in its open file, a block at a time; a whole file to wherever it ends."""
    if not isinstance(handle, SegmentFileStateHandle):
        yield from blocks(file)
        return
    offset, stop = handle.start, handle.start + handle.size_bytes
    while block := os.pread(file, min(BLOCK_BYTES, stop - offset), offset):
        yield block
        offset += len(block)


def _copy(content: Iterator[bytes], target: int, local_path: str) -> tuple[int, int]:
    """(bytes copied, their crc32c)."""
    copied = crc = 0
    for block in content:
        with storage_errors(f"writing {local_path}"):
            write_all(target, block)
        crc = crc32c(block, crc)
        copied += len(block)
    return copied, crc


@contextmanager
def new_file(path: str) -> Iterator[int]:
    """Descriptor of a new file, which is removed again when the body fails."""
    with storage_errors(f"creating {path}"):
        file = os.open(path, _NEW_FILE, 0o666)
    try:
        yield file
    except BaseException:
        os.unlink(path)
        raise
    finally:
        os.close(file)


def start_of(handle: FilePart) -> int:
    """Where a handle's bytes begin in their file."""
    return handle.start if isinstance(handle, SegmentFileStateHandle) else 0


def _bytes_in(handle: FilePart, file_bytes: int) -> int:
    """How many bytes a handle's file of that size holds for it."""
    return file_bytes if isinstance(handle, ChangeFileStateHandle) else handle.size_bytes


def check_file_size(where: str, handle: FilePart, found: int, checksums: Mapping[str, tuple[int, int]]) -> None:
    """The size of a handle's file: that of the handle itself, or enough for a segment, and what is known of it.

    Raises CorruptStateError (``size-mismatch``)."""
    known = checksums.get(handle.path)
    if known is not None:
        check_size(where, known[0], found)
    if isinstance(handle, ChangeFileStateHandle):
        if found > handle.most_bytes:
            raise CorruptStateError(
                f"{where}: expected at most {handle.most_bytes} bytes, found {found}", kind="size-mismatch"
            )
    elif not isinstance(handle, SegmentFileStateHandle):
        check_size(where, handle.size_bytes, found)
    elif found < handle.start + handle.size_bytes:
        raise CorruptStateError(
            f"{where}: expected at least {handle.start + handle.size_bytes} bytes, found {found}",
            kind="size-mismatch",
            hint="restore an older checkpoint",
        )


def check_size(where: str, expected: int, found: int) -> None:
    """Raises CorruptStateError (``size-mismatch``)."""
    if expected != found:
        raise CorruptStateError(
            f"{where}: expected {expected} bytes, found {found}",
            kind="size-mismatch",
            hint="restore an older checkpoint",
        )


def check_crc(where: str, expected: int, found: int) -> None:
    """Raises CorruptStateError (``checksum-mismatch``)."""
    if expected != found:
        raise CorruptStateError(
            f"{where}: expected crc32c {expected:08x}, found {found:08x}",
            kind="checksum-mismatch",
            hint="restore an older checkpoint",
        )
