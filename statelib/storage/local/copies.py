"""The copies of remote files on this host that one subtask may read, and hand on to the checkpoint that it takes."""

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
from statelib.storage.views import StateReader

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class FoundCopy:
    """A copy of a remote file on this host; its bytes are not proved yet. ``fetched``: it was made by this subtask,
    from what it read remotely."""

    directory: str
    copy: LocalCopy
    fetched: bool = False


class LocalCopies:
    """What is known of them while a subtask restores and takes its snapshot.

    ``found``: key of the remote file or segment -> its copy. ``directory``: where :meth:`fetch` puts copies of those of
    ``files`` (key -> size in bytes, crc32c) that have none, None for nowhere; made with the first one, removed by
    :meth:`close`."""

    def __init__(
        self,
        found: Mapping[str, FoundCopy],
        files: Mapping[str, tuple[int, int]] | None = None,
        directory: Path | None = None,
    ) -> None:
        self._found = dict(found)
        self._files = files or {}
        self._directory = directory
        self._proved: set[str] = set()
        self._numbers = itertools.count()

    def get(self, handle: FilePart) -> FoundCopy | None:
        """Return the copy of a remote file, if it has the wanted size."""
        found = self._found.get(checksum_key(handle))
        return found if found is not None and found.copy.size_bytes == handle.size_bytes else None

    def prove(self, handle: FilePart) -> None:
        """Note that the copy's bytes were read, or that it is the very file that was proved earlier."""
        self._proved.add(checksum_key(handle))

    def give_up(self, handle: FilePart) -> None:
        """The copy is not what it should be: nobody reads it any more."""
        self._found.pop(checksum_key(handle), None)
        self._proved.discard(checksum_key(handle))

    def proved(self, handle: FilePart) -> bool:
        """Return whether the copy's bytes were read, or proved earlier; no restore reads all of RocksDB's files."""
        return checksum_key(handle) in self._proved

    def fetch(self, handle: FilePart, remote: StateReader) -> FoundCopy | None:
        """Copy a whole remote file, which proves its bytes. None where no copy is wanted, or it could not be made: then
        no other one is made either, since without all of them little is saved."""
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
        self._found[key] = FoundCopy(str(self._directory), LocalCopy(name, size_bytes, crc), fetched=True)
        self._proved.add(key)
        return self._found[key]

    def close(self) -> None:
        """Remove what was fetched. What was handed on has names of its own."""
        directory, self._directory = self._directory, None
        if directory is not None:
            shutil.rmtree(directory, ignore_errors=True)
            crash_point("local copy: removed")
