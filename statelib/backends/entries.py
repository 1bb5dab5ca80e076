"""Checks and small operations on entries that the heap and the RocksDB backend share."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from statelib.errors import CorruptStateError, InvalidRequestError
from statelib.model.key_groups import KeyGroupRange, prefix_width
from statelib.model.state import KeyedStateSchema, StateDescriptor, StateKind, StateStatistics
from statelib.serializers.entries.rows import StateRows, key_groups_of, statistics_of
from statelib.wire.ragged import Ragged, as_arrow

SCAN_ROWS = 65536
"""The most entries in one batch of a scan: large enough for numpy, small enough for the processor's cache."""
SCAN_BYTES = 4 * 1024 * 1024
"""The bytes of keys and values at which a batch of a scan ends early. A single entry may be larger."""


def _foreign_key_group(keys: Ragged, max_parallelism: int, key_group_range: KeyGroupRange) -> int | None:
    """Return the key group of one of the keys that is outside the range; None if there is no such key.

    A key too short to hold a key group counts as key group -1."""
    if not len(keys):
        return None
    width = prefix_width(max_parallelism)
    if int(keys.lengths.min()) < width:
        return -1
    groups = key_groups_of(keys, width)
    foreign = (groups < key_group_range.start) | (groups > key_group_range.end)
    return int(groups[foreign.argmax()]) if bool(foreign.any()) else None


def check_owned_keys(state: str, keys: Ragged, schema: KeyedStateSchema, key_group_range: KeyGroupRange) -> None:
    """Raise InvalidRequestError (``foreign-key-group``) if a key to be read is outside the backend's range."""
    group = _foreign_key_group(keys, schema.max_parallelism, key_group_range)
    if group is not None:
        raise InvalidRequestError(
            f"state {state!r}: cannot read a key of key group {group}, this backend owns key groups {key_group_range}",
            kind="foreign-key-group",
        )


def check_loaded_rows(state: str, rows: StateRows, schema: KeyedStateSchema, key_group_range: KeyGroupRange) -> None:
    """Raise CorruptStateError (``foreign-key-group``) if a stored entry is outside the backend's range."""
    group = _foreign_key_group(rows.keys, schema.max_parallelism, key_group_range)
    if group is not None:
        raise CorruptStateError(
            f"state {state!r}: found an entry of key group {group}, expected key groups {key_group_range} only",
            kind="foreign-key-group",
        )


def removed_rows(
    descriptor: StateDescriptor, values: pa.Array, removed: pa.BooleanArray | None
) -> npt.NDArray[np.bool_]:
    """Return which rows of a write delete their entry, as a boolean per row: the rows marked in ``removed``, and empty
    lists, because no format stores them.

    Raises InvalidRequestError (``null-value``) for a null that is not marked as removed, except in map state and
    timers."""
    marked = np.zeros(len(values), np.bool_)
    if removed is not None:
        marked |= removed.to_numpy(zero_copy_only=False).astype(np.bool_)
    if descriptor.kind is StateKind.LIST:
        empty = pc.fill_null(pc.equal(pc.list_value_length(values), 0), False)
        marked |= np.asarray(empty.to_numpy(zero_copy_only=False), np.bool_)
    if descriptor.kind not in (StateKind.MAP, StateKind.TIMERS) and values.null_count:
        null = np.asarray(values.is_null().to_numpy(zero_copy_only=False), np.bool_) & ~marked
        if bool(null.any()):
            raise InvalidRequestError(
                f"state {descriptor.name!r}: row {int(null.argmax())} of a write is null and not marked as removed",
                kind="null-value",
                hint="mark the row as removed to delete the key",
            )
    return marked


def check_write(descriptor: StateDescriptor, expected: pa.DataType, rows: int, values: pa.Array) -> None:
    """Raise InvalidRequestError (``bad-write``, ``wrong-value-type``) unless a write has one value per row, of the
    state's Arrow type ``expected``."""
    if len(values) != rows:
        raise InvalidRequestError(
            f"state {descriptor.name!r}: expected {rows} values, one per key, found {len(values)}", kind="bad-write"
        )
    if values.type != expected:
        raise InvalidRequestError(
            f"state {descriptor.name!r}: expected values of Arrow type {expected}, found {values.type}",
            kind="wrong-value-type",
        )


def having_prefix(keys: Ragged, prefixes: Ragged, prefix_of: Callable[[Ragged], Ragged]) -> Ragged:
    """Return the keys whose prefix is among ``prefixes``, in the given order."""
    if not len(keys):
        return keys
    is_wanted = pc.is_in(as_arrow(prefix_of(keys)), value_set=as_arrow(prefixes))
    return keys.take(np.flatnonzero(is_wanted.to_numpy(zero_copy_only=False)))


def add_entries(total: StateStatistics, rows: StateRows, prefix_width: int, sign: int) -> StateStatistics:
    """Return ``total`` with entries of its key groups added (``sign`` 1) or subtracted (``sign`` -1).

    ``prefix_width``: size in bytes of the key-group prefix of the keys."""
    other = statistics_of(rows, prefix_width, total.key_group_range)
    with np.errstate(over="ignore"):
        digests = total.digests + other.digests if sign > 0 else total.digests - other.digests
    return StateStatistics(total.key_group_range, total.entries + sign * other.entries, digests)
