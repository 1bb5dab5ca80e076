"""Snapshots that statelib did not write: the Flink fixtures, and one put together from parts of them."""

import struct
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from statelib.formats.keyed.header import encode_header
from statelib.formats.metadata.metadata_file import decode_metadata, encode_metadata
from statelib.model.checkpoint import CheckpointMetadata, OperatorState
from statelib.model.handles import ByteStreamStateHandle, KeyGroupsSavepointStateHandle, KeyGroupsStateHandle
from statelib.model.key_groups import KeyGroupRange
from statelib.model.state import KeyedStateSchema, StateDescriptor, StateKind
from statelib.model.types import LONG, Field, Pojo
from statelib.savepoints.opened import open_checkpoint
from statelib.serializers.entries.keys import key_groups
from tests.support.worlds import CHECKOUT

FLINK = CHECKOUT / "tests" / "golden" / "flink"
KEYED = "e7beec23fd9f6ed5e1b8395129d43728"
"""The id of the operator whose uid is ``keyed``; metadata of versions 3 and 4 stores no uid."""


def savepoint(fixture: str) -> Path:
    (result,) = (FLINK / fixture).glob("savepoint-*")
    return result


def write_several_operators(directory: Path, readable: bool = False) -> None:
    """Write a savepoint with the operators 01abab... to 04abab...: keys of type long and string, an unknown
    serializer (not if ``readable``), and no keyed state."""
    long, string = _keyed("keys-long-hashmap-canonical"), _keyed("keys-string-hashmap-canonical")
    sources = [long, string, *([] if readable else [_unknown(long)]), replace(long, subtasks=())]
    operators = tuple(replace(o, operator_id=bytes([i]) + b"\xab" * 15) for i, o in enumerate(sources, start=1))
    directory.mkdir(exist_ok=True)
    (directory / "_metadata").write_bytes(encode_metadata(CheckpointMetadata(1, operators)))


def write_undividable(directory: Path, of_subclass: bool = False) -> None:
    """Write a snapshot of the heap with the states ``before``, ``uuid``, which is Kryo's, and ``after``, each with an
    entry for two keys. The first value of ``uuid`` contains what could be a third entry, so nothing shows where it
    ends. ``of_subclass``: it is of an unknown subclass of a POJO instead."""
    (kryo,) = open_checkpoint(str(savepoint("1.20.5/kryo-hashmap-canonical"))).each_operator()
    uuid = Pojo("a.Base", (Field("x", LONG),)) if of_subclass else kryo.schema().state("uuid").value_type
    types = {"before": LONG, "uuid": uuid, "after": LONG}
    states = tuple(StateDescriptor(name, StateKind.VALUE, type_) for name, type_ in types.items())
    schema = KeyedStateSchema(LONG, 128, states)
    group_of = key_groups(schema, pa.array(range(1000), pa.int64())).tolist()
    a, b, c = [key for key in range(1000) if group_of[key] == group_of[0]][:3]
    plain = _heap_entry(a, bytes(8)) + _heap_entry(b, bytes(8))
    opaque = _heap_entry(a, b"\x04" + _heap_entry(c, b"y")) + _heap_entry(b, b"z")
    data, offsets = encode_header(schema, compressed=False), []
    for group in range(128):
        offsets.append(len(data))
        contents = [plain, opaque, plain] if group == group_of[0] else [b""] * 3
        heads = [struct.pack(">Hi", state, 2 if content else 0) for state, content in enumerate(contents)]
        data += struct.pack(">i", group) + b"".join(map(bytes.__add__, heads, contents))
    handle = KeyGroupsStateHandle(KeyGroupRange(0, 127), tuple(offsets), ByteStreamStateHandle("heap", data))
    operator = kryo.keyed_operator()
    subtasks = tuple((i, replace(s, keyed=handle, raw_keyed=None)) for i, s in operator.subtasks)
    directory.mkdir()
    metadata = CheckpointMetadata(1, (replace(operator, subtasks=subtasks),))
    (directory / "_metadata").write_bytes(encode_metadata(metadata))


def _heap_entry(key: int, value: bytes) -> bytes:
    return b"\0" + struct.pack(">q", key) + value


def _keyed(fixture: str) -> OperatorState:
    metadata, _ = decode_metadata((savepoint(f"1.20.5/{fixture}") / "_metadata").read_bytes())
    (operator,) = [o for o in metadata.operators if any(state.keyed for _, state in o.subtasks)]
    return operator


def _unknown(operator: OperatorState) -> OperatorState:
    return replace(operator, subtasks=tuple((i, replace(s, keyed=_garbled(s.keyed))) for i, s in operator.subtasks))


def _garbled(handle: object) -> KeyGroupsSavepointStateHandle:
    assert isinstance(handle, KeyGroupsSavepointStateHandle)
    assert isinstance(handle.stream, ByteStreamStateHandle)
    data = handle.stream.data.replace(b"LongSerializer$", b"LongSerializeX$")
    assert data != handle.stream.data
    return replace(handle, stream=replace(handle.stream, data=data))
