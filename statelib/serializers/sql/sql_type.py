"""Internal values of Flink SQL: the support of the type, put together from the other modules of this folder.

Source: docs/spec/formats.md#hash-codes-of-sql-keys, #sql-types, #binary-rows.
"""

import struct

from statelib.model.types import Like, Sql, StateType
from statelib.serializers.aspects.json_values import Json, ReaderOf, ReadJson
from statelib.serializers.aspects.plain_hashing import PlainHash, finished, mixed
from statelib.serializers.aspects.snapshot_payloads import SnapshotPayload, SnapshotSupport, WriteType, write_nested
from statelib.serializers.aspects.type_support import TypeSupport, no_last_part
from statelib.serializers.sql.logical_types import is_only_read
from statelib.serializers.sql.snapshots import VERSIONS, read_sql_snapshot, write_sql_snapshot
from statelib.serializers.sql.values.logical_registry import LOGICAL_TYPES
from statelib.wire.reader import Reader
from statelib.wire.writer import Writer

_SIZE_BYTES = 4
_SEED = 42


def _json_reader(type_: Sql, _reader_of: ReaderOf) -> ReadJson:
    support = LOGICAL_TYPES.of(type_.type)

    def read(reader: Reader) -> Json:
        return support.read_json(type_.type, reader, LOGICAL_TYPES)

    return read


def _read_snapshot(payload: SnapshotPayload) -> StateType:
    payload.check_version(*VERSIONS[payload.name])
    type_ = read_sql_snapshot(payload.reader, payload.name, payload.version, lambda _: payload.nested())
    serializer = payload.name.partition("$")[0]
    return Like(type_, serializer, payload.whole()) if is_only_read(type_.type) else type_


def _write_snapshot(writer: Writer, type_: Sql, write_type: WriteType) -> None:
    write_sql_snapshot(writer, type_.type, lambda inner, parts: write_nested(inner, list(parts), write_type))


def _plain_row_hash(data: bytes) -> int:
    """Return the hash of a row: Murmur3 over its little-endian words, without the size before them."""
    row = data[_SIZE_BYTES:]
    state = _SEED
    for (word,) in struct.iter_unpack("<I", row):
        state = mixed(state, word)
    return finished(state ^ len(row))


SQL = TypeSupport(
    of=Sql,
    codec=lambda type_, _codec_of: LOGICAL_TYPES.of(type_.type).codec(type_, LOGICAL_TYPES),
    json_reader=_json_reader,
    snapshot=SnapshotSupport(_write_snapshot, readers=dict.fromkeys(VERSIONS, _read_snapshot)),
    plain_hash=PlainHash(of_bytes=_plain_row_hash),
    last_parts=no_last_part,
)
