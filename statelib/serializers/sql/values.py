"""SQL's internal values outside of rows, as the keys, values and elements of what an aggregate collects.

Source: docs/spec/formats.md#sql-types, #binary-rows.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from statelib.errors import UnsupportedError
from statelib.model.sql import ROWS, LogicalType
from statelib.model.types import Sql
from statelib.serializers.columns.arrow import scalar_column
from statelib.serializers.columns.codec import Codec, Cursor
from statelib.serializers.columns.cursors import fixed, read_count, read_unsigned, require
from statelib.serializers.columns.unkeyed import Unkeyed
from statelib.serializers.scalars.byte_arrays import BytesCodec
from statelib.serializers.sql.rows import BinaryRowCodec
from statelib.serializers.sql.slot_writing import write_slots
from statelib.serializers.sql.slots import (
    BINARIES,
    COMPACT_DECIMAL,
    COMPACT_TIMESTAMP,
    TEXTS,
    ZONES,
    arrow_of,
    checked_text,
    decimals_of,
    timestamps_of,
)
from statelib.wire.ragged import Bytes, Ragged, from_fixed, gather, join

_SIZED = (*ROWS, "ARRAY", "MAP", "MULTISET")


def sql_codec(type_: LogicalType) -> Codec:
    """The codec of a logical type outside of rows. Raises UnsupportedError (``no-columns``) where there is none."""
    kind, root = Sql(type_), type_.root
    if root in _SIZED:
        return BinaryRowCodec(kind)
    if root in TEXTS:
        return SqlTextCodec(kind, arrow_of(type_))
    if root in BINARIES:
        return BytesCodec(kind)
    if root == "DECIMAL":
        return SmallDecimalCodec(kind) if type_.parameters[0] <= COMPACT_DECIMAL else DecimalCodec(kind)
    if root in ZONES:
        return TimestampCodec(kind)
    raise UnsupportedError(
        f"type {kind}: statelib has columns of it within rows only",
        kind="no-columns",
        hint="statelib export --format typed-jsonl shows every value",
    )


@dataclass(frozen=True)
class SqlTextCodec(BytesCodec):
    """An i32 size and UTF-8."""

    def decode(self, data: Bytes, cursor: Cursor, limit: Cursor) -> tuple[pa.Array, Cursor]:
        values, end = super().decode(data, cursor, limit)
        return checked_text(values, self.type), end


@dataclass(frozen=True)
class _Plain(Unkeyed):
    """Keys of SQL are rows: no value outside of one is hashed."""

    type: Sql
    reported_length: int = -1

    @property
    def arrow_type(self) -> pa.DataType:
        return arrow_of(self.type.type)

    def slots(self, values: pa.Array) -> tuple[Bytes, Ragged]:
        """What a row would hold of the values."""
        return write_slots(self.type.type, scalar_column(values, self.arrow_type, self.type))


@dataclass(frozen=True)
class SmallDecimalCodec(_Plain):
    """The unscaled number as an i64."""

    width: int = 8

    def encode(self, values: pa.Array) -> Ragged:
        return from_fixed(self.slots(values)[0][:, ::-1])

    def decode(self, data: Bytes, cursor: Cursor, limit: Cursor) -> tuple[pa.Array, Cursor]:
        end = self.skip(data, cursor, limit)
        return decimals_of(self.type.type, data, cursor, end), end

    def skip(self, data: Bytes, cursor: Cursor, limit: Cursor) -> Cursor:  # noqa: ARG002 - only its end is looked at
        require(cursor, self.width, limit, self.type)
        return cursor + self.width


@dataclass(frozen=True)
class DecimalCodec(_Plain):
    """An i32 size and the unscaled number in two's complement."""

    width: int = -1

    def encode(self, values: pa.Array) -> Ragged:
        slots, digits = self.slots(values)
        sizes = np.ascontiguousarray(slots).view("<u8").reshape(-1).astype(np.int64)
        return join([fixed(sizes.astype("i4")), gather(digits.data, digits.starts, sizes)])

    def decode(self, data: Bytes, cursor: Cursor, limit: Cursor) -> tuple[pa.Array, Cursor]:
        end = self.skip(data, cursor, limit)
        return decimals_of(self.type.type, data, cursor + 4, end), end

    def skip(self, data: Bytes, cursor: Cursor, limit: Cursor) -> Cursor:
        return cursor + 4 + read_count(data, cursor, limit, 1, self.type)


@dataclass(frozen=True)
class TimestampCodec(_Plain):
    """Milliseconds as an i64, and where the type is finer, nanoseconds of the millisecond as an i32."""

    @property
    def width(self) -> int:
        return 12 if self._fine else 8

    @property
    def _fine(self) -> bool:
        return self.type.type.parameters[0] > COMPACT_TIMESTAMP

    def encode(self, values: pa.Array) -> Ragged:
        slots, millis = self.slots(values)
        if not self._fine:
            return from_fixed(slots[:, ::-1])
        return from_fixed(np.hstack([millis.data.reshape(-1, 8)[:, ::-1], slots[:, 3::-1]]))

    def decode(self, data: Bytes, cursor: Cursor, limit: Cursor) -> tuple[pa.Array, Cursor]:
        end = self.skip(data, cursor, limit)
        millis = read_unsigned(data, cursor, 8, "i8").astype(np.int64)
        nanos = read_unsigned(data, cursor + 8, 4, "u4") if self._fine else np.zeros(len(cursor), np.uint32)
        return timestamps_of(self.type.type, millis, nanos.astype(np.int64)), end

    def skip(self, data: Bytes, cursor: Cursor, limit: Cursor) -> Cursor:  # noqa: ARG002 - only its end is looked at
        require(cursor, self.width, limit, self.type)
        return cursor + self.width
