"""Snapshots that statelib did not write: the Flink fixtures, and one put together from parts of them."""

from dataclasses import replace
from pathlib import Path

from statelib.formats.metadata.metadata_file import decode_metadata, encode_metadata
from statelib.model.checkpoint import CheckpointMetadata, OperatorState
from statelib.model.handles import ByteStreamStateHandle, KeyGroupsSavepointStateHandle
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
