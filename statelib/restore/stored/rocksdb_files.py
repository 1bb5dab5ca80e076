"""Copying the files of a RocksDB handle into one directory, under RocksDB's own file names."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from statelib.backends.rocksdb.database import FILE_NAME, IMMUTABLE_SUFFIX
from statelib.errors import CorruptStateError
from statelib.model.handles import IncrementalRemoteKeyedStateHandle, StreamStateHandle
from statelib.storage.local.file_identity import KnownFile, identity_of
from statelib.storage.ports.views import LinkingReader, StateReader


def materialise(
    handle: IncrementalRemoteKeyedStateHandle, reader: StateReader, directory: Path, *, with_options: bool
) -> dict[str, KnownFile]:
    """Copy every file of the handle into ``directory``, which must not exist and is created.

    Return the files that RocksDB never changes, by their names. ``with_options`` includes RocksDB's OPTIONS files,
    which a merge operator needs and which are otherwise better written anew. Raise CorruptStateError
    (``bad-file-name``) if a name is not a RocksDB file name or occurs twice, and what the reader raises."""
    files = files_to_copy(handle, with_options=with_options)
    directory.mkdir(parents=True)
    immutable_files = {}
    for name, stream in files:
        path = str(directory / name)
        immutable = name.endswith(IMMUTABLE_SUFFIX)
        if immutable and isinstance(reader, LinkingReader):
            reader.link_to(stream, path)
        else:
            reader.copy_to(stream, path)
        if immutable:
            immutable_files[name] = KnownFile(stream, identity_of(path))
    return immutable_files


@contextmanager
def naming_stored_files(handle: IncrementalRemoteKeyedStateHandle, directory: Path) -> Iterator[None]:
    """Raise CorruptStateError of the block with the places of the stored files in its message, instead of the places of
    their copies in ``directory``, which are gone when somebody reads it."""
    try:
        yield
    except CorruptStateError as error:
        message = error.message
        for name, stream in rocksdb_files(handle):
            message = message.replace(f"{directory}/{name}", f"{name} in {place_of(stream)}")
        message = message.replace(str(directory), f"the copied files of checkpoint {handle.checkpoint_id}")
        raise type(error)(message, kind=error.kind, hint=error.hint) from error


def place_of(stream: StreamStateHandle) -> str:
    """Return the recorded path of a file. Small files are part of ``_metadata``."""
    return getattr(stream, "path", None) or "_metadata"


def files_to_copy(
    handle: IncrementalRemoteKeyedStateHandle, *, with_options: bool
) -> tuple[tuple[str, StreamStateHandle], ...]:
    """Return the files that :func:`materialise` copies, as pairs (RocksDB's file name, handle of its bytes)."""
    return tuple(file for file in rocksdb_files(handle) if with_options or not file[0].startswith("OPTIONS-"))


def rocksdb_files(handle: IncrementalRemoteKeyedStateHandle) -> tuple[tuple[str, StreamStateHandle], ...]:
    """Return the shared and the private files together, as pairs (RocksDB's file name, handle of its bytes).

    A file of any type may be in either list. Raise CorruptStateError (``bad-file-name``). Source:
    docs/spec/formats.md#rocksdb-handles."""
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
