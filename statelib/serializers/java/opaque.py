"""Values that only a user's code can read: Kryo's, and those of a serializer that statelib has no type for.

Such a value takes all bytes that are left, because nothing shows where it ends, unless a decoder is registered for it.

Source: docs/spec/formats.md#kryo.
"""

from dataclasses import dataclass
from functools import partial

import pyarrow as pa

from statelib.model.types import Opaque
from statelib.serializers.aspects.json_values import Json
from statelib.serializers.aspects.plain_hashing import NO_PLAIN_HASH
from statelib.serializers.aspects.snapshot_payloads import RUNTIME, SnapshotPayload, SnapshotSupport, write_stored
from statelib.serializers.aspects.type_support import TypeSupport
from statelib.serializers.columns.arrow import byte_array, byte_rows, scalar_column
from statelib.serializers.columns.codec import Cursor
from statelib.serializers.columns.unkeyed import Unkeyed
from statelib.serializers.java.decoders import decoder_of
from statelib.serializers.java.optional_maps import read_optional_map
from statelib.wire.ragged import Bytes, Ragged, gather
from statelib.wire.reader import Reader

_BINARY = pa.binary()
_KRYO = RUNTIME + "kryo.KryoSerializer"
_KRYO_CLASS, _KRYO_VERSION = RUNTIME + "kryo.KryoSerializerSnapshot", 2
_KRYO_MAPS = 3


@dataclass(frozen=True)
class OpaqueCodec(Unkeyed):
    """The codec of all bytes that are left in a row."""

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


def read_opaque(type_: Opaque, reader: Reader) -> Json:
    """Read a value with its decoder, or else all bytes that are left."""
    decoder = decoder_of(type_)
    if decoder is not None:
        return {"type": "decoded", "class": type_.java_class or type_.serializer, "v": decoder(reader)}
    return {"type": "opaque", "serializer": type_.serializer, "hex": bytes(reader.take(reader.remaining)).hex()}


def foreign(snapshot_class: str, snapshot: bytes | memoryview) -> Opaque:
    """Return the type of values of a foreign serializer. Its class is often the one that encloses the snapshot's."""
    return Opaque(snapshot_class.rpartition("$")[0] or snapshot_class, "", bytes(snapshot))


def _read_kryo_snapshot(payload: SnapshotPayload) -> Opaque:
    payload.check_version(_KRYO_VERSION)
    name = payload.reader.utf("kryo class")
    for _ in range(_KRYO_MAPS):
        for _entry in read_optional_map(payload.reader):
            pass
    return Opaque(_KRYO, name, payload.whole())


OPAQUE = TypeSupport(
    of=Opaque,
    codec=lambda type_, _codec_of: OpaqueCodec(type_),
    json_reader=lambda type_, _reader_of: partial(read_opaque, type_),
    snapshot=SnapshotSupport(write_stored, readers={_KRYO_CLASS: _read_kryo_snapshot}),
    plain_hash=NO_PLAIN_HASH,
    last_parts=lambda _type: (),
)
