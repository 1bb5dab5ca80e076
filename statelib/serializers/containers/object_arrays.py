"""Java's arrays of objects: an i32 count, then the elements, each after a flag that is 1 if it is not null.

Source: docs/spec/formats.md#containers.
"""

from functools import partial

from statelib.model.types import ObjectArray
from statelib.serializers.aspects.json_values import ReaderOf, ReadJson, read_flagged, read_sequence
from statelib.serializers.aspects.plain_hashing import NO_PLAIN_HASH
from statelib.serializers.aspects.snapshot_payloads import (
    BASE,
    SnapshotPayload,
    SnapshotSupport,
    WriteType,
    name_bytes,
    write_composite,
)
from statelib.serializers.aspects.type_support import TypeSupport, no_last_part
from statelib.serializers.containers.nullable import FlaggedCodec
from statelib.serializers.containers.sequence_codec import SequenceCodec
from statelib.wire.writer import Writer

_CLASS, _OWN_VERSION = BASE + "GenericArraySerializerSnapshot", 1


def _json_reader(type_: ObjectArray, reader_of: ReaderOf) -> ReadJson:
    simple_name = type_.java_class.replace("$", ".").rpartition(".")[2]
    return partial(read_sequence, f"{simple_name}[]", partial(read_flagged, False, reader_of(type_.element)))


def _read_snapshot(payload: SnapshotPayload) -> ObjectArray:
    payload.begin_composite(_OWN_VERSION)
    java_class = payload.reader.utf("component class")
    return ObjectArray(java_class, payload.nested(1)[0])


def _write_snapshot(writer: Writer, type_: ObjectArray, write_type: WriteType) -> None:
    java_class = name_bytes(type_.java_class)
    write_composite(writer, _CLASS, _OWN_VERSION, [type_.element], write_type, own_data=java_class)


OBJECT_ARRAYS = TypeSupport(
    of=ObjectArray,
    codec=lambda type_, codec_of: SequenceCodec(type_, FlaggedCodec(codec_of(type_.element), null_flag=0)),
    json_reader=_json_reader,
    snapshot=SnapshotSupport(_write_snapshot, readers={_CLASS: _read_snapshot}),
    plain_hash=NO_PLAIN_HASH,
    last_parts=no_last_part,
)
