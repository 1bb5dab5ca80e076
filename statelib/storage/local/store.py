"""Local copies of checkpoint files on one host: written beside the remote ones, found again by the next run.

Layout: ``<root>/local-state/<storage>/<pipeline>/chk-<id>/<attempt>-<subtask>/`` with the copies and an index;
``<storage>`` tells apart deployments that use one root. A directory still being written ends in
``.ongoing``. Nothing here is ever needed: whatever is missing, broken or foreign is read remotely.
Source: requirements R70 to R83 (TaskLocalStateStore, LocalSnapshotDirectoryProvider, SnapshotDirectory).
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
from statelib.storage.views import WrittenStream

log = logging.getLogger(__name__)

LOCAL_STATE = "local-state"

_ONGOING = ".ongoing"
_TRASH = "trash-"
_CARRIED = "carried-"
_SNAPSHOT_DIGITS = 24
"""Of an attempt's id: the same for all tasks of one snapshot."""

Checksums = Mapping[str, tuple[int, int]]
"""Key of a remote file or segment -> (size in bytes, crc32c)."""


class LocalSnapshotDirectory:
    """Where one subtask's attempt at one checkpoint puts its copies. ONGOING from :meth:`make` until :meth:`complete`,
    each of which is done once; DELETED after :meth:`discard`."""

    def __init__(self, path: Path, copies: LocalCopies | None = None) -> None:
        """``copies``: those that the subtask was restored from."""
        self._path = path
        self._copies = copies or LocalCopies({})
        self._numbers = itertools.count()
        self._ongoing = path.with_name(path.name + _ONGOING)
        self._failed = False
        self._identities: dict[str, FileIdentity] = {}
        self.streams = LocalStreams(str(self._ongoing))
        """For copies that are written while the remote file is."""

    def make(self) -> None:
        """Empty, whatever was there."""
        if self._ongoing.exists() or self._path.exists():
            log.warning("%s exists already and is made anew", self._path)
            self.discard()
        self._ongoing.mkdir(parents=True)
        crash_point("local copy: directory made")

    def keep(self, path: str, name: str) -> str | None:
        """Link a file that never changes any more, or copy it where links do not reach; its name here, None if
        that failed. After one failure no more is kept: without all of it, little is saved. What is linked was proved
        to hold the stream's bytes, and need not be read for that again."""
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
        """Link the copy of an earlier checkpoint's file that the subtask was restored from; its name here, None where
        there is no such copy, or no link reaches it: nothing is copied again."""
        found = self._copies.get(handle)
        if found is None:
            return None
        name = f"{_CARRIED}{next(self._numbers)}"
        try:
            os.link(f"{found.directory}/{found.copy.name}", self._ongoing / name, follow_symlinks=False)
            if self._copies.proved(handle):
                self._identify(name)
            crash_point("local copy: linked")
        except OSError as error:
            log.warning("no local copy of %s: %s", handle.path, error)
            return None
        return name

    def _identify(self, name: str) -> None:
        """Remember a linked file's identity once it can be relied on, by the file system's own clock."""
        identity = identity_of(str(self._ongoing / name))
        if identity.settled(identity_of(str(self._ongoing)).modified_ns):
            self._identities[name] = identity

    def complete(self, streams: Iterable[WrittenStream]) -> None:
        """Keep the copies of these streams and nothing else; from now on they are found."""
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
        finally:  # SIGTERM may end it here too
            shutil.rmtree(self._ongoing, ignore_errors=True)

    def discard(self) -> None:
        """Remove it in whichever state it is."""
        shutil.rmtree(self._ongoing, ignore_errors=True)
        shutil.rmtree(self._path, ignore_errors=True)


class LocalSnapshotDirectories:
    """The local-recovery input of a snapshot strategy: a directory for each checkpoint that one subtask's
    attempt takes (R82, R83). A context that discards, at its end, what was not completed."""

    def __init__(self, root: Path, attempt: AttemptId, subtask: int, copies: LocalCopies | None = None) -> None:
        """``copies``: those that the subtask is restored from."""
        self._root = root
        self._copies = copies
        self._name = f"{attempt}-{subtask}"
        self._open: dict[CheckpointId, LocalSnapshotDirectory] = {}

    def open(self, checkpoint_id: CheckpointId) -> LocalSnapshotDirectory | None:
        """A new, empty directory; None, with a warning, where none can be made."""
        self.discard(checkpoint_id)
        directory = LocalSnapshotDirectory(self._root / checkpoint_directory(checkpoint_id) / self._name, self._copies)
        self._open[checkpoint_id] = directory  # before it is made, so that it is discarded whatever ends this
        try:
            directory.make()
        except OSError as error:
            log.warning("no directory for local copies: %s. Continue only with the primary stream.", error)
            self.discard(checkpoint_id)
            return None
        return directory

    def complete(self, checkpoint_id: CheckpointId, streams: Iterable[WrittenStream]) -> None:
        """The snapshot was written: keep the copies. To be called before it is acknowledged (R78)."""
        directory = self._open.pop(checkpoint_id, None)
        if directory is not None:
            directory.complete(streams)

    def discard(self, checkpoint_id: CheckpointId) -> None:
        """The snapshot failed."""
        directory = self._open.pop(checkpoint_id, None)
        if directory is not None:
            directory.discard()

    def __enter__(self) -> "LocalSnapshotDirectories":
        return self

    def __exit__(self, *_: object) -> None:
        for checkpoint_id in list(self._open):
            self.discard(checkpoint_id)


class LocalStateStore:
    """All local copies of one pipeline on this host. Holds nothing open; any number of processes may use one."""

    def __init__(self, root: str, storage_uri: str, pipeline: str) -> None:
        storage = hashlib.sha256(storage_uri.encode()).hexdigest()[:16]
        self.path = Path(os.path.abspath(root)) / LOCAL_STATE / storage / pipeline_name(pipeline)

    def directories(
        self, attempt: AttemptId, subtask: int, copies: LocalCopies | None = None
    ) -> LocalSnapshotDirectories:
        """For the snapshots of one subtask's attempt. ``copies``: those that the subtask is restored from."""
        return LocalSnapshotDirectories(self.path, attempt, subtask, copies)

    def fetched(self, checkpoint_id: CheckpointId, attempt: AttemptId, subtask: int) -> Path:
        """Return where a subtask's attempt at a checkpoint puts the remote files that it copies to this host. A killed
        process leaves it to whoever prunes next."""
        return self.path / checkpoint_directory(checkpoint_id) / f"{attempt}-{subtask}-fetched{_ONGOING}"

    def find(self, checkpoint_id: CheckpointId, files: Checksums) -> dict[str, FoundCopy]:
        """Key of a remote file or segment -> its copy, for those of ``files`` that were copied on this host with
        the very size and checksum, by whichever subtask."""
        found: dict[str, FoundCopy] = {}
        for directory in _entries(self.path / checkpoint_directory(checkpoint_id)):
            found |= {path: FoundCopy(str(directory), copy) for path, copy in _copies(directory, files).items()}
        return found

    def prune(
        self, checkpoint_id: CheckpointId, attempt: AttemptId, base: CheckpointId | None, files: Checksums
    ) -> None:
        """Remove what a run of ``checkpoint_id`` on the confirmed ``base`` (with ``files``) shows to be of no use:
        older and aborted checkpoints, attempts that did not complete the base, what killed processes left.

        Never raises for what cannot be removed, nor minds others that prune at the same time. A run that
        has been overtaken leaves newer checkpoints alone."""
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
        """Remove the copies of a checkpoint: one of them is damaged."""
        _remove((self.path / checkpoint_directory(checkpoint_id),), _trash(self.path, attempt))

    def clear(self) -> None:
        """Remove all of it: local recovery was switched off."""
        shutil.rmtree(self.path, ignore_errors=True)


def _trash(root: Path, attempt: AttemptId) -> Iterator[Path]:
    return (path for n in itertools.count() if not (path := root / f"{_TRASH}{attempt}-{n}").exists())


def _entries(directory: Path) -> list[Path]:
    try:
        return sorted(directory.iterdir())
    except OSError:
        return []


def _is_ongoing(directory: Path) -> bool:
    return directory.name.endswith(_ONGOING)


def _copies(directory: Path, files: Checksums) -> dict[str, LocalCopy]:
    """Those of ``files`` that a completed directory holds; none where its index is missing or damaged."""
    if _is_ongoing(directory):
        return {}
    try:
        copies = read_index(directory)
    except (OSError, ValueError, RecursionError):
        return {}
    return {path: c for path, c in copies.items() if files.get(path) == (c.size_bytes, c.crc32c)}


def _useless(directories: Iterable[Path], files: Checksums) -> Iterator[Path]:
    """Those that hold none of ``files`` but what a fuller one holds too: tries that were not acknowledged have
    copies of the shared files as well."""
    held: set[str] = set()
    candidates = [(directory, _copies(directory, files).keys()) for directory in directories]
    for directory, paths in sorted(candidates, key=lambda candidate: (-len(candidate[1]), candidate[0])):
        if paths <= held:
            yield directory
        held |= paths


def _remove(directories: Iterable[Path], trash: Iterator[Path]) -> None:
    """Take each out of the way in one step, so that nobody finds half of it, then delete it."""
    for directory in directories:
        name = next(trash)
        try:
            directory.rename(name)
        except OSError:
            continue  # somebody else was first
        crash_point("local copy: taken away")
        _delete(name)


def _delete(path: Path) -> None:
    """All of it, as far as that goes: the next run tries again."""
    shutil.rmtree(path, ignore_errors=True)
    with contextlib.suppress(OSError):
        path.unlink()  # where something else than a directory lay
    crash_point("local copy: removed")
