"""Void: one byte 00 without information. It is the namespace of plain state, and ``java.lang.Void`` inside other types.

Source: docs/spec/formats.md#scalars, #composite-keys.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from statelib.errors import CorruptStateError
from statelib.model.types import VOID, Scalar
from statelib.serializers.aspects.json_values import NULL, Json
from statelib.serializers.aspects.plain_hashing import NO_PLAIN_HASH
from statelib.serializers.aspects.snapshot_payloads import PLAIN_VERSION, SnapshotSupport, plain_class, write_head
from statelib.serializers.aspects.type_support import scalar_support
from statelib.serializers.columns.arrow import wrong_arrow_type
from statelib.serializers.columns.codec import Cursor, Hashes
from statelib.serializers.columns.cursors import refuse, require
from statelib.serializers.columns.unkeyed import Unkeyed
from statelib.wire.ragged import Bytes, Ragged, from_fixed
from statelib.wire.reader import Reader

_NULL_COLUMN = pa.null()
_VOID_CLASS = plain_class("VoidSerializer")
VOID_NAMESPACE = plain_class("VoidNamespaceSerializer", "org.apache.flink.runtime.state.")
"""The class of the snapshot that Flink writes for the void namespace."""


@dataclass(frozen=True)
class VoidCodec(Unkeyed):
    """The codec of void and of the global window, whose values are columns of nulls."""

    type: Scalar = VOID
    arrow_type: pa.DataType = _NULL_COLUMN
    width: int = 1
    reported_length: int = 0

    def encode(self, values: pa.Array) -> Ragged:
        if values.null_count != len(values):
            raise wrong_arrow_type(values.type, self.arrow_type, self.type)
        return from_fixed(np.zeros((len(values), 1), np.uint8))

    def decode(self, data: Bytes, cursor: Cursor, limit: Cursor) -> tuple[pa.Array, Cursor]:
        end = self.skip(data, cursor, limit)
        return pa.nulls(len(cursor)), end

    def skip(self, data: Bytes, cursor: Cursor, limit: Cursor) -> Cursor:
        require(cursor, 1, limit, self.type)
        refuse(data[cursor] != 0, data[cursor], self.type, "byte 0", "bad-void")
        return cursor + 1

    def deep_hash(self, values: pa.Array) -> Hashes:
        """Return zeros, because a field of this type is always null."""
        return np.zeros(len(values), np.int32)


def read_void(reader: Reader) -> Json:
    """Read the byte. Raise CorruptStateError (``bad-void``) unless it is 0."""
    if reader.u8():
        raise CorruptStateError(f"{reader.what} before offset {reader.offset}: expected byte 0", kind="bad-void")
    return NULL


VOIDS = scalar_support(
    VoidCodec(),
    read_void,
    SnapshotSupport(
        lambda writer, _type, _write: write_head(writer, _VOID_CLASS, PLAIN_VERSION),
        {_VOID_CLASS: VOID, VOID_NAMESPACE: VOID},
    ),
    NO_PLAIN_HASH,
)
