"""The codec of whole rows, arrays and maps: an i32 size, then the bytes.

Source: docs/spec/formats.md#sql-types, #binary-rows.
"""

from dataclasses import dataclass, field

import pyarrow as pa

from statelib.model.types import Sql
from statelib.serializers.columns.codec import Cursor
from statelib.serializers.columns.cursors import fixed, read_count
from statelib.serializers.columns.unkeyed import Unkeyed
from statelib.serializers.sql.values.logical_support import LogicalTypes, ReadSpans, WriteSpans
from statelib.serializers.sql.values.slots import Spans
from statelib.wire.ragged import Bytes, Ragged, join


def sized(rows: Ragged) -> Ragged:
    """Return each row after its size."""
    return join([fixed(rows.lengths.astype("i4")), rows])


@dataclass(frozen=True)
class SizedCodec(Unkeyed):
    """The codec of values that ``read`` and ``write`` handle as stretches of bytes."""

    type: Sql
    types: LogicalTypes = field(repr=False)
    read: ReadSpans = field(repr=False)
    write: WriteSpans = field(repr=False)
    width: int = -1
    reported_length: int = -1

    @property
    def arrow_type(self) -> pa.DataType:
        return self.types.arrow_of(self.type.type)

    def encode(self, values: pa.Array) -> Ragged:
        return sized(self.rows(values))

    def rows(self, values: pa.Array) -> Ragged:
        """Return the bytes of each value without its size."""
        return self.write(self.type.type, values, self.types)

    def decode(self, data: Bytes, cursor: Cursor, limit: Cursor) -> tuple[pa.Array, Cursor]:
        end = self.skip(data, cursor, limit)
        return self.read(self.type.type, Spans(data, cursor + 4, end), self.types), end

    def skip(self, data: Bytes, cursor: Cursor, limit: Cursor) -> Cursor:
        return cursor + 4 + read_count(data, cursor, limit, 1, self.type)
