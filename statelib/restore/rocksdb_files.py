"""The files of a RocksDB handle, brought back under RocksDB's own names into one directory."""

from pathlib import Path

from statelib.backends.rocksdb.database import FILE_NAME, IMMUTABLE_SUFFIX
from statelib.errors import CorruptStateError
from statelib.model.handles import IncrementalRemoteKeyedStateHandle, StreamStateHandle
from statelib.storage.local.file_identity import KnownFile, identity_of
from statelib.storage.views import LinkingReader, StateReader


def materialise(
    handle: IncrementalRemoteKeyedStateHandle, reader: StateReader, directory: Path, *, with_options: bool
) -> dict[str, KnownFile]:
    """Copy every file of the handle into ``directory``, which is made and must not exist.

    ``with_options``: also RocksDB's OPTIONS files (needed for a merge operator, otherwise better
    written anew). Returns those that RocksDB never changes. Raises CorruptStateError (``bad-file-name``) for a name
    that is no RocksDB file's, or is given twice, and what the reader raises."""
    files = files_to_copy(handle, with_options=with_options)
    directory.mkdir(parents=True)
    known = {}
    for name, stream in files:
        path = str(directory / name)
        unchanging = name.endswith(IMMUTABLE_SUFFIX)
        if unchanging and isinstance(reader, LinkingReader):
            reader.link_to(stream, path)
        else:
            reader.copy_to(stream, path)
        if unchanging:
            known[name] = KnownFile(stream, identity_of(path))
    return known


def files_to_copy(
    handle: IncrementalRemoteKeyedStateHandle, *, with_options: bool
) -> tuple[tuple[str, StreamStateHandle], ...]:
    """What :func:`materialise` copies: (RocksDB's file name, where its bytes lie)."""
    return tuple(file for file in rocksdb_files(handle) if with_options or not file[0].startswith("OPTIONS-"))


def rocksdb_files(handle: IncrementalRemoteKeyedStateHandle) -> tuple[tuple[str, StreamStateHandle], ...]:
    """Shared and private files together; membership says nothing about what they are (section 8.1)."""
    files = handle.shared + handle.private
    names = [name for name, _ in files]
    bad = [name for name in names if not FILE_NAME.fullmatch(name)]
    twice = sorted({name for name in names if names.count(name) > 1})
    if bad or twice:
        raise CorruptStateError(
            f"RocksDB handle of checkpoint {handle.checkpoint_id}: expected each RocksDB file name once, found"
            f" {[name[:100] for name in (bad or twice)[:5]]}",
            kind="bad-file-name",
        )
    return files
