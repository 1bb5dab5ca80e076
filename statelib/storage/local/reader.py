"""Reading the files of a checkpoint from local copies, and remotely if there is no valid copy.

Source: docs/spec/requirements.md R70, R81 (PrioritizedOperatorSubtaskState: the remote state is the last alternative).
"""

import contextlib
import logging
import os
from collections.abc import Callable, Mapping
from typing import TypeVar

from statelib.crash_points import crash_point
from statelib.errors import StatelibError
from statelib.model.handles import (
    ByteStreamStateHandle,
    FilePart,
    RelativeFileStateHandle,
    StreamStateHandle,
    checksum_key,
)
from statelib.storage.filesystem.descriptors import opened_directory, opened_file
from statelib.storage.filesystem.failures import storage_errors
from statelib.storage.filesystem.reader import DirectoryReader, blocks, check_crc, check_size
from statelib.storage.local.copies import FoundCopy, LocalCopies
from statelib.storage.local.file_identity import FileIdentity, identity_of
from statelib.storage.ports.views import StateReader
from statelib.wire.checksum import crc32c

log = logging.getLogger(__name__)

T = TypeVar("T")

LOCAL, REMOTE = "local", "remote"


class LocalFirstReader:
    """A :class:`~statelib.storage.ports.views.LinkingReader` that prefers local copies to the files of ``remote``.

    ``copies``: key of the remote file or segment -> a copy with the recorded size and checksum of the remote file; or
    the :class:`LocalCopies` that several readers share. The bytes of a copy are proved before any of them are returned.
    A copy that is damaged or gone is given up, and the remote file is read instead. If copies are to be fetched, the
    remote file is copied first.
    ``origins``: the origins of the bytes so far, ``local`` and ``remote``. Inline state counts for neither.
    ``trusted``: the files that were linked without reading them, because they are unchanged since they were proved."""

    def __init__(self, remote: StateReader, copies: Mapping[str, FoundCopy] | LocalCopies) -> None:
        self._remote = remote
        self._copies = copies if isinstance(copies, LocalCopies) else LocalCopies(copies)
        self._proved: set[str] = set()
        self.origins: set[str] = set()
        self.trusted: list[str] = []

    def read(self, handle: StreamStateHandle) -> memoryview:
        return self._first(handle, lambda copy, at: copy.read(at), lambda: self._remote.read(handle))

    def read_range(self, handle: StreamStateHandle, start: int, stop: int) -> memoryview:
        def local(copy: DirectoryReader, at: RelativeFileStateHandle) -> memoryview:
            self._prove(copy, at, handle)
            return copy.read_range(at, start, stop)

        return self._first(handle, local, lambda: self._remote.read_range(handle, start, stop))

    def copy_to(self, handle: StreamStateHandle, local_path: str) -> None:
        self._first(
            handle,
            lambda copy, at: copy.copy_to(at, local_path),
            lambda: self._remote.copy_to(handle, local_path),
        )

    def link_to(self, handle: StreamStateHandle, local_path: str) -> None:
        def local(copy: DirectoryReader, at: RelativeFileStateHandle) -> None:
            assert not isinstance(handle, ByteStreamStateHandle)
            found_copy = self._copies.get(handle)
            if not self._linked(copy, at, local_path, found_copy.copy.identity if found_copy else None):
                copy.copy_to(at, local_path)

        self._first(handle, local, lambda: self._remote.copy_to(handle, local_path))

    def check_crc(self, handle: StreamStateHandle, crc: int) -> None:
        self._remote.check_crc(handle, crc)

    def locate(self, handle: FilePart) -> object:
        return self._remote.locate(handle)

    def _first(
        self,
        handle: StreamStateHandle,
        local: Callable[[DirectoryReader, RelativeFileStateHandle], T],
        remote: Callable[[], T],
    ) -> T:
        """Return the result of ``local`` for the handle's copy. If there is no copy or it fails, give the copy up and
        return the result of ``remote``."""
        if isinstance(handle, ByteStreamStateHandle):
            return remote()
        found_copy = self._copies.get(handle)
        if found_copy is None:
            self.origins.add(REMOTE)
            found_copy = self._copies.fetch(handle, self._remote)
        while found_copy is not None:
            try:
                result = local(*_opened(found_copy))
            except StatelibError as error:
                log.warning("local copy of %s is not used: %s", checksum_key(handle), error)
                self._copies.give_up(handle)
                self.origins.add(REMOTE)
                found_copy = None if found_copy.fetched else self._copies.fetch(handle, self._remote)
            else:
                self._copies.prove(handle)
                if not found_copy.fetched:
                    self.origins.add(LOCAL)
                return result
        return remote()

    def _linked(
        self, copy: DirectoryReader, at: RelativeFileStateHandle, local_path: str, proved: FileIdentity | None
    ) -> bool:
        """Make ``local_path`` a hard link to the copy. The linked file is read to prove it, unless it has the identity
        ``proved``. Return False if no hard link is possible.

        Raises like :meth:`DirectoryReader.read`; then the link is removed."""
        directory, name = _place(copy, at)
        try:
            os.link(f"{directory}/{name}", local_path, follow_symlinks=False)
        except OSError:
            return False
        try:
            crash_point("local copy: found")
            if identity_of(local_path) == proved:
                self.trusted.append(f"{directory}/{name}")
            else:
                _check_bytes(os.path.dirname(local_path), os.path.basename(local_path), copy, of=name)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(local_path)
            raise
        return True

    def _prove(self, copy: DirectoryReader, at: RelativeFileStateHandle, handle: StreamStateHandle) -> None:
        """Read all of a copy once and verify it, before parts of it are read."""
        assert not isinstance(handle, ByteStreamStateHandle)
        if checksum_key(handle) not in self._proved:
            _check_bytes(*_place(copy, at), copy)
            self._proved.add(checksum_key(handle))


def _opened(found_copy: FoundCopy) -> tuple[DirectoryReader, RelativeFileStateHandle]:
    """Return a reader of the copy's directory and the handle of the copy."""
    copy = found_copy.copy
    reader = DirectoryReader(found_copy.directory, {copy.name: (copy.size_bytes, copy.crc32c)})
    return reader, RelativeFileStateHandle(copy.name, copy.size_bytes)


def _place(copy: DirectoryReader, at: RelativeFileStateHandle) -> tuple[str, str]:
    """Return (directory, file name) of a copy."""
    root, parts = copy.locate(at)
    return root, parts[-1]


def _check_bytes(directory: str, name: str, copy: DirectoryReader, of: str | None = None) -> None:
    """Raise CorruptStateError unless the file has the size and checksum that are recorded for it, or for the file
    ``of``."""
    where = f"{directory}/{name}"
    size_bytes, expected = (copy.checksums or {})[of or name]
    size = crc = 0
    with storage_errors(f"reading {where}"), opened_directory(directory) as parent, opened_file(parent, name) as file:
        for block in blocks(file):
            size += len(block)
            crc = crc32c(block, crc)
    check_size(where, size_bytes, size)
    check_crc(where, expected, crc)
