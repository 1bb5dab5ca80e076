"""Local copies of checkpoint files on one host. A run writes them together with the remote files, and the next run
reads them.

Layout: ``<root>/local-state/<storage>/<pipeline>/chk-<id>/<attempt>-<subtask>/`` holds the copies and an index.
``<storage>`` differs between deployments that use the same root. The name of a directory that is still being written
ends in ``.ongoing``. Copies are never required: if one is missing or damaged, the remote file is read. Source:
docs/spec/requirements.md R70 to R83 (TaskLocalStateStore, LocalSnapshotDirectoryProvider, SnapshotDirectory).
"""

import contextlib
import hashlib
import itertools
import logging
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from statelib.crash_points import crash_point
from statelib.model.handles import ByteStreamStateHandle, FilePart, checksum_key
from statelib.model.ids import AttemptId, CheckpointId, pipeline_name
from statelib.storage.local.copies import FoundCopy, LocalCopies
from statelib.storage.local.file_identity import FileIdentity, identity_of
from statelib.storage.local.index import LocalCopy, read_index, write_index
from statelib.storage.local.streams import LocalStreams
from statelib.storage.names import checkpoint_directory, checkpoint_number
from statelib.storage.ports.views import WrittenStream

log = logging.getLogger(__name__)

LOCAL_STATE = "local-state"

_ONGOING = ".ongoing"
_TRASH = "trash-"
_CARRIED = "carried-"
_SNAPSHOT_DIGITS = 24
"""The number of digits of an attempt id that all tasks of one snapshot share."""

Checksums = Mapping[str, tuple[int, int]]
"""A map from the key of a remote file or segment to (size in bytes, crc32c)."""


class LocalSnapshotDirectory:
    """The directory for the copies of one subtask's attempt at one checkpoint. It is ONGOING from :meth:`make` until
    :meth:`complete`, each of which is called once. It is DELETED after :meth:`discard`."""

    def __init__(self, path: Path, copies: LocalCopies | None = None) -> None:
        """Create the object, not the directory. ``copies``: the copies from which the subtask was restored."""
        self._path = path
        self._copies = copies or LocalCopies({})
        self._numbers = itertools.count()
        self._ongoing = path.with_name(path.name + _ONGOING)
        self._failed = False
        self._identities: dict[str, FileIdentity] = {}
        self.streams = LocalStreams(str(self._ongoing))
        """The factory of copies that are written at the same time as the remote file."""

    def make(self) -> None:
        """Create the directory, empty. A directory that exists already is removed first."""
        if self._ongoing.exists() or self._path.exists():
            log.warning("%s exists already and is made anew", self._path)
            self.discard()
        self._ongoing.mkdir(parents=True)
        crash_point("local copy: directory made")

    def keep(self, path: str, name: str) -> str | None:
        """Add a file that never changes any more, by a hard link, or by a copy if no link is possible. Return its name
        in this directory, None if that failed. After one failure no more files are added, because a restore saves
        little unless all files are local.

        A linked file was proved to hold the stream's bytes. Its identity is recorded, so that it need not be read
        again."""
        if self._failed:
            return None
        target = self._ongoing / name
        try:
            try:
                os.link(path, target, follow_symlinks=False)
            except OSError:
                shutil.copyfile(path, target, follow_symlinks=False)
            else:
                self._identify(name)
            crash_point("local copy: linked")
        except OSError as error:
            self._failed = True
            target.unlink(missing_ok=True)
            log.warning("no local copy of %s: %s", path, error)
            return None
        return name

    def carry(self, handle: FilePart) -> str | None:
        """Link the copy of an earlier checkpoint's file from which the subtask was restored. Return its name in this
        directory, None if there is no such copy or no link is possible. The bytes are never copied."""
        found_copy = self._copies.get(handle)
        if found_copy is None:
            return None
        name = f"{_CARRIED}{next(self._numbers)}"
        try:
            os.link(f"{found_copy.directory}/{found_copy.copy.name}", self._ongoing / name, follow_symlinks=False)
            if self._copies.proved(handle):
                self._identify(name)
            crash_point("local copy: linked")
        except OSError as error:
            log.warning("no local copy of %s: %s", handle.path, error)
            return None
        return name

    def _identify(self, name: str) -> None:
        """Record the identity of a linked file, if a later change surely gives the file another one. Its age is
        measured by the file system's own clock."""
        identity = identity_of(str(self._ongoing / name))
        if identity.settled(identity_of(str(self._ongoing)).modified_ns):
            self._identities[name] = identity

    def complete(self, streams: Iterable[WrittenStream]) -> None:
        """Complete the directory with the copies of these streams. From now on :meth:`LocalStateStore.find` returns
        them. Without any copy the directory is removed."""
        copies = {
            checksum_key(w.handle): LocalCopy(w.local_name, w.size_bytes, w.crc32c, self._identities.get(w.local_name))
            for w in streams
            if w.local_name is not None and not isinstance(w.handle, ByteStreamStateHandle)
        }
        try:
            if copies:
                write_index(self._ongoing, copies)
                crash_point("local copy: index written")
                self._ongoing.rename(self._path)
                crash_point("local copy: kept")
        except OSError as error:
            log.warning("no local copy in %s: %s", self._path, error)
        finally:  # also if SIGTERM ends the process here
            shutil.rmtree(self._ongoing, ignore_errors=True)

    def discard(self) -> None:
        """Remove the directory, whether it is ongoing or completed."""
        shutil.rmtree(self._ongoing, ignore_errors=True)
        shutil.rmtree(self._path, ignore_errors=True)


class LocalSnapshotDirectories:
    """The directories for local copies of one subtask's attempt, one per checkpoint (R82, R83). As a context manager,
    it discards at its end the directories that were not completed."""

    def __init__(self, root: Path, attempt: AttemptId, subtask: int, copies: LocalCopies | None = None) -> None:
        """Create no directory yet. ``copies``: the copies from which the subtask is restored."""
        self._root = root
        self._copies = copies
        self._name = f"{attempt}-{subtask}"
        self._open: dict[CheckpointId, LocalSnapshotDirectory] = {}

    def open(self, checkpoint_id: CheckpointId) -> LocalSnapshotDirectory | None:
        """Return a new, empty directory for a checkpoint. If it cannot be created, log a warning and return None."""
        self.discard(checkpoint_id)
        directory = LocalSnapshotDirectory(self._root / checkpoint_directory(checkpoint_id) / self._name, self._copies)
        self._open[checkpoint_id] = directory  # before it is created, so that any failure discards it
        try:
            directory.make()
        except OSError as error:
            log.warning("no directory for local copies: %s. Continue only with the primary stream.", error)
            self.discard(checkpoint_id)
            return None
        return directory

    def complete(self, checkpoint_id: CheckpointId, streams: Iterable[WrittenStream]) -> None:
        """Complete the directory of a checkpoint whose snapshot was written, with the copies of ``streams``. It must be
        called before the snapshot is acknowledged (R78)."""
        directory = self._open.pop(checkpoint_id, None)
        if directory is not None:
            directory.complete(streams)

    def discard(self, checkpoint_id: CheckpointId) -> None:
        """Remove the directory of a checkpoint whose snapshot failed."""
        directory = self._open.pop(checkpoint_id, None)
        if directory is not None:
            directory.discard()

    def __enter__(self) -> "LocalSnapshotDirectories":
        return self

    def __exit__(self, *_: object) -> None:
        for checkpoint_id in list(self._open):
            self.discard(checkpoint_id)


class LocalStateStore:
    """All local copies of one pipeline on this host. The object keeps no file open, and any number of processes may use
    the same copies."""

    def __init__(self, root: str, storage_uri: str, pipeline: str) -> None:
        storage = hashlib.sha256(storage_uri.encode()).hexdigest()[:16]
        self.path = Path(os.path.abspath(root)) / LOCAL_STATE / storage / pipeline_name(pipeline)

    def directories(
        self, attempt: AttemptId, subtask: int, copies: LocalCopies | None = None
    ) -> LocalSnapshotDirectories:
        """Return the directories for the snapshots of one subtask's attempt. ``copies``: the copies from which the
        subtask is restored."""
        return LocalSnapshotDirectories(self.path, attempt, subtask, copies)

    def fetched(self, checkpoint_id: CheckpointId, attempt: AttemptId, subtask: int) -> Path:
        """Return the directory into which one subtask's attempt at a checkpoint copies remote files. If the process is
        killed, the next :meth:`prune` removes it."""
        return self.path / checkpoint_directory(checkpoint_id) / f"{attempt}-{subtask}-fetched{_ONGOING}"

    def find(self, checkpoint_id: CheckpointId, files: Checksums) -> dict[str, FoundCopy]:
        """Return the copies of ``files`` that any subtask of a checkpoint made on this host: key of the remote file or
        segment -> its copy. Only copies with the size and checksum in ``files`` are returned."""
        copies: dict[str, FoundCopy] = {}
        for directory in _entries(self.path / checkpoint_directory(checkpoint_id)):
            copies |= {path: FoundCopy(str(directory), copy) for path, copy in _copies(directory, files).items()}
        return copies

    def prune(
        self, checkpoint_id: CheckpointId, attempt: AttemptId, base: CheckpointId | None, files: Checksums
    ) -> None:
        """Remove the copies that a run of ``checkpoint_id`` on the confirmed ``base`` does not need: older and aborted
        checkpoints, attempts that did not complete the base, and files of killed processes. ``files`` are the files of
        the base.

        Files that cannot be removed stay, without an error. Other processes may prune at the same time. Checkpoints
        newer than ``checkpoint_id`` are not removed."""
        trash = _trash(self.path, attempt)
        for entry in _entries(self.path):
            number = checkpoint_number(entry.name)
            if number is None:
                _delete(entry)
            elif number == base:
                _remove(_useless(_entries(entry), files), trash)
            elif number == checkpoint_id:
                _remove((d for d in _entries(entry) if d.name[:_SNAPSHOT_DIGITS] != attempt[:_SNAPSHOT_DIGITS]), trash)
            elif number < checkpoint_id:
                _remove((entry,), trash)

    def discard(self, checkpoint_id: CheckpointId, attempt: AttemptId) -> None:
        """Remove all copies of a checkpoint, because one of them is damaged."""
        _remove((self.path / checkpoint_directory(checkpoint_id),), _trash(self.path, attempt))

    def clear(self) -> None:
        """Remove all copies of the pipeline, because local recovery was switched off."""
        shutil.rmtree(self.path, ignore_errors=True)


def _trash(root: Path, attempt: AttemptId) -> Iterator[Path]:
    """Yield unused names to which directories are renamed before they are deleted."""
    return (path for n in itertools.count() if not (path := root / f"{_TRASH}{attempt}-{n}").exists())


def _entries(directory: Path) -> list[Path]:
    try:
        return sorted(directory.iterdir())
    except OSError:
        return []


def _is_ongoing(directory: Path) -> bool:
    return directory.name.endswith(_ONGOING)


def _copies(directory: Path, files: Checksums) -> dict[str, LocalCopy]:
    """Return the copies of ``files`` in a completed directory. The result is empty if its index is missing or
    damaged."""
    if _is_ongoing(directory):
        return {}
    try:
        copies = read_index(directory)
    except (OSError, ValueError, RecursionError):
        return {}
    return {path: c for path, c in copies.items() if files.get(path) == (c.size_bytes, c.crc32c)}


def _useless(directories: Iterable[Path], files: Checksums) -> Iterator[Path]:
    """Yield the directories whose copies of ``files`` all lie in directories with more copies too. Attempts that were
    not acknowledged may have such copies, because they link shared files as well."""
    covered: set[str] = set()
    candidates = [(directory, _copies(directory, files).keys()) for directory in directories]
    for directory, paths in sorted(candidates, key=lambda candidate: (-len(candidate[1]), candidate[0])):
        if paths <= covered:
            yield directory
        covered |= paths


def _remove(directories: Iterable[Path], trash: Iterator[Path]) -> None:
    """Rename each directory to a name of ``trash`` in one step, so that no reader finds an incomplete one, then delete
    it."""
    for directory in directories:
        name = next(trash)
        try:
            directory.rename(name)
        except OSError:
            continue  # another process removed it first
        crash_point("local copy: taken away")
        _delete(name)


def _delete(path: Path) -> None:
    """Delete a file or directory as far as possible. The next run deletes the rest."""
    shutil.rmtree(path, ignore_errors=True)
    with contextlib.suppress(OSError):
        path.unlink()  # if it is not a directory
    crash_point("local copy: removed")
