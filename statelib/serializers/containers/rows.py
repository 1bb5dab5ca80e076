"""Flink's Row: a mask of the row's kind and of the fields that are null, then the other fields one after the other.

Source: docs/spec/formats.md#containers, #rows, #hash-codes-of-keys.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statelib.errors import UnsupportedError
from statelib.model.types import Field, Row
from statelib.serializers.aspects.json_values import NULL, ROW_KINDS, Json, ReaderOf, ReadJson
from statelib.serializers.aspects.plain_hashing import PlainHash, PlainHasher, combined
from statelib.serializers.aspects.snapshot_payloads import (
    RUNTIME,
    SnapshotPayload,
    SnapshotSupport,
    WriteType,
    plain_class,
    unknown_serializer,
    write_composite,
)
from statelib.serializers.aspects.steps import Skipper, Step, StepsOf, chain
from statelib.serializers.aspects.type_support import CodecOf, TypeSupport, no_last_part, no_serializer
from statelib.serializers.columns.arrow import present, struct_fields, with_nulls
from statelib.serializers.columns.codec import Codec, Cursor, Hashes
from statelib.serializers.columns.cursors import require, spread
from statelib.serializers.columns.java_hashes import Words, field_hash, nulls_to_zero, signed
from statelib.wire.ragged import Bytes, Ragged, from_fixed, join
from statelib.wire.reader import Reader
from statelib.wire.writer import Writer

_KIND_BITS = 2
"""The bits of the mask before the null bits, the low one first: 00 is INSERT, the only kind that columns hold."""
_KINDS = ("INSERT (+I)", "UPDATE_BEFORE (-U)", "UPDATE_AFTER (+U)", "DELETE (-D)")
_CLASS, _OWN_VERSION = plain_class("RowSerializer", RUNTIME), 4
_WITH_KIND = b"\x01"
_MAX_SKIPPERS = 4096


@dataclass(frozen=True)
class RowCodec:
    """The codec of a row with a kind. Any field may be null."""

    type: Row
    fields: tuple[Codec, ...]
    width: int = -1
    reported_length: int = -1

    @property
    def arrow_type(self) -> pa.DataType:
        pairs = zip(self.type.fields, self.fields, strict=True)
        return pa.struct([pa.field(field.name, codec.arrow_type) for field, codec in pairs])

    def encode(self, values: pa.Array) -> Ragged:
        columns = struct_fields(values, self.arrow_type, self.type)
        mask = np.zeros((len(values), _KIND_BITS + len(columns)), np.bool_)
        parts = []
        for i, (field, column) in enumerate(zip(self.fields, columns, strict=True)):
            without_nulls, valid = present(column)
            if column.null_count:
                mask[:, _KIND_BITS + i] = ~valid
            parts.append(spread(field.encode(without_nulls), valid))
        return join([from_fixed(np.packbits(mask, axis=1)), *parts])

    def decode(self, data: Bytes, cursor: Cursor, limit: Cursor) -> tuple[pa.Array, Cursor]:
        null, at = self._mask(data, cursor, limit)
        self._check_kinds(data, cursor)
        columns = []
        for i, field in enumerate(self.fields):
            valid = ~null[:, i]
            if bool(valid.all()):
                column, at = field.decode(data, at, limit)
                columns.append(column)
                continue
            at = at.copy()  # a field may have returned an array of its own
            column, at[valid] = field.decode(data, at[valid], limit[valid])
            columns.append(with_nulls(column, valid))
        return pa.StructArray.from_arrays(columns, fields=list(self.arrow_type)), at

    def skip(self, data: Bytes, cursor: Cursor, limit: Cursor) -> Cursor:
        null, at = self._mask(data, cursor, limit)
        for i, field in enumerate(self.fields):
            valid = ~null[:, i]
            at[valid] = field.skip(data, at[valid], limit[valid])
        return at

    def steps(self, steps_of: StepsOf) -> list[Step]:
        """Return one step, which follows the mask: it makes one skipper per mask that occurs."""
        size = self._mask_bytes
        fields = [steps_of(field) for field in self.fields]
        skippers: dict[bytes, Skipper] = {}

        def skip(raw: bytes, at: int) -> int:
            mask = raw[at : at + size]
            skipper = skippers.get(mask)
            if skipper is None:
                if len(skippers) >= _MAX_SKIPPERS:
                    skippers.clear()
                skipper = skippers[mask] = chain(_present_steps(mask, fields, size))
            return skipper(raw, at + size)

        return [skip]

    def java_hash(self, values: pa.Array) -> Hashes:
        return signed(nulls_to_zero(self._hash, values))

    def deep_hash(self, values: pa.Array) -> Hashes:
        return field_hash(values, self.java_hash(values))

    def _hash(self, values: pa.Array) -> Hashes:
        columns = struct_fields(values, self.arrow_type, self.type)
        total: Words = np.ones(len(values), np.uint32)
        for field, column in zip(self.fields, columns, strict=True):
            total = total * np.uint32(31) + field.deep_hash(column).view(np.uint32)
        return signed(total)

    @property
    def _mask_bytes(self) -> int:
        return (_KIND_BITS + len(self.fields) + 7) // 8

    def _mask(self, data: Bytes, cursor: Cursor, limit: Cursor) -> tuple[npt.NDArray[np.bool_], Cursor]:
        """Return a matrix (rows, fields), true for fields that are null, and the cursors of the first field."""
        size = self._mask_bytes
        require(cursor, size, limit, self.type)
        bits = np.unpackbits(data[cursor[:, None] + np.arange(size)], axis=1).astype(np.bool_)
        return bits[:, _KIND_BITS : _KIND_BITS + len(self.fields)], cursor + size

    def _check_kinds(self, data: Bytes, cursor: Cursor) -> None:
        """Raise UnsupportedError (``row-kind``) for a kind other than INSERT. Skipping a row does not depend on its
        kind."""
        kinds = data[cursor] >> (8 - _KIND_BITS)
        other = np.flatnonzero(kinds)
        if len(other):
            low, high = divmod(int(kinds[other[0]]), 2)
            raise UnsupportedError(
                f"{self.type} in row {other[0]}: expected RowKind {_KINDS[0]}, found {_KINDS[low + 2 * high]}",
                kind="row-kind",
                hint="statelib keeps no change logs: write rows of kind INSERT into the state",
            )


def _present_steps(mask: bytes, fields: Sequence[Sequence[Step]], size: int) -> list[Step]:
    """Return the steps over the fields that are not null by this mask."""
    if len(mask) < size:
        raise IndexError(size)
    null = np.unpackbits(np.frombuffer(mask, np.uint8))[_KIND_BITS:]
    return [step for i, steps in enumerate(fields) if not null[i] for step in steps]


def _codec(type_: Row, codec_of: CodecOf) -> Codec:
    if not type_.fields or len({field.name for field in type_.fields}) != len(type_.fields):
        raise no_serializer(type_, "a row has at least one field, and each name once")
    return RowCodec(type_, tuple(codec_of(field.type) for field in type_.fields))


def _json_reader(type_: Row, reader_of: ReaderOf) -> ReadJson:
    return partial(_read_json, tuple(reader_of(field.type) for field in type_.fields))


def _read_json(fields: tuple[ReadJson, ...], reader: Reader) -> Json:
    bits = [byte >> shift & 1 for byte in reader.take((len(fields) + 9) // 8) for shift in range(7, -1, -1)]
    values = [NULL if null else field(reader) for field, null in zip(fields, bits[_KIND_BITS:], strict=False)]
    return {"type": "row", "kind": ROW_KINDS[bits[0] + 2 * bits[1]], "v": values}


def _read_snapshot(payload: SnapshotPayload) -> Row:
    """Read the fields. They are called f0, f1, ..., because Flink stores no names."""
    reader = payload.reader
    own_version = payload.begin_composite(3, _OWN_VERSION)
    if own_version == _OWN_VERSION and not reader.bool("with row kind"):
        raise UnsupportedError(f"{reader.what}: Row without RowKind in its mask", kind="row-without-kind")
    types = payload.nested()
    if not types:
        raise unknown_serializer(reader, "a row of at least one field", "none")
    return Row(tuple(Field(f"f{i}", type_) for i, type_ in enumerate(types)))


def _write_snapshot(writer: Writer, type_: Row, write_type: WriteType) -> None:
    fields = [field.type for field in type_.fields]
    write_composite(writer, _CLASS, _OWN_VERSION, fields, write_type, own_data=_WITH_KIND)


def _plain_hash(type_: Row, value: Any, hasher: PlainHasher) -> int:
    """Return the hash of a row of kind INSERT. Another kind would add 31 times its number."""
    return combined((hasher.in_row(field.type, value[field.name]) for field in type_.fields), 1)


ROWS = TypeSupport(
    of=Row,
    codec=_codec,
    json_reader=_json_reader,
    snapshot=SnapshotSupport(_write_snapshot, readers={_CLASS: _read_snapshot}),
    plain_hash=PlainHash(of_key=_plain_hash),
    last_parts=no_last_part,
)
