"""byte[]: an i32 count and the bytes.

Source: docs/spec/formats.md#containers.
"""

from dataclasses import dataclass

import pyarrow as pa

from statelib.model.types import BYTES, Scalar, Sql
from statelib.serializers.aspects.json_values import Json
from statelib.serializers.aspects.plain_hashing import NO_PLAIN_HASH
from statelib.serializers.aspects.snapshot_payloads import BASE, plain_class, plain_snapshot
from statelib.serializers.aspects.steps import Step, StepsOf, counted_widths
from statelib.serializers.aspects.type_support import scalar_support
from statelib.serializers.columns.arrow import byte_array, byte_rows, scalar_column
from statelib.serializers.columns.codec import Cursor
from statelib.serializers.columns.cursors import fixed, read_count
from statelib.serializers.columns.unkeyed import Unkeyed
from statelib.wire.ragged import Bytes, Ragged, gather, join
from statelib.wire.reader import Reader

_BINARY = pa.binary()


@dataclass(frozen=True)
class BytesCodec(Unkeyed):
    """The codec of a count and that many bytes. Java hashes an array by its identity, so it cannot be a key."""

    type: Scalar | Sql = BYTES
    arrow_type: pa.DataType = _BINARY
    width: int = -1
    reported_length: int = -1

    def encode(self, values: pa.Array) -> Ragged:
        rows = byte_rows(scalar_column(values, self.arrow_type, self.type))
        return join([fixed(rows.lengths.astype("i4")), rows])

    def decode(self, data: Bytes, cursor: Cursor, limit: Cursor) -> tuple[pa.Array, Cursor]:
        counts = read_count(data, cursor, limit, 1, self.type)
        return byte_array(gather(data, cursor + 4, counts), self.arrow_type), cursor + 4 + counts

    def skip(self, data: Bytes, cursor: Cursor, limit: Cursor) -> Cursor:
        return cursor + 4 + read_count(data, cursor, limit, 1, self.type)

    def steps(self, _steps_of: StepsOf) -> list[Step]:
        return [counted_widths(1)]


def read_bytes(reader: Reader) -> Json:
    """Read a count and that many bytes."""
    return {"type": "bytes", "hex": bytes(reader.take(reader.count())).hex()}


BYTE_ARRAYS = scalar_support(
    BytesCodec(),
    read_bytes,
    plain_snapshot(BYTES, plain_class("BytePrimitiveArraySerializer", BASE + "array.")),
    NO_PLAIN_HASH,
)
