"""The new parts of a handle whose other parts are known: which key groups they have entries of, or may have lost."""

from collections.abc import Callable, Iterable, Iterator

from statelib.backends.rocksdb.database import IMMUTABLE_SUFFIX
from statelib.model.handles import (
    ChangelogStateBackendHandleImpl,
    ChangelogStateHandle,
    ChangelogStateHandleStreamImpl,
    IncrementalRemoteKeyedStateHandle,
    KeyedStateHandle,
    StreamStateHandle,
    log_streams,
    materialized_parts,
    stream_handles,
)
from statelib.restore.changelog.change_log import changed_key_groups
from statelib.restore.plan import RestoreSource
from statelib.restore.stored.rocksdb_files import rocksdb_files
from statelib.restore.stored.tables import stored_tables

IsKnown = Callable[[StreamStateHandle], bool]


def written_key_groups(source: RestoreSource, is_known: IsKnown) -> set[int]:
    """Return the key groups of which the new tables and log parts of a handle have entries; all of its key groups if
    only RocksDB can read a new table.

    Each new table and log part is read whole, and each MANIFEST is compared with the tables of its handle.
    ``is_known``: whether a stream was proved before. Raises as
    :func:`~statelib.restore.stored.tables.stored_tables` and the readers of both formats."""
    handle, written = source.handle, set[int]()
    if isinstance(handle, ChangelogStateBackendHandleImpl):
        for logged in handle.log:
            if not is_known_part(logged, is_known):
                written |= changed_key_groups(source.reader, logged)
    for part in materialized_parts(handle):
        if isinstance(part, IncrementalRemoteKeyedStateHandle):
            written |= _in_new_tables(source, part, is_known)
        elif not all(map(is_known, stream_handles(part))):
            written |= set(part.key_group_range)
    # After rescaling, tables may also hold deletions of key groups that the handle no longer has.
    return written & set(handle.key_group_range)


def _in_new_tables(source: RestoreSource, handle: IncrementalRemoteKeyedStateHandle, is_known: IsKnown) -> set[int]:
    tables, written = stored_tables(handle, source.reader), set[int]()
    for name, stream in rocksdb_files(handle):
        if name.endswith(IMMUTABLE_SUFFIX) and not is_known(stream):
            groups = tables.key_groups_in(name, source.schema.max_parallelism)
            written |= set(handle.key_group_range) if groups is None else groups
    return written if tables.is_alone else set(handle.key_group_range)


def merged_key_groups(before: Iterable[KeyedStateHandle], now: Iterable[KeyedStateHandle]) -> set[int]:
    """Return the key groups of the handles ``before`` that have a table or a log part which none of ``now`` has.

    It was merged. A key group whose last entries were deleted before that may have no entry in any new part, not even a
    deletion, and a merge that leaves no entry leaves no table."""
    left = {stream for handle in now for stream in _tables_and_log(handle)}
    merged = (handle for handle in before if not left.issuperset(_tables_and_log(handle)))
    return {group for handle in merged for group in handle.key_group_range}


def _tables_and_log(handle: KeyedStateHandle) -> Iterator[StreamStateHandle]:
    """Yield the streams that hold the entries of a handle, unless they are all in one stream."""
    if isinstance(handle, ChangelogStateBackendHandleImpl):
        yield from log_streams(handle)
    for part in materialized_parts(handle):
        if isinstance(part, IncrementalRemoteKeyedStateHandle):
            yield from (stream for name, stream in rocksdb_files(part) if name.endswith(IMMUTABLE_SUFFIX))


def is_known_part(part: ChangelogStateHandle, is_known: IsKnown) -> bool:
    """Return whether all streams of a part of a log are known. Changes inside ``_metadata`` are always new."""
    streams = [stream for stream, _ in part.segments] if isinstance(part, ChangelogStateHandleStreamImpl) else []
    return bool(streams) and all(map(is_known, streams))
