"""Tagged values of Flink's operators: a tag byte, and a value of the type that the tag selects.

The type occurs only as the form of an aliased type; see ``aliased.py``.

Source: docs/spec/formats.md#containers.
"""

from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa

from statelib.errors import CorruptStateError, InvalidRequestError
from statelib.model.types import OneOf
from statelib.serializers.aspects.json_values import Json, ReaderOf, ReadJson
from statelib.serializers.aspects.plain_hashing import NO_PLAIN_HASH
from statelib.serializers.aspects.snapshot_payloads import SnapshotSupport, never_written
from statelib.serializers.aspects.type_support import TypeSupport, no_last_part
from statelib.serializers.columns.arrow import present, struct_fields, valid_rows, with_nulls
from statelib.serializers.columns.codec import Codec, Cursor
from statelib.serializers.columns.cursors import require, spread
from statelib.serializers.columns.unkeyed import Unkeyed
from statelib.wire.ragged import Bytes, Ragged, from_fixed, join
from statelib.wire.reader import Reader


@dataclass(frozen=True)
class OneOfCodec(Unkeyed):
    """The codec of a tag and a value: a struct of one field ``t<tag>`` per case, of which all but one are null."""

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
        valid = np.array([valid_rows(field) for field in fields]).reshape(len(fields), len(values))
        wrong = np.flatnonzero(valid.sum(axis=0) != 1)
        if len(wrong):
            raise InvalidRequestError(
                f"column of type {self.type}, row {wrong[0]}: expected one value of one case", kind="bad-tag"
            )
        tags = np.array([tag for tag, _ in self.type.cases], np.uint8)[valid.argmax(axis=0)]
        parts = zip(self.cases, fields, valid, strict=True)
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
        """Return the tags and the cursors of the values. Raise CorruptStateError (``bad-tag``)."""
        require(cursor, 1, limit, self.type)
        tags, valid_tags = data[cursor], [tag for tag, _ in self.type.cases]
        wrong = np.flatnonzero(~np.isin(tags, valid_tags))
        if len(wrong):
            raise CorruptStateError(
                f"value of type {self.type}, row {wrong[0]}: expected one of the tags {valid_tags}, found "
                f"{tags[wrong[0]]}",
                kind="bad-tag",
            )
        return tags, cursor + 1


def _json_reader(type_: OneOf, reader_of: ReaderOf) -> ReadJson:
    return partial(_read_json, {tag: reader_of(case) for tag, case in type_.cases})


def _read_json(cases: dict[int, ReadJson], reader: Reader) -> Json:
    at, tag = reader.offset, reader.u8()
    if tag not in cases:
        raise CorruptStateError(
            f"{reader.what} at offset {at}: expected one of the tags {sorted(cases)}, found {tag}", kind="bad-tag"
        )
    return {"type": "oneof", "tag": tag, "v": cases[tag](reader)}


TAGGED = TypeSupport(
    of=OneOf,
    codec=lambda type_, codec_of: OneOfCodec(type_, tuple(codec_of(case) for _, case in type_.cases)),
    json_reader=_json_reader,
    snapshot=SnapshotSupport(never_written),
    plain_hash=NO_PLAIN_HASH,
    last_parts=no_last_part,
)
