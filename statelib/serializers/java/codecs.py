"""Columns of what only Flink jobs bring along: flags for nulls, arrays of objects, enums, Either, POJOs, opaque bytes.

Source: flink-formats.md sections 6.3, 6.5 and 6.6.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from statelib.errors import InvalidRequestError, UnsupportedError
from statelib.model.types import Either, Enumeration, Nullable, Opaque, Pojo, StateType
from statelib.serializers.columns.arrow import (
    byte_array,
    byte_rows,
    present,
    scalar_column,
    struct_column,
    struct_fields,
    valid_rows,
    with_nulls,
)
from statelib.serializers.columns.codec import Codec, Cursor, Hashes
from statelib.serializers.columns.cursors import fixed, read_unsigned, refuse, require, spread
from statelib.serializers.columns.java_hashes import no_key_hash
from statelib.wire.ragged import Bytes, Ragged, from_fixed, gather, join

Hash = Callable[[pa.Array], Hashes]
_STRING, _BINARY = pa.string(), pa.binary()
_POJO_NULL, _POJO_SELF = 1, 2


@dataclass(frozen=True)
class Unkeyed:
    """What is common to types that Flink refuses as keys."""

    type: StateType

    def java_hash(self, values: pa.Array) -> Hashes:  # noqa: ARG002
        raise no_key_hash(self.type)

    def deep_hash(self, values: pa.Array) -> Hashes:  # noqa: ARG002
        raise no_key_hash(self.type)


@dataclass(frozen=True)
class FlaggedCodec:
    """A byte says whether a value follows; ``null_flag`` is that byte where none does, and then ``padding`` zeros
    follow. Arrow nulls are welcome."""

    element: Codec
    null_flag: int = 1
    padding: int = 0

    @property
    def type(self) -> StateType:
        return Nullable(self.element.type, self.padding)

    @property
    def arrow_type(self) -> pa.DataType:
        return self.element.arrow_type

    @property
    def width(self) -> int:
        return 1 + self.padding if self.padding and self.element.width == self.padding else -1

    @property
    def reported_length(self) -> int:
        return self.width

    def encode(self, values: pa.Array) -> Ragged:
        kept, valid = present(values)
        flags = np.where(valid, 1 - self.null_flag, self.null_flag).astype(np.uint8)
        zeros = np.zeros((int((~valid).sum()), self.padding), np.uint8)
        return join(
            [
                from_fixed(flags.reshape(-1, 1)),
                spread(self.element.encode(kept), valid),
                spread(from_fixed(zeros), ~valid),
            ]
        )

    def decode(self, data: Bytes, cursor: Cursor, limit: Cursor) -> tuple[pa.Array, Cursor]:
        valid, at = self._flags(data, cursor, limit)
        values, at[valid] = self.element.decode(data, at[valid], limit[valid])
        return with_nulls(values, valid), at

    def skip(self, data: Bytes, cursor: Cursor, limit: Cursor) -> Cursor:
        valid, at = self._flags(data, cursor, limit)
        at[valid] = self.element.skip(data, at[valid], limit[valid])
        return at

    def java_hash(self, values: pa.Array) -> Hashes:
        return self.element.java_hash(values)

    def deep_hash(self, values: pa.Array) -> Hashes:
        return self.element.deep_hash(values)

    def _flags(self, data: Bytes, cursor: Cursor, limit: Cursor) -> tuple[npt.NDArray[np.bool_], Cursor]:
        """Which rows have a value, and the cursors of these, past the padding of the others."""
        require(cursor, 1, limit, self.type)
        valid = (data[cursor] != 0) != bool(self.null_flag)
        at = cursor + 1
        require(at[~valid], self.padding, limit[~valid], self.type)
        at[~valid] += self.padding
        return valid, at


@dataclass(frozen=True)
class OwnNullCodec:
    """A codec that reads a null of its own, made to write it too: ``null`` are its bytes."""

    element: Codec
    null: bytes
    width: int = -1
    reported_length: int = -1

    @property
    def type(self) -> StateType:
        return self.element.type

    @property
    def arrow_type(self) -> pa.DataType:
        return self.element.arrow_type

    def encode(self, values: pa.Array) -> Ragged:
        kept, valid = present(values)
        nulls = np.tile(np.frombuffer(self.null, np.uint8), (int((~valid).sum()), 1))
        return join([spread(self.element.encode(kept), valid), spread(from_fixed(nulls), ~valid)])

    def decode(self, data: Bytes, cursor: Cursor, limit: Cursor) -> tuple[pa.Array, Cursor]:
        return self.element.decode(data, cursor, limit)

    def skip(self, data: Bytes, cursor: Cursor, limit: Cursor) -> Cursor:
        return self.element.skip(data, cursor, limit)

    def java_hash(self, values: pa.Array) -> Hashes:
        return self.element.java_hash(values)

    def deep_hash(self, values: pa.Array) -> Hashes:
        return self.element.deep_hash(values)


@dataclass(frozen=True)
class EnumCodec(Unkeyed):
    """The index of a constant, as the constant's name."""

    type: Enumeration
    arrow_type: pa.DataType = _STRING
    width: int = 4
    reported_length: int = 4

    def encode(self, values: pa.Array) -> Ragged:
        names = scalar_column(values, self.arrow_type, self.type)
        found = pc.index_in(names, pa.array(self.type.constants, _STRING))
        if found.null_count:
            name = names[int(np.argmin(valid_rows(found)))].as_py()
            raise InvalidRequestError(
                f"enum {self.type.java_class}: expected one of {', '.join(self.type.constants)}, found {name!r}",
                kind="bad-enum",
            )
        return fixed(np.asarray(found.to_numpy(), np.int32))

    def decode(self, data: Bytes, cursor: Cursor, limit: Cursor) -> tuple[pa.Array, Cursor]:
        end = self.skip(data, cursor, limit)
        index = read_unsigned(data, cursor, 4, "i4").astype(np.int64)
        outside = (index < 0) | (index >= len(self.type.constants))
        refuse(outside, index, self.type, f"an index below {len(self.type.constants)}", "bad-enum")
        return pa.array(self.type.constants, _STRING).take(pa.array(index)), end

    def skip(self, data: Bytes, cursor: Cursor, limit: Cursor) -> Cursor:  # noqa: ARG002
        require(cursor, 4, limit, self.type)
        return cursor + 4


@dataclass(frozen=True)
class EitherCodec:
    """A flag and one of two values: a struct of ``left`` and ``right``, one of which is null."""

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
        """That of the value."""
        return self._either(self.left.java_hash, self.right.java_hash, values)

    def deep_hash(self, values: pa.Array) -> Hashes:
        return self._either(self.left.deep_hash, self.right.deep_hash, values)

    def _either(self, left_hash: Hash, right_hash: Hash, values: pa.Array) -> Hashes:
        left, right = struct_fields(values, self.arrow_type, self.type)
        return np.asarray(np.where(valid_rows(left), left_hash(left), right_hash(right)), np.int32)

    def _sides(self, data: Bytes, cursor: Cursor, limit: Cursor) -> tuple[npt.NDArray[np.bool_], Cursor]:
        require(cursor, 1, limit, self.type)
        return data[cursor] != 0, cursor + 1


@dataclass(frozen=True)
class PojoCodec(Unkeyed):
    """A struct of the fields of the class itself; a value of a subclass has no place in it."""

    type: Pojo
    fields: tuple[Codec, ...]
    width: int = -1
    reported_length: int = -1

    @property
    def arrow_type(self) -> pa.DataType:
        pairs = zip(self.type.fields, self.fields, strict=True)
        return pa.struct([pa.field(field.name, codec.arrow_type) for field, codec in pairs])

    def encode(self, values: pa.Array) -> Ragged:
        kept, valid = present(values)
        columns = struct_fields(kept, self.arrow_type, self.type)
        flags = np.where(valid, _POJO_SELF, _POJO_NULL).astype(np.uint8)
        parts = [FlaggedCodec(field).encode(column) for field, column in zip(self.fields, columns, strict=True)]
        return join([from_fixed(flags.reshape(-1, 1)), *(spread(part, valid) for part in parts)])

    def decode(self, data: Bytes, cursor: Cursor, limit: Cursor) -> tuple[pa.Array, Cursor]:
        valid, at = self._flags(data, cursor, limit)
        columns, inside, end = [], at[valid], limit[valid]
        for field in self.fields:
            column, inside = FlaggedCodec(field).decode(data, inside, end)
            columns.append(column)
        at[valid] = inside
        return with_nulls(struct_column(columns, self.arrow_type, len(inside)), valid), at

    def skip(self, data: Bytes, cursor: Cursor, limit: Cursor) -> Cursor:
        valid, at = self._flags(data, cursor, limit)
        inside = at[valid]
        for field in self.fields:
            inside = FlaggedCodec(field).skip(data, inside, limit[valid])
        at[valid] = inside
        return at

    def _flags(self, data: Bytes, cursor: Cursor, limit: Cursor) -> tuple[npt.NDArray[np.bool_], Cursor]:
        require(cursor, 1, limit, self.type)
        flags = data[cursor]
        other = np.flatnonzero((flags != _POJO_NULL) & (flags != _POJO_SELF))
        if len(other):
            raise UnsupportedError(
                f"{self.type.java_class} in row {other[0]}: expected the class itself, found a subclass "
                f"(flags {int(flags[other[0]]):#04x}), which columns of that class cannot hold",
                kind="pojo-subclass",
                hint="statelib export --format typed-jsonl shows every value",
            )
        return flags == _POJO_SELF, cursor + 1


@dataclass(frozen=True)
class OpaqueCodec(Unkeyed):
    """Whatever is left of a row, as bytes: only a user's code knows more."""

    type: Opaque
    arrow_type: pa.DataType = _BINARY
    width: int = -1
    reported_length: int = -1

    def encode(self, values: pa.Array) -> Ragged:
        return byte_rows(scalar_column(values, self.arrow_type, self.type))

    def decode(self, data: Bytes, cursor: Cursor, limit: Cursor) -> tuple[pa.Array, Cursor]:
        return byte_array(gather(data, cursor, limit - cursor), self.arrow_type), limit.copy()

    def skip(self, data: Bytes, cursor: Cursor, limit: Cursor) -> Cursor:  # noqa: ARG002
        return limit.copy()
