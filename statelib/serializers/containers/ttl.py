"""A value behind the moment of its last access, epoch milliseconds.

Source: flink-formats.md sections 2.3 and 6.3 (TtlStateFactory.TtlSerializer).
"""

from dataclasses import dataclass

import pyarrow as pa

from statelib.model.types import Ttl
from statelib.serializers.columns.arrow import nested_column
from statelib.serializers.columns.codec import Codec, Cursor, Hashes
from statelib.serializers.columns.cursors import require
from statelib.serializers.columns.java_hashes import no_key_hash
from statelib.serializers.scalars.numbers import LONG_CODEC
from statelib.wire.ragged import Bytes, Ragged, join

TIMESTAMP, VALUE = "last_access_ms", "value"
"""Fields of the Arrow struct."""
TIMESTAMP_BYTES = 8


@dataclass(frozen=True)
class TtlCodec:
    """A long, then the value; neither is ever null."""

    type: Ttl
    value: Codec

    @property
    def arrow_type(self) -> pa.DataType:
        return pa.struct([pa.field(TIMESTAMP, pa.int64()), pa.field(VALUE, self.value.arrow_type)])

    @property
    def width(self) -> int:
        return TIMESTAMP_BYTES + self.value.width if self.value.width > 0 else -1

    @property
    def reported_length(self) -> int:
        return TIMESTAMP_BYTES + self.value.reported_length if self.value.reported_length > 0 else -1

    def encode(self, values: pa.Array) -> Ragged:
        values = nested_column(values, self.arrow_type, self.type)
        return join([LONG_CODEC.encode(values.field(0)), self.value.encode(values.field(1))])

    def decode(self, data: Bytes, cursor: Cursor, limit: Cursor) -> tuple[pa.Array, Cursor]:
        moments, at = LONG_CODEC.decode(data, cursor, limit)
        values, end = self.value.decode(data, at, limit)
        return pa.StructArray.from_arrays([moments, values], fields=list(self.arrow_type)), end

    def skip(self, data: Bytes, cursor: Cursor, limit: Cursor) -> Cursor:
        require(cursor, TIMESTAMP_BYTES, limit, self.type)
        return self.value.skip(data, cursor + TIMESTAMP_BYTES, limit)

    def java_hash(self, values: pa.Array) -> Hashes:  # noqa: ARG002
        raise no_key_hash(self.type)

    def deep_hash(self, values: pa.Array) -> Hashes:  # noqa: ARG002
        raise no_key_hash(self.type)
