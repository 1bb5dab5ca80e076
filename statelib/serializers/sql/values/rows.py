"""ROW and STRUCTURED types, BinaryRowData: a byte of the row's kind, null bits, one slot of eight bytes per field, and
the bytes that slots refer to.

Source: docs/spec/formats.md#hash-codes-of-sql-keys, #sql-types, #binary-rows.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from statelib.errors import CorruptStateError, UnsupportedError
from statelib.model.sql import ROWS, LogicalType
from statelib.model.types import Sql
from statelib.serializers.aspects.json_values import NULL, ROW_KINDS, Json
from statelib.serializers.columns.arrow import present, struct_column, struct_fields
from statelib.serializers.columns.codec import Codec, Hashes
from statelib.serializers.columns.cursors import spread
from statelib.serializers.columns.java_hashes import Words, signed
from statelib.serializers.sql.values.json_slots import Region
from statelib.serializers.sql.values.logical_support import LogicalTypes, span_support
from statelib.serializers.sql.values.sized_codec import SizedCodec, sized
from statelib.serializers.sql.values.slots import SLOT_BYTES, Spans, moved
from statelib.wire.ragged import Ragged, from_fixed, join

_KIND_BITS = 8
_SEED = np.uint32(42)


@dataclass(frozen=True)
class BinaryRowCodec(SizedCodec):
    """The codec of rows, which are the keys of Flink SQL. The generated code that makes keys reserves bytes for some of
    their nulls, and a key is found by its bytes."""

    def encode_keys(self, keys: pa.Array) -> Ragged:
        return sized(self._key_rows(keys))

    def _key_rows(self, keys: pa.Array) -> Ragged:
        return _write(self.type.type, keys, self.types, reserving=True)

    def java_hash(self, values: pa.Array) -> Hashes:
        """Return the hash of each row: Murmur3 of its bytes."""
        without_nulls, valid = present(values)
        result = np.zeros(len(values), np.int32)
        result[valid] = signed(_murmur(self._key_rows(without_nulls)))
        return result

    def deep_hash(self, values: pa.Array) -> Hashes:
        return np.where(values.is_valid().to_numpy(zero_copy_only=False), self.java_hash(values) + np.int32(31), 0)


def _murmur(rows: Ragged) -> Words:
    """Return Murmur3-32 of the little-endian words of each row. The length of a row is a multiple of eight bytes."""
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


def _arrow_type(type_: LogicalType, types: LogicalTypes) -> pa.DataType:
    return pa.struct([pa.field(part.name, types.arrow_of(part.type)) for part in type_.parts])


def _head_bytes(type_: LogicalType) -> int:
    """Return the size of the kind and the null bits, which fill words of eight bytes."""
    return (len(type_.parts) + 63 + _KIND_BITS) // 64 * 8


def _read(type_: LogicalType, spans: Spans, types: LogicalTypes) -> pa.Array:
    head = _head_bytes(type_)
    spans.check(spans.start, head + SLOT_BYTES * len(type_.parts), type_)
    kinds = np.flatnonzero(spans.data[spans.start])
    if len(kinds):
        raise UnsupportedError(
            f"{Sql(type_)} in row {kinds[0]}: expected RowKind INSERT (+I), "
            f"found kind {int(spans.data[spans.start[kinds[0]]])}",
            kind="row-kind",
            hint="statelib export --format typed-jsonl shows rows of every kind",
        )
    columns = []
    for i, part in enumerate(type_.parts):
        byte, bit = divmod(_KIND_BITS + i, 8)
        valid = (spans.data[spans.start + byte] >> bit & 1) == 0
        columns.append(types.read_slots(part.type, spans, spans.start + head + SLOT_BYTES * i, valid))
    return struct_column(columns, types.arrow_of(type_), len(spans.start))


def _write(type_: LogicalType, values: pa.Array, types: LogicalTypes, *, reserving: bool = False) -> Ragged:
    columns = struct_fields(values, types.arrow_of(type_), Sql(type_))
    head = _head_bytes(type_)
    table = np.zeros((len(values), head + SLOT_BYTES * len(type_.parts)), np.uint8)
    ends = np.full(len(values), table.shape[1], np.int64)
    outside: list[Ragged] = []
    for i, part in enumerate(type_.parts):
        without_nulls, valid = present(columns[i])
        byte, bit = divmod(_KIND_BITS + i, 8)
        table[~valid, byte] |= np.uint8(1 << bit)
        slots, more = types.write_slots(part.type, without_nulls)
        at = head + SLOT_BYTES * i
        table[valid, at : at + SLOT_BYTES] = moved(slots, more.lengths, ends[valid])
        outside.append(spread(more, valid))
        reserved = types.of(part.type).reserved_bytes(part.type) if reserving else 0
        if reserved and not valid.all():
            zeros = from_fixed(np.zeros((int((~valid).sum()), reserved), np.uint8))
            no_slots = np.zeros((len(zeros), SLOT_BYTES), np.uint8)
            table[~valid, at : at + SLOT_BYTES] = moved(no_slots, zeros.lengths, ends[~valid])
            outside[-1] = join([outside[-1], spread(zeros, ~valid)])
        ends += outside[-1].lengths
    return join([from_fixed(table), *outside])


def _json(type_: LogicalType, region: Region, types: LogicalTypes) -> Json:
    head = _head_bytes(type_)
    bits = region.number(0, head)
    kind = bits & 0xFF
    if kind >= len(ROW_KINDS):
        raise CorruptStateError(f"{region.what}: expected a RowKind of 0 to 3, found {kind}", kind="bad-binary-row")
    values = [
        NULL
        if bits >> (_KIND_BITS + i) & 1
        else types.of(part.type).slot_json(part.type, region, head + SLOT_BYTES * i, types)
        for i, part in enumerate(type_.parts)
    ]
    return {"type": "rowdata", "kind": ROW_KINDS[kind], "v": values}


def _codec(type_: Sql, types: LogicalTypes) -> Codec:
    return BinaryRowCodec(type_, types, _read, _write)


ROW_TYPES = span_support(*ROWS, arrow_type=_arrow_type, read=_read, write=_write, span_json=_json, codec=_codec)
