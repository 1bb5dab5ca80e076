"""SQL's internal rows, arrays and maps as columns: BinaryRowData and the like behind their size.

Source: docs/spec/formats.md#hash-codes-of-sql-keys, #sql-types, #binary-rows.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from statelib.model.sql import ROWS
from statelib.model.types import Sql
from statelib.serializers.columns.arrow import present
from statelib.serializers.columns.codec import Cursor, Hashes
from statelib.serializers.columns.cursors import fixed, read_count
from statelib.serializers.columns.java_hashes import Words, no_key_hash, signed
from statelib.serializers.sql.slot_writing import write_spans
from statelib.serializers.sql.slots import Spans, arrow_of, read_spans
from statelib.wire.ragged import Bytes, Ragged, join

_SEED = np.uint32(42)


@dataclass(frozen=True)
class BinaryRowCodec:
    """An i32 size, then the row: fields of fixed slots and what does not fit into them; or an array or a map."""

    type: Sql
    width: int = -1
    reported_length: int = -1

    @property
    def arrow_type(self) -> pa.DataType:
        return arrow_of(self.type.type)

    def encode(self, values: pa.Array) -> Ragged:
        rows = self._rows(values)
        return join([fixed(rows.lengths.astype("i4")), rows])

    def decode(self, data: Bytes, cursor: Cursor, limit: Cursor) -> tuple[pa.Array, Cursor]:
        end = self.skip(data, cursor, limit)
        return read_spans(self.type.type, Spans(data, cursor + 4, end)), end

    def skip(self, data: Bytes, cursor: Cursor, limit: Cursor) -> Cursor:
        return cursor + 4 + read_count(data, cursor, limit, 1, self.type)

    def java_hash(self, values: pa.Array) -> Hashes:
        """Murmur3 of the row's bytes, four at a time."""
        if self.type.type.root not in ROWS:
            raise no_key_hash(self.type)
        kept, valid = present(values)
        result = np.zeros(len(values), np.int32)
        result[valid] = signed(_murmur(self._rows(kept)))
        return result

    def deep_hash(self, values: pa.Array) -> Hashes:
        return np.where(values.is_valid().to_numpy(zero_copy_only=False), self.java_hash(values) + np.int32(31), 0)

    def _rows(self, values: pa.Array) -> Ragged:
        """The bytes of each row, without its size."""
        return write_spans(self.type.type, values)


def _murmur(rows: Ragged) -> Words:
    """Murmur3-32 over little-endian words; rows are multiples of eight bytes long."""
    hashes = np.full(len(rows), _SEED, np.uint32)
    at, active = rows.starts.copy(), np.flatnonzero(rows.lengths > 0)
    while len(active):
        word = np.ascontiguousarray(rows.data[at[active, None] + np.arange(4)]).view("<u4").reshape(-1)
        hashes[active] = _mixed(hashes[active], word.astype(np.uint32))
        at[active] += 4
        active = active[at[active] < rows.offsets[1:][active]]
    hashes ^= rows.lengths.astype(np.uint32)
    hashes ^= hashes >> np.uint32(16)
    hashes *= np.uint32(0x85EBCA6B)
    hashes ^= hashes >> np.uint32(13)
    hashes *= np.uint32(0xC2B2AE35)
    return hashes ^ (hashes >> np.uint32(16))


def _mixed(h: Words, k: Words) -> Words:
    k = k * np.uint32(0xCC9E2D51)
    k = (k << np.uint32(15)) | (k >> np.uint32(17))
    h = h ^ (k * np.uint32(0x1B873593))
    h = (h << np.uint32(13)) | (h >> np.uint32(19))
    return h * np.uint32(5) + np.uint32(0xE6546B64)
