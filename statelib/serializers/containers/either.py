"""Flink's Either: a flag that is 1 for the left type, and a value of the left or the right type.

Source: docs/spec/formats.md#containers.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statelib.errors import InvalidRequestError
from statelib.model.types import Either
from statelib.serializers.aspects.json_values import Json, ReaderOf, ReadJson
from statelib.serializers.aspects.plain_hashing import PlainHash, PlainHasher
from statelib.serializers.aspects.snapshot_payloads import RUNTIME, composite_snapshot
from statelib.serializers.aspects.type_support import TypeSupport
from statelib.serializers.columns.arrow import present, struct_fields, valid_rows, with_nulls
from statelib.serializers.columns.codec import Codec, Cursor, Hashes
from statelib.serializers.columns.cursors import require, spread
from statelib.wire.ragged import Bytes, Ragged, from_fixed, join
from statelib.wire.reader import Reader

_HashOf = Callable[[pa.Array], Hashes]
_CLASS = RUNTIME + "JavaEitherSerializerSnapshot"


@dataclass(frozen=True)
class EitherCodec:
    """The codec of a flag and one of two values: a struct of ``left`` and ``right``, of which one is null."""

    type: Either
    left: Codec
    right: Codec
    width: int = -1
    reported_length: int = -1

    @property
    def arrow_type(self) -> pa.DataType:
        return pa.struct([pa.field("left", self.left.arrow_type), pa.field("right", self.right.arrow_type)])

    def encode(self, values: pa.Array) -> Ragged:
        left, right = struct_fields(values, self.arrow_type, self.type)
        (lefts, is_left), (rights, is_right) = present(left), present(right)
        if (is_left == is_right).any():
            raise InvalidRequestError(
                f"column of type {self.type}, row {int(np.argmax(is_left == is_right))}: expected a value on one side",
                kind="bad-either",
            )
        flags = from_fixed(is_left.astype(np.uint8).reshape(-1, 1))
        parts = [spread(self.left.encode(lefts), is_left), spread(self.right.encode(rights), is_right)]
        return join([flags, *parts])

    def decode(self, data: Bytes, cursor: Cursor, limit: Cursor) -> tuple[pa.Array, Cursor]:
        is_left, at = self._sides(data, cursor, limit)
        lefts, at[is_left] = self.left.decode(data, at[is_left], limit[is_left])
        rights, at[~is_left] = self.right.decode(data, at[~is_left], limit[~is_left])
        columns = [with_nulls(lefts, is_left), with_nulls(rights, ~is_left)]
        return pa.StructArray.from_arrays(columns, fields=list(self.arrow_type)), at

    def skip(self, data: Bytes, cursor: Cursor, limit: Cursor) -> Cursor:
        is_left, at = self._sides(data, cursor, limit)
        at[is_left] = self.left.skip(data, at[is_left], limit[is_left])
        at[~is_left] = self.right.skip(data, at[~is_left], limit[~is_left])
        return at

    def java_hash(self, values: pa.Array) -> Hashes:
        """Return the hash of the value on either side."""
        return self._hash(self.left.java_hash, self.right.java_hash, values)

    def deep_hash(self, values: pa.Array) -> Hashes:
        return self._hash(self.left.deep_hash, self.right.deep_hash, values)

    def _hash(self, left_hash: _HashOf, right_hash: _HashOf, values: pa.Array) -> Hashes:
        left, right = struct_fields(values, self.arrow_type, self.type)
        return np.asarray(np.where(valid_rows(left), left_hash(left), right_hash(right)), np.int32)

    def _sides(self, data: Bytes, cursor: Cursor, limit: Cursor) -> tuple[npt.NDArray[np.bool_], Cursor]:
        require(cursor, 1, limit, self.type)
        return data[cursor] != 0, cursor + 1


def _json_reader(type_: Either, reader_of: ReaderOf) -> ReadJson:
    return partial(_read_json, reader_of(type_.left), reader_of(type_.right))


def _read_json(left: ReadJson, right: ReadJson, reader: Reader) -> Json:
    is_left = reader.bool()
    return {"type": "either", "side": "left" if is_left else "right", "v": (left if is_left else right)(reader)}


def _plain_hash(type_: Either, value: Any, hasher: PlainHasher) -> int:
    side, part = ("left", type_.left) if value["left"].is_valid else ("right", type_.right)
    return hasher.of_key(part, value[side])


EITHER = TypeSupport(
    of=Either,
    codec=lambda type_, codec_of: EitherCodec(type_, codec_of(type_.left), codec_of(type_.right)),
    json_reader=_json_reader,
    snapshot=composite_snapshot(_CLASS, 1, 2, Either, lambda type_: [type_.left, type_.right]),
    plain_hash=PlainHash(of_key=_plain_hash),
    last_parts=lambda type_: (type_.left, type_.right),
)
