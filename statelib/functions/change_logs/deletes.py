"""Deletes of keys: the events of an interval up to the latest delete of their key are dropped, its state is cleared.

All of it is done before the states see the events, so that the events after a delete apply to a key without state."""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statelib.aggregates.grouping import Rows, group_rows, one_array, pick_rows
from statelib.aggregates.picks import clean, compared
from statelib.backends.entries import having_prefix
from statelib.backends.keyed import KeyedStateBackend
from statelib.backends.keys.distinct import one_entry_per_key
from statelib.errors import InvalidRequestError
from statelib.functions.change_logs.changes import APPLIED, CHANGE, DELETED
from statelib.functions.timers import remove
from statelib.model.amounts import number_of
from statelib.model.state import StateKind
from statelib.serializers.columns.arrow import one_nan
from statelib.serializers.entries.keys import group_prefix, only_entries, prefixed_keys
from statelib.serializers.registry import key_bytes
from statelib.wire.ragged import Ragged, concat, join


def without_deleted(
    backend: KeyedStateBackend,
    events: pa.Table,
    keys: pa.Array,
    groups: npt.NDArray[np.int32],
    order_by: Sequence[str],
    *,
    retracts: bool = False,
    deleted: Callable[[Ragged], None] | None = None,
) -> tuple[pa.Table, pa.Array, npt.NDArray[np.int32]]:
    """Clear the state of the keys that have a delete, or call ``deleted`` with them, prefixed with their key groups.
    Return the events to apply, their keys and key groups: those after the latest delete of their key, in the order of
    the columns ``order_by``, and those of keys without a delete.

    ``events`` has the column :data:`CHANGE`; the result has it only if the sources can retract events (``retracts``),
    because states treat the events of a change log in another way, also in an interval without a retraction. Raise
    InvalidRequestError: ``null-order`` for an event without a value in ``order_by``; ``delete-order`` if an event has
    the same values as the delete of its key."""
    changes = one_array(events[CHANGE]).fill_null(APPLIED).to_numpy()
    events = events if retracts else events.drop_columns([CHANGE])
    order = [_ordering(events, name) for name in order_by]
    deletes = np.flatnonzero(changes == DELETED)
    if not len(deletes):
        return events, keys, groups
    grouping = group_rows([keys])
    codes = grouping.codes
    positions = pa.array(deletes)
    picked = pick_rows([column.take(positions) for column in order], codes[deletes], grouping.size, "max")
    latest = np.where(picked < 0, -1, deletes[picked])[codes]
    untouched = np.flatnonzero(latest < 0)
    questioned = np.flatnonzero((latest >= 0) & (changes != DELETED))
    after = questioned[_is_after(order, questioned, latest[questioned], order_by)]
    first = grouping.first[picked >= 0]
    encoded = key_bytes(backend.schema.key_type, one_nan(keys.take(pa.array(first))))
    prefixed = join([group_prefix(backend.schema, groups[first]), encoded])
    (deleted or partial(_clear_keys, backend))(prefixed)
    rows = np.sort(np.concatenate([untouched, after]))
    return events.take(pa.array(rows)), keys.take(pa.array(rows)), groups[rows]


def _clear_keys(backend: KeyedStateBackend, prefixed: Ragged) -> None:
    """Remove all entries of distinct keys: of every state, window, user key and timer."""
    for descriptor in backend.schema.states:
        prefix_of = partial(prefixed_keys, backend.schema, descriptor)
        if one_entry_per_key(descriptor):
            entries = only_entries(descriptor, prefixed)
        elif descriptor.kind is not StateKind.TIMERS:
            entries = backend.keys_with(descriptor.name, prefixed, prefix_of)
        else:  # timers are sorted by time, not by key
            scan = backend.scan(descriptor.name)
            entries = concat([having_prefix(rows.keys, prefixed, prefix_of) for rows in scan])
        remove(backend, descriptor.name, entries)


def _ordering(events: pa.Table, name: str) -> pa.Array:
    """Return a column of ``order_by``. Raise InvalidRequestError (``null-order``)."""
    column = clean(one_array(events[name]))
    if column.null_count:
        raise InvalidRequestError(
            f"{column.null_count} of {number_of(len(events), 'event')} have no {name}, which orders the events of a "
            "key: whether they come before or after a delete is unknown",
            kind="null-order",
            hint="leave such events out with 'where', or order by other columns: order_by in the pipeline file",
        )
    return column


def _is_after(order: Sequence[pa.Array], rows: Rows, deletes: Rows, order_by: Sequence[str]) -> npt.NDArray[np.bool_]:
    """Return whether each of ``rows`` comes after the row of its delete. Raise InvalidRequestError
    (``delete-order``)."""
    after, tied = np.zeros(len(rows), np.bool_), np.ones(len(rows), np.bool_)
    for column in order:
        is_greater, is_equal = compared(column.take(pa.array(deletes)), column.take(pa.array(rows)), "max")
        after |= tied & is_greater
        tied &= is_equal
    if tied.any():
        raise InvalidRequestError(
            f"{number_of(int(tied.sum()), 'event')} with the same {', '.join(order_by)} as a delete of the same key: "
            "whether they come before or after it is unknown",
            kind="delete-order",
            hint="add a column to order_by that differs, such as the position in the log, or one that is computed with "
            "'expr': 1 for deletes and 0 otherwise if they come last, or the opposite if they come first, as in "
            "a commit of a table",
        )
    return after
