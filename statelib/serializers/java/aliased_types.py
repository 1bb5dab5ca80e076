"""Columns of values that another serializer of Flink's wrote in the bytes of a type, and of tagged values.

Source: flink-formats.md sections 6.2 and 6.3; like_snapshots.py names the classes.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from statelib.errors import CorruptStateError, InvalidRequestError
from statelib.model.types import Like, OneOf
from statelib.serializers.columns.arrow import present, struct_fields, valid_rows, with_nulls
from statelib.serializers.columns.codec import Codec, Cursor
from statelib.serializers.columns.cursors import require, spread
from statelib.serializers.java.codecs import Unkeyed
from statelib.wire.ragged import Bytes, Ragged, from_fixed, join


@dataclass(frozen=True)
class LikeCodec(Unkeyed):
    """The codec of the form, without its hashes: a LongValue's is not that of a long."""

    type: Like
    form: Codec

    @property
    def arrow_type(self) -> pa.DataType:
        return self.form.arrow_type

    @property
    def width(self) -> int:
        return self.form.width

    @property
    def reported_length(self) -> int:
        return self.form.reported_length

    def encode(self, values: pa.Array) -> Ragged:
        return self.form.encode(values)

    def decode(self, data: Bytes, cursor: Cursor, limit: Cursor) -> tuple[pa.Array, Cursor]:
        return self.form.decode(data, cursor, limit)

    def skip(self, data: Bytes, cursor: Cursor, limit: Cursor) -> Cursor:
        return self.form.skip(data, cursor, limit)


@dataclass(frozen=True)
class OneOfCodec(Unkeyed):
    """A tag and one of some values: a struct of ``t<tag>``, all but one of which are null."""

    type: OneOf
    cases: tuple[Codec, ...]
    width: int = -1
    reported_length: int = -1

    @property
    def arrow_type(self) -> pa.DataType:
        pairs = zip(self.type.cases, self.cases, strict=True)
        return pa.struct([pa.field(f"t{tag}", codec.arrow_type) for (tag, _), codec in pairs])

    def encode(self, values: pa.Array) -> Ragged:
        fields = struct_fields(values, self.arrow_type, self.type)
        there = np.array([valid_rows(field) for field in fields]).reshape(len(fields), len(values))
        wrong = np.flatnonzero(there.sum(axis=0) != 1)
        if len(wrong):
            raise InvalidRequestError(
                f"column of type {self.type}, row {wrong[0]}: expected one value of one case", kind="bad-tag"
            )
        tags = np.array([tag for tag, _ in self.type.cases], np.uint8)[there.argmax(axis=0)]
        parts = zip(self.cases, fields, there, strict=True)
        values = [spread(codec.encode(present(field)[0]), rows) for codec, field, rows in parts]
        return join([from_fixed(tags.reshape(-1, 1)), *values])

    def decode(self, data: Bytes, cursor: Cursor, limit: Cursor) -> tuple[pa.Array, Cursor]:
        tags, at = self._tags(data, cursor, limit)
        columns = []
        for (tag, _), codec in zip(self.type.cases, self.cases, strict=True):
            rows = tags == tag
            values, at[rows] = codec.decode(data, at[rows], limit[rows])
            columns.append(with_nulls(values, rows))
        return pa.StructArray.from_arrays(columns, fields=list(self.arrow_type)), at

    def skip(self, data: Bytes, cursor: Cursor, limit: Cursor) -> Cursor:
        tags, at = self._tags(data, cursor, limit)
        for (tag, _), codec in zip(self.type.cases, self.cases, strict=True):
            rows = tags == tag
            at[rows] = codec.skip(data, at[rows], limit[rows])
        return at

    def _tags(self, data: Bytes, cursor: Cursor, limit: Cursor) -> tuple[Bytes, Cursor]:
        require(cursor, 1, limit, self.type)
        tags, known = data[cursor], [tag for tag, _ in self.type.cases]
        wrong = np.flatnonzero(~np.isin(tags, known))
        if len(wrong):
            raise CorruptStateError(
                f"value of type {self.type}, row {wrong[0]}: expected one of the tags {known}, found {tags[wrong[0]]}",
                kind="bad-tag",
            )
        return tags, cursor + 1
