"""The flat table of a state, made from its plain table."""

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from statelib.aggregates.finished import finished
from statelib.definition.frame_columns import FrameColumn
from statelib.serializers.columns.arrow import field_of_elements


def framed(table: pa.Table, columns: Sequence[FrameColumn]) -> pa.Table:
    """Return the columns of the flat table. ``table`` is the state's plain table: ``key``, ``namespace``, ``user_key``
    and ``value``, as far as the columns need them."""
    return pa.table({column.name: _values(table, column) for column in columns})


def _values(table: pa.Table, column: FrameColumn) -> pa.ChunkedArray:
    values = table[column.source]
    for index in column.path:
        values = _field(values, index)
    if column.computed:
        values = finished(column.computed, values)
    return values if isinstance(values, pa.ChunkedArray) else pa.chunked_array([values])


def _field(values: pa.Array | pa.ChunkedArray, index: int) -> pa.Array | pa.ChunkedArray:
    """Return a field of the structs, or of the structs in the lists."""
    if not pa.types.is_list(values.type):
        return pc.struct_field(values, [index])
    return field_of_elements(values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values, index)
