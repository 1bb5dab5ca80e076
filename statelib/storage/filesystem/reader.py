"""Reading the files of a checkpoint. A reader belongs to one directory, verifies what it reads and follows no links."""

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
    """A :class:`~statelib.storage.ports.views.StateReader` of the handles in the ``_metadata`` of ``directory_uri``. It
    is a value: it can be pickled and keeps no file open.

    ``checksums`` maps :func:`~statelib.model.handles.checksum_key` of files and segments to (size in bytes, crc32c);
    None if there are none.
    ``allowed_root``: absolute paths may lead below it or below the directory, None for the directory only.
    """

    directory_uri: str
    checksums: Mapping[str, tuple[int, int]] | None = field(default=None, repr=False)
    allowed_root: AllowedRoot = None

    def read(self, handle: StreamStateHandle) -> memoryview:
        """Return all bytes of a handle, verified and read-only.

        Raises like :meth:`statelib.storage.ports.views.StateReader.read`, and CorruptStateError
        (``not-a-regular-file``) if a link or special file has the path."""
        if isinstance(handle, ByteStreamStateHandle):
            return memoryview(handle.data)
        with self._opened(handle) as (file, path):
            size_bytes = _bytes_in(handle, os.fstat(file).st_size)
            data = read_up_to(file, size_bytes, start_of(handle))
        check_size(path, size_bytes, len(data))
        self.check_crc(handle, crc32c(data))
        return memoryview(data).toreadonly()

    def read_range(self, handle: StreamStateHandle, start: int, stop: int) -> memoryview:
        """Return the bytes ``start`` (inclusive) to ``stop`` (exclusive) of a handle, read-only. Only the size of the
        file is verified.

        Raises like :meth:`read`, and CorruptStateError (``bad-range``) unless 0 <= start <= stop <= size."""
        size_bytes = handle.size_bytes
        if isinstance(handle, ByteStreamStateHandle):
            start, stop = range_of(start, stop, size_bytes, handle.name)
            return memoryview(handle.data)[start:stop]
        start, stop = range_of(start, stop, size_bytes, handle.path)
        with self._opened(handle) as (file, path):
            data = read_up_to(file, stop - start, start_of(handle) + start)
        check_size(path, stop - start, len(data))
        return memoryview(data).toreadonly()

    def copy_to(self, handle: StreamStateHandle, local_path: str) -> None:
        """Copy a handle's bytes into a new local file. They are verified while they are copied, and nothing is left of
        a copy that fails.

        Raises like :meth:`read`, and ConflictError (``name-taken``) if the local file exists."""
        if isinstance(handle, ByteStreamStateHandle):
            copy_inline(handle, local_path)
            return
        with self._opened(handle) as (file, path), new_file(local_path) as target:
            size_bytes = _bytes_in(handle, os.fstat(file).st_size)
            copied, crc = _copy(_blocks_of(file, handle), target, local_path)
            check_size(path, size_bytes, copied)
            self.check_crc(handle, crc)

    @contextmanager
    def _opened(self, handle: FilePart) -> Iterator[tuple[int, str]]:
        """Yield (descriptor, path for messages) of a handle's file, whose size was verified."""
        root, parts = self.locate(handle)
        path = "/".join((root.rstrip("/"), *parts))
        with (
            storage_errors(f"reading {path}"),
            opened_directory(root, parts[:-1]) as parent,
            opened_file(parent, parts[-1]) as file,
        ):
            check_file_size(path, handle, os.fstat(file).st_size, self.checksums or {})
            yield file, path

    def locate(self, handle: FilePart) -> tuple[str, tuple[str, ...]]:
        """Return (root, components below it) of a handle's file. No I/O is done.

        Raises InvalidRequestError (``outside-root``, ``bad-path``, ``task-owned``), UnsupportedError
        (``unknown-scheme``)."""
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

    def check_crc(self, handle: StreamStateHandle, crc: int) -> None:
        """Compare the CRC-32C of a handle's bytes with the recorded one. Inline state always passes, because the
        checksum of ``_metadata`` covers its bytes.

        Raises CorruptStateError (``checksum-mismatch``)."""
        if isinstance(handle, ByteStreamStateHandle):
            return
        recorded = (self.checksums or {}).get(checksum_key(handle))
        if recorded is not None:
            root, parts = self.locate(handle)
            check_crc("/".join((root.rstrip("/"), *parts)), recorded[1], crc)


def check_relocatable(path: str, roots: str) -> None:
    """Raise InvalidRequestError (``task-owned``) if the path is that of task-owned state, which is never moved with a
    snapshot. ``roots`` is the text for the message."""
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
    """Return (start, stop) if they are a range within the stream of ``size_bytes`` bytes. ``what`` names the stream.

    Raises CorruptStateError (``bad-range``) otherwise."""
    if not 0 <= start <= stop <= size_bytes:
        raise CorruptStateError(
            f"{shown(what)}: bytes {start} to {stop}, expected a range within its {size_bytes} bytes", kind="bad-range"
        )
    return start, stop


def blocks(file: int) -> Iterator[bytes]:
    """Yield the bytes of an open file from its start, in blocks of at most ``BLOCK_BYTES`` bytes."""
    offset = 0
    while block := os.pread(file, BLOCK_BYTES, offset):
        yield block
        offset += len(block)


def _blocks_of(file: int, handle: FilePart) -> Iterator[bytes]:
    """Yield the bytes of a handle in its open file, in blocks. A handle of a whole file yields all of the file."""
    if not isinstance(handle, SegmentFileStateHandle):
        yield from blocks(file)
        return
    offset, stop = handle.start, handle.start + handle.size_bytes
    while block := os.pread(file, min(BLOCK_BYTES, stop - offset), offset):
        yield block
        offset += len(block)


def _copy(content: Iterator[bytes], target: int, local_path: str) -> tuple[int, int]:
    """Write all blocks to ``target`` and return (number of bytes, their CRC-32C)."""
    copied = crc = 0
    for block in content:
        with storage_errors(f"writing {local_path}"):
            write_all(target, block)
        crc = crc32c(block, crc)
        copied += len(block)
    return copied, crc


@contextmanager
def new_file(path: str) -> Iterator[int]:
    """Yield the descriptor of a new file, open for writing. The file is removed if the body fails."""
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
    """Return the offset, in bytes, at which a handle's bytes begin in their file."""
    return handle.start if isinstance(handle, SegmentFileStateHandle) else 0


def _bytes_in(handle: FilePart, file_bytes: int) -> int:
    """Return the number of the handle's bytes in its file of ``file_bytes`` bytes."""
    return file_bytes if isinstance(handle, ChangeFileStateHandle) else handle.size_bytes


def check_file_size(where: str, handle: FilePart, size_bytes: int, checksums: Mapping[str, tuple[int, int]]) -> None:
    """Compare the size of a handle's file with the recorded size and with the handle. It must be the size of the
    handle; the file of a segment must at least reach to the segment's end.

    Raises CorruptStateError (``size-mismatch``)."""
    recorded = checksums.get(handle.path)
    if recorded is not None:
        check_size(where, recorded[0], size_bytes)
    if isinstance(handle, ChangeFileStateHandle):
        if size_bytes > handle.most_bytes:
            raise CorruptStateError(
                f"{where}: expected at most {handle.most_bytes} bytes, found {size_bytes}", kind="size-mismatch"
            )
    elif not isinstance(handle, SegmentFileStateHandle):
        check_size(where, handle.size_bytes, size_bytes)
    elif size_bytes < handle.start + handle.size_bytes:
        raise CorruptStateError(
            f"{where}: expected at least {handle.start + handle.size_bytes} bytes, found {size_bytes}",
            kind="size-mismatch",
            hint="restore an older checkpoint",
        )


def check_size(where: str, expected: int, actual: int) -> None:
    """Raise CorruptStateError (``size-mismatch``) unless both sizes, in bytes, are equal. ``where`` names the file."""
    if expected != actual:
        raise CorruptStateError(
            f"{where}: expected {expected} bytes, found {actual}",
            kind="size-mismatch",
            hint="restore an older checkpoint",
        )


def check_crc(where: str, expected: int, actual: int) -> None:
    """Raise CorruptStateError (``checksum-mismatch``) unless both CRC-32C are equal. ``where`` names the file."""
    if expected != actual:
        raise CorruptStateError(
            f"{where}: expected crc32c {expected:08x}, found {actual:08x}",
            kind="checksum-mismatch",
            hint="restore an older checkpoint",
        )
