"""Listing and verifying the files in a checkpoint's directory. Functions here only read."""

import os
import stat
from collections.abc import Iterator, Sequence

from statelib.errors import CorruptStateError, NotFoundError
from statelib.model.checkpoint import FileRecord
from statelib.storage.filesystem.descriptors import opened_directory, opened_file
from statelib.storage.filesystem.failures import storage_errors
from statelib.storage.filesystem.reader import DirectoryReader, blocks
from statelib.storage.ports.inventory import FileFinding, SourceEntry, StoredFile, finding, read_finding
from statelib.storage.uris import AllowedRoot, file_handle, local_path
from statelib.wire.checksum import ContentHash


def verify_files(
    directory: str, files: Sequence[FileRecord], read_data: bool, allowed_root: AllowedRoot = None
) -> list[FileFinding]:
    """Return one finding per record, in the same order. Sizes are always compared; with ``read_data``, files of the
    right size are read and their checksums compared.

    Raises InvalidRequestError (``outside-root``), before anything is read, for an absolute path that lies neither
    below ``directory`` nor below ``allowed_root``."""
    reader = DirectoryReader(directory, allowed_root=allowed_root)
    places = [reader.locate(file_handle(record.path, record.size_bytes)) for record in files]
    return [_verify(record, *place, read_data) for record, place in zip(files, places, strict=True)]


def _verify(record: FileRecord, root: str, parts: tuple[str, ...], read_data: bool) -> FileFinding:
    try:
        with (
            storage_errors(f"verifying {record.path}"),
            opened_directory(root, parts[:-1]) as parent,
            opened_file(parent, parts[-1]) as file,
        ):
            size = os.fstat(file).st_size
            if size != record.size_bytes:
                return finding(record, "size", size)
            if not read_data:
                return finding(record, "", size)
            content = ContentHash()
            for block in blocks(file):
                content.update(block)
            return read_finding(record, size, content)
    except (NotFoundError, CorruptStateError):
        return finding(record, "missing")


def list_files(directory: str) -> list[StoredFile]:
    """Return all files below a directory and its subdirectories, sorted by path. Links are listed, not followed.

    Raises NotFoundError (``missing-file``) if there is no such directory."""
    root = local_path(directory)
    with storage_errors(f"listing {root}"), opened_directory(root) as descriptor:
        return sorted(_listed(descriptor, ""), key=lambda file: file.path)


def _listed(directory: int, prefix: str) -> Iterator[StoredFile]:
    with os.scandir(directory) as entries:
        names = [entry.name for entry in entries]
    for name in names:
        try:
            status = os.stat(name, dir_fd=directory, follow_symlinks=False)
        except FileNotFoundError:
            continue  # it was removed after the directory was read
        if stat.S_ISDIR(status.st_mode):
            yield from _listed_below(directory, name, prefix)
        else:
            modified_at_ms = status.st_mtime_ns // 1_000_000
            yield StoredFile(prefix + name, status.st_size, modified_at_ms, stat.S_ISREG(status.st_mode))


def _listed_below(parent: int, name: str, prefix: str) -> Iterator[StoredFile]:
    try:
        child = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    except FileNotFoundError:
        return  # it was removed after the directory was read; the rest of the listing is still valid
    try:
        yield from _listed(child, f"{prefix}{name}/")
    finally:
        os.close(child)


def source_entries(root: str) -> Iterator[SourceEntry]:
    """Yield the file or directory at the path of a source, and all below it. Links are followed, as Spark does."""
    path = local_path(root)
    with storage_errors(f"looking at {path}"):
        try:
            status = os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return
        if stat.S_ISDIR(status.st_mode):
            yield SourceEntry((), None)
            yield from _below(path)
        else:
            yield SourceEntry((), status.st_mtime_ns // 1_000_000)


def _below(path: str) -> Iterator[SourceEntry]:
    for directory, directories, names in os.walk(path, onerror=_unless_gone, followlinks=True):
        relative = os.path.relpath(directory, path)
        parts = () if relative == "." else tuple(relative.split(os.sep))
        yield from (SourceEntry((*parts, name), None) for name in directories)
        for name in names:
            modified_at_ms = _modified_ms(os.path.join(directory, name))
            if modified_at_ms is not None:
                yield SourceEntry((*parts, name), modified_at_ms)


def _unless_gone(error: OSError) -> None:
    """Ignore that a directory was removed after its parent was read. Raise any other error of listing a directory."""
    if not isinstance(error, FileNotFoundError):
        raise error


def _modified_ms(path: str) -> int | None:
    """Return the modification time of a file in epoch milliseconds, None if the file was removed after its directory
    was read."""
    try:
        return os.stat(path).st_mtime_ns // 1_000_000
    except FileNotFoundError:
        return None
