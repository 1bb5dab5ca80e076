"""Reading the files of a checkpoint back: bound to one directory, verified, never through a link."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from statelib.errors import CorruptStateError, InvalidRequestError
from statelib.model.handles import (
    ByteStreamStateHandle,
    FileStateHandle,
    RelativeFileStateHandle,
    StreamStateHandle,
)
from statelib.storage.descriptors import opened_directory, opened_file, read_up_to, write_all
from statelib.storage.failures import storage_errors
from statelib.storage.uris import local_path as parse_path
from statelib.storage.uris import parts_below, relative_parts, shown
from statelib.wire.checksum import crc32c

BLOCK_BYTES = 1 << 20

_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True)
class DirectoryReader:
    """Reads handles of the ``_metadata`` in ``directory_uri``. A value: picklable, holds nothing open.

    ``checksums``: path as in the handle -> (size in bytes, crc32c), None where none are known.
    ``relocate``: absolute directory as written -> where it is now, for checkpoints that were moved.
    ``allowed_root``: absolute paths may lead here too; otherwise only into the directory itself.
    """

    directory_uri: str
    checksums: Mapping[str, tuple[int, int]] | None = field(default=None, repr=False)
    relocate: Mapping[str, str] | None = None
    allowed_root: str | None = None

    def read(self, handle: StreamStateHandle) -> memoryview:
        """All bytes, read-only. Raises as :class:`statelib.storage.views.StateReader` says, and
        CorruptStateError (``not-a-regular-file``) for a link or special file in its place."""
        if isinstance(handle, ByteStreamStateHandle):
            return memoryview(handle.data)
        with self._opened(handle) as (file, where):
            data = read_up_to(file, handle.size_bytes)
        check_size(where, handle.size_bytes, len(data))
        self._check_crc(handle, where, crc32c(data))
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
            data = read_up_to(file, stop - start, start)
        check_size(where, stop - start, len(data))
        return memoryview(data).toreadonly()

    def copy_to(self, handle: StreamStateHandle, local_path: str) -> None:
        """Copy into a new file, verified while it streams; nothing is left of a copy that fails.

        Raises ConflictError (``name-taken``) where a file lies already; otherwise as :meth:`read`."""
        if isinstance(handle, ByteStreamStateHandle):
            copy_inline(handle, local_path)
            return
        with self._opened(handle) as (file, where), new_file(local_path) as target:
            copied, crc = _copy(file, target, local_path)
            check_size(where, handle.size_bytes, copied)
            self._check_crc(handle, where, crc)

    @contextmanager
    def _opened(self, handle: FileStateHandle | RelativeFileStateHandle) -> Iterator[tuple[int, str]]:
        """(descriptor, path for messages) of a file of the right size."""
        root, parts = self.locate(handle)
        where = "/".join((root.rstrip("/"), *parts))
        with (
            storage_errors(f"reading {where}"),
            opened_directory(root, parts[:-1]) as parent,
            opened_file(parent, parts[-1]) as file,
        ):
            size_bytes = os.fstat(file).st_size
            check_size(where, handle.size_bytes, size_bytes)
            known = (self.checksums or {}).get(handle.path)
            if known is not None:
                check_size(where, known[0], size_bytes)
            yield file, where

    def locate(self, handle: FileStateHandle | RelativeFileStateHandle) -> tuple[str, tuple[str, ...]]:
        """(root, components below it) of a handle's file; decided without any I/O.

        Raises InvalidRequestError (``outside-root``, ``bad-path``), UnsupportedError (``unknown-scheme``)."""
        directory = parse_path(self.directory_uri)
        if isinstance(handle, RelativeFileStateHandle):
            return directory, relative_parts(handle.path)
        path = _relocated(parse_path(handle.path), self.relocate or {})
        roots = [directory] if self.allowed_root is None else [directory, parse_path(self.allowed_root)]
        for root in roots:
            parts = parts_below(path, root)
            if parts is not None:
                return root, parts
        raise InvalidRequestError(
            f"handle of {shown(path)}: expected a file below {' or '.join(roots)}",
            kind="outside-root",
            hint="a checkpoint that shares files is read where it was written, with STATELIB_STORAGE set to that root;"
            " to move state, take a savepoint",
        )

    def _check_crc(self, handle: FileStateHandle | RelativeFileStateHandle, where: str, found: int) -> None:
        known = (self.checksums or {}).get(handle.path)
        if known is not None:
            check_crc(where, known[1], found)


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


def _copy(file: int, target: int, local_path: str) -> tuple[int, int]:
    """(bytes copied, their crc32c)."""
    copied = crc = 0
    for block in blocks(file):
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


def _relocated(path: str, relocate: Mapping[str, str]) -> str:
    """The path after the longest matching directory was replaced."""
    moves = {parse_path(old): parse_path(new) for old, new in relocate.items()}
    for old in sorted(moves, key=len, reverse=True):
        parts = parts_below(path, old)
        if parts is not None:
            return "/".join((moves[old].rstrip("/"), *parts))
    return path


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
