"""Checks and small moves on entries that both backends make in the same way."""

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from statelib.errors import CorruptStateError, InvalidRequestError
from statelib.model.key_groups import KeyGroupRange, prefix_width
from statelib.model.state import KeyedStateSchema, StateDescriptor, StateKind, StateStatistics
from statelib.serializers.rows import StateRows, key_groups_of, statistics_of
from statelib.wire.ragged import Ragged

SCAN_ROWS = 65536
"""Entries in one batch of a scan: large enough for numpy, small enough to stay in the cache."""
SCAN_BYTES = 4 * 1024 * 1024
"""Of keys and values at which a batch of a scan ends early; a single entry may be larger."""


def _foreign_key_group(keys: Ragged, max_parallelism: int, key_group_range: KeyGroupRange) -> int | None:
    """A key group outside the range that one of the keys lies in; None if there is none.

    A key too short to hold its key group counts as key group -1."""
    if not len(keys):
        return None
    width = prefix_width(max_parallelism)
    if int(keys.lengths.min()) < width:
        return -1
    groups = key_groups_of(keys, width)
    foreign = (groups < key_group_range.start) | (groups > key_group_range.end)
    return int(groups[foreign.argmax()]) if bool(foreign.any()) else None


def check_asked_keys(state: str, keys: Ragged, schema: KeyedStateSchema, key_group_range: KeyGroupRange) -> None:
    """Refuse keys that this backend does not own: InvalidRequestError (``foreign-key-group``)."""
    group = _foreign_key_group(keys, schema.max_parallelism, key_group_range)
    if group is not None:
        raise InvalidRequestError(
            f"state {state!r}: a key of key group {group} was asked for, this backend owns {key_group_range}",
            kind="foreign-key-group",
        )


def check_loaded_rows(state: str, rows: StateRows, schema: KeyedStateSchema, key_group_range: KeyGroupRange) -> None:
    """Refuse stored entries of other key groups: CorruptStateError (``foreign-key-group``)."""
    group = _foreign_key_group(rows.keys, schema.max_parallelism, key_group_range)
    if group is not None:
        raise CorruptStateError(
            f"state {state!r}: found an entry of key group {group}, expected key groups {key_group_range} only",
            kind="foreign-key-group",
        )


def removed_rows(
    descriptor: StateDescriptor, values: pa.Array, removed: pa.BooleanArray | None
) -> npt.NDArray[np.bool_]:
    """Which rows of a write delete their key: those marked, and empty lists, which no format stores.

    Raises InvalidRequestError (``null-value``) for a null that neither is removed nor allowed."""
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
    """Raise InvalidRequestError unless a write has one value a row, of the state's Arrow type."""
    if len(values) != rows:
        raise InvalidRequestError(
            f"state {descriptor.name!r}: expected {rows} values, one a key, found {len(values)}", kind="bad-write"
        )
    if values.type != expected:
        raise InvalidRequestError(
            f"state {descriptor.name!r}: expected values of Arrow type {expected}, found {values.type}",
            kind="wrong-value-type",
        )


def add_entries(total: StateStatistics, rows: StateRows, prefix_width: int, sign: int) -> StateStatistics:
    """``total`` with entries of its key groups added (sign 1) or taken away (sign -1)."""
    other = statistics_of(rows, prefix_width, total.key_group_range)
    with np.errstate(over="ignore"):
        digests = total.digests + other.digests if sign > 0 else total.digests - other.digests
    return StateStatistics(total.key_group_range, total.entries + sign * other.entries, digests)
