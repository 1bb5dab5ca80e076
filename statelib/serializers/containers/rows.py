"""Tuple and Row: fields one after the other; a Row has a mask in front that says which are null.

Source: flink-formats.md sections 6.3, 6.4 and 1.2.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statelib.errors import UnsupportedError
from statelib.model.types import Row, Tuple
from statelib.serializers.columns.arrow import present, struct_fields, with_nulls
from statelib.serializers.columns.codec import Codec, Cursor, Hashes
from statelib.serializers.columns.cursors import require, spread
from statelib.serializers.columns.java_hashes import Words, field_hash, nulls_to_zero, signed
from statelib.wire.ragged import Bytes, Ragged, from_fixed, join

KIND_BITS = 2
"""In front of a Row's null bits, low bit first: 00 is INSERT, the only kind a state of statelib holds."""
_KINDS = ("INSERT (+I)", "UPDATE_BEFORE (-U)", "UPDATE_AFTER (+U)", "DELETE (-D)")


@dataclass(frozen=True)
class TupleCodec:
    """Flink's TupleN; its fields are never null."""

    type: Tuple
    fields: tuple[Codec, ...]

    @property
    def arrow_type(self) -> pa.DataType:
        return pa.struct([pa.field(f"f{i}", field.arrow_type) for i, field in enumerate(self.fields)])

    @property
    def width(self) -> int:
        widths = [field.width for field in self.fields]
        return sum(widths) if min(widths) > 0 else -1

    @property
    def reported_length(self) -> int:
        return self.width

    def encode(self, values: pa.Array) -> Ragged:
        columns = struct_fields(values, self.arrow_type, self.type)
        return join([field.encode(column) for field, column in zip(self.fields, columns, strict=True)])

    def decode(self, data: Bytes, cursor: Cursor, limit: Cursor) -> tuple[pa.Array, Cursor]:
        columns = []
        for field in self.fields:
            column, cursor = field.decode(data, cursor, limit)
            columns.append(column)
        return _struct(columns, self.arrow_type), cursor

    def skip(self, data: Bytes, cursor: Cursor, limit: Cursor) -> Cursor:
        if self.width > 0:
            require(cursor, self.width, limit, self.type)
            return cursor + self.width
        for field in self.fields:
            cursor = field.skip(data, cursor, limit)
        return cursor

    def java_hash(self, values: pa.Array) -> Hashes:
        return signed(nulls_to_zero(self._hash, values))

    def deep_hash(self, values: pa.Array) -> Hashes:
        return field_hash(values, self.java_hash(values))

    def _hash(self, values: pa.Array) -> Hashes:
        columns = struct_fields(values, self.arrow_type, self.type)
        total: Words = np.zeros(len(values), np.uint32)
        for field, column in zip(self.fields, columns, strict=True):
            total = total * np.uint32(31) + field.java_hash(column).view(np.uint32)
        return signed(total)


@dataclass(frozen=True)
class RowCodec:
    """Flink's Row with RowKind support; any field may be null."""

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
        mask = np.zeros((len(values), KIND_BITS + len(columns)), np.bool_)
        parts = []
        for i, (field, column) in enumerate(zip(self.fields, columns, strict=True)):
            kept, valid = present(column)
            if column.null_count:
                mask[:, KIND_BITS + i] = ~valid
            parts.append(spread(field.encode(kept), valid))
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
            at = at.copy()  # what a field returned may be its own
            column, at[valid] = field.decode(data, at[valid], limit[valid])
            columns.append(with_nulls(column, valid))
        return _struct(columns, self.arrow_type), at

    def skip(self, data: Bytes, cursor: Cursor, limit: Cursor) -> Cursor:
        null, at = self._mask(data, cursor, limit)
        for i, field in enumerate(self.fields):
            valid = ~null[:, i]
            at[valid] = field.skip(data, at[valid], limit[valid])
        return at

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

    def _mask(self, data: Bytes, cursor: Cursor, limit: Cursor) -> tuple[npt.NDArray[np.bool_], Cursor]:
        """Which fields are null, shape (rows, fields), and the cursors of the first field."""
        size = (KIND_BITS + len(self.fields) + 7) // 8
        require(cursor, size, limit, self.type)
        bits = np.unpackbits(data[cursor[:, None] + np.arange(size)], axis=1).astype(np.bool_)
        return bits[:, KIND_BITS : KIND_BITS + len(self.fields)], cursor + size

    def _check_kinds(self, data: Bytes, cursor: Cursor) -> None:
        """Only building a Row needs to know its kind; its extent is told by the rest of the mask."""
        kinds = data[cursor] >> (8 - KIND_BITS)
        other = np.flatnonzero(kinds)
        if len(other):
            low, high = divmod(int(kinds[other[0]]), 2)
            raise UnsupportedError(
                f"{self.type} in row {other[0]}: expected RowKind {_KINDS[0]}, found {_KINDS[low + 2 * high]}",
                kind="row-kind",
                hint="statelib keeps no change logs: write rows of kind INSERT into the state",
            )


def _struct(columns: list[pa.Array], arrow_type: pa.DataType) -> pa.Array:
    return pa.StructArray.from_arrays(columns, fields=list(arrow_type))
