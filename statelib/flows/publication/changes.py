"""The rows of a feed: the kind of each change, and the columns of the published table."""

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statelib.backends.keys.lookup import find_rows
from statelib.backends.wrappers.ttl import plain_values
from statelib.definition.frame_columns import FrameColumn
from statelib.definition.framed_state import framed
from statelib.model.state import StateDescriptor
from statelib.publication.target import DELETE, INSERT, UPDATE
from statelib.savepoints.diff.changes import WORDS
from statelib.serializers.entries.rows import StateRows
from statelib.wire.ragged import Ragged

Columns = Sequence[FrameColumn]


def change_rows(differences: pa.Table, state: StateDescriptor, columns: Columns) -> tuple[pa.Array, pa.Table]:
    """Return the kind of each change, and the rows after it; the values of deleted rows are null.

    ``differences``: a table as of :meth:`statelib.savepoints.diff.states.Diff.to_arrow`. Changes that no published
    column shows are left out, such as the time of the last access."""
    rows, before = _framed(differences, "after", state, columns), _framed(differences, "before", state, columns)
    kinds = differences["change"].combine_chunks()
    visible = pc.or_(pc.not_equal(kinds, "changed"), _differs(before, rows, columns))
    changes = pa.array([INSERT, DELETE, UPDATE]).take(pc.index_in(kinds, pa.array(WORDS)))
    return changes.filter(visible), rows.filter(visible)


def recorded_rows(recorded: pa.Table, state: StateDescriptor, columns: Columns) -> tuple[pa.Array, pa.Table]:
    """Return the kind of each change, and the rows after it; the values of deleted rows are null.

    ``recorded``: a table as of :func:`statelib.savepoints.recorded_changes.recorded_changes`."""
    kinds = pa.array([INSERT, UPDATE, DELETE]).take(recorded["change"].combine_chunks())
    values = plain_values(state, recorded["value"].combine_chunks())
    return kinds, framed(recorded.drop_columns(["value"]).append_column("value", values), columns)


def whole_changes(
    keys: Ragged,
    entries: Iterable[StateRows],
    rows_of: Callable[[StateRows], pa.Table],
    rows_without: Callable[[Ragged], pa.Table],
) -> Iterator[pa.Table]:
    """Yield rows with the further column ``change`` that lead from a feed, of which only the keys are known, to the
    ``entries``: all of these, and a deletion per key that is not among them.

    ``rows_of``: entries as rows of the table. ``rows_without``: rows with these keys and null values."""
    gone = np.ones(len(keys), np.bool_)
    for part in entries:
        positions = find_rows(keys, part.keys)
        gone[positions[positions >= 0]] = False
        changes = pa.array([INSERT, UPDATE]).take(pa.array((positions >= 0).astype(np.int8)))
        yield rows_of(part).append_column("change", changes)
    deleted = rows_without(keys.take(np.flatnonzero(gone)))
    yield deleted.append_column("change", pa.repeat(pa.scalar(DELETE), len(deleted)))


def _framed(differences: pa.Table, value: str, state: StateDescriptor, columns: Columns) -> pa.Table:
    values = plain_values(state, differences[value].combine_chunks())
    return framed(differences.drop_columns(["before", "after"]).append_column("value", values), columns)


def _differs(before: pa.Table, after: pa.Table, columns: Columns) -> pa.Array:
    """Return whether a value differs, per row. Values that Arrow cannot compare count as different."""
    differs = pa.repeat(pa.scalar(False), len(after))
    for column in columns:
        if column.is_key:
            continue
        old, new = before[column.name].combine_chunks(), after[column.name].combine_chunks()
        if pa.types.is_nested(old.type):
            return pa.repeat(pa.scalar(True), len(after))
        if pa.types.is_floating(old.type):  # as bits, because 0.0 equals -0.0
            bits = {16: pa.int16(), 32: pa.int32(), 64: pa.int64()}[old.type.bit_width]
            old, new = old.view(bits), new.view(bits)
        unequal = pc.fill_null(pc.not_equal(old, new), False)
        differs = pc.or_(differs, pc.or_(unequal, pc.xor(old.is_null(), new.is_null())))
    return differs
