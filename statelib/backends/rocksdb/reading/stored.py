"""Reading a stored RocksDB directory without changing it. It is checked that no file is missing."""

from collections.abc import Collection, Iterator, Sequence

from statelib.backends.rocksdb.database import (
    check_live_files,
    column_families,
    open_readable,
    rocksdb_errors,
    table_names,
)
from statelib.backends.rocksdb.reading.entries import StoredState, scan_state
from statelib.errors import CorruptStateError
from statelib.model.key_groups import KeyGroupRange, prefix_width
from statelib.serializers.entries.rows import StateRows


def scan_stored(
    directory: str,
    states: Sequence[str],
    key_groups: KeyGroupRange | None,
    max_parallelism: int,
    optional: Collection[str] = (),
) -> Iterator[tuple[int, StateRows]]:
    """Yield (index in ``states``, entries in key order) of the key groups (None: of all) from a local directory.

    The merge operands of Flink's list state are joined. Raises CorruptStateError: ``corrupt-rocksdb``
    for damage, ``rocksdb-files-mismatch`` if the MANIFEST names other files than the directory has,
    ``missing-state`` for a state without a column family that is not in ``optional``."""
    present = column_families(directory)
    missing = [name for name in states if name not in present and name not in optional]
    if missing:
        raise CorruptStateError(
            f"RocksDB at {directory}: no column family for the states {missing}, found {sorted(present)}",
            kind="missing-state",
        )
    db = open_readable(directory, sorted(present))
    try:
        check_live_files(db, directory, table_names(directory))
        first, stop = key_group_bounds(key_groups, max_parallelism) if key_groups is not None else (b"", None)
        families: dict[str, str] = {}
        for index, name in enumerate(states):
            if name not in present:
                continue
            with rocksdb_errors(directory, f"opening state {name!r}"):
                state = StoredState(db, db.get_column_family(name), name, directory, families)
            for rows in scan_state(state, first=first, stop=stop):
                yield index, rows
    finally:
        db.close()


def key_group_bounds(key_groups: KeyGroupRange, max_parallelism: int) -> tuple[bytes, bytes | None]:
    """Return the bounds [first, stop) of the serialized keys of the key groups; ``stop`` None = no upper bound."""
    width = prefix_width(max_parallelism)
    end = key_groups.end + 1
    stop = end.to_bytes(width, "big") if end < 256**width else None
    return key_groups.start.to_bytes(width, "big"), stop
