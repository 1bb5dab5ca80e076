"""The copies of remote files on this host that one subtask may read, and reuse in the checkpoint that it takes."""

import itertools
import logging
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from statelib.crash_points import crash_point
from statelib.errors import StatelibError
from statelib.model.handles import FilePart, checksum_key
from statelib.storage.local.index import LocalCopy
from statelib.storage.ports.views import StateReader

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class FoundCopy:
    """A copy of a remote file in a directory on this host. Its bytes are not verified yet. ``fetched``: whether this
    subtask made the copy, by copying the remote file."""

    directory: str
    copy: LocalCopy
    fetched: bool = False


class LocalCopies:
    """The local copies that one subtask uses while it restores and takes its snapshot.

    ``copies``: key of the remote file or segment -> its copy.
    ``files``: key of a remote file that may be copied -> (size in bytes, crc32c).
    ``directory``: the directory in which :meth:`fetch` creates copies, None if it makes no copies. It is created with
    the first copy and removed by :meth:`close`."""

    def __init__(
        self,
        copies: Mapping[str, FoundCopy],
        files: Mapping[str, tuple[int, int]] | None = None,
        directory: Path | None = None,
    ) -> None:
        self._copies = dict(copies)
        self._files = files or {}
        self._directory = directory
        self._proved: set[str] = set()
        self._numbers = itertools.count()

    def get(self, handle: FilePart) -> FoundCopy | None:
        """Return the copy of a remote file, None if there is no copy with the size of the handle."""
        copy = self._copies.get(checksum_key(handle))
        return copy if copy is not None and copy.copy.size_bytes == handle.size_bytes else None

    def prove(self, handle: FilePart) -> None:
        """Record that the copy is proved: its bytes were read, or it is the unchanged file that was proved earlier."""
        self._proved.add(checksum_key(handle))

    def give_up(self, handle: FilePart) -> None:
        """Record that the copy is damaged or gone. It is not used any more."""
        self._copies.pop(checksum_key(handle), None)
        self._proved.discard(checksum_key(handle))

    def proved(self, handle: FilePart) -> bool:
        """Return whether the copy is proved. A copy may never be: a restore does not read all files of RocksDB."""
        return checksum_key(handle) in self._proved

    def fetch(self, handle: FilePart, remote: StateReader) -> FoundCopy | None:
        """Copy a whole remote file and return the copy, whose bytes are verified. Return None if the file is not to be
        copied, or if copying failed. After one failure no more copies are made, because a restore saves little unless
        all files are local."""
        key = checksum_key(handle)
        if self._directory is None or self._files.get(key, (None,))[0] != handle.size_bytes:
            return None
        name = f"fetched-{next(self._numbers)}"
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            remote.copy_to(handle, str(self._directory / name))
            crash_point("local copy: linked")
        except (OSError, StatelibError) as error:
            log.warning("no local copy of %s: %s", handle.path, error)
            self.close()
            return None
        size_bytes, crc = self._files[key]
        self._copies[key] = FoundCopy(str(self._directory), LocalCopy(name, size_bytes, crc), fetched=True)
        self._proved.add(key)
        return self._copies[key]

    def close(self) -> None:
        """Remove the fetched copies. Copies that a checkpoint reuses have hard links of their own and stay."""
        directory, self._directory = self._directory, None
        if directory is not None:
            shutil.rmtree(directory, ignore_errors=True)
            crash_point("local copy: removed")
