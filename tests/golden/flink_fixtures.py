"""The Flink fixtures beside this file: their directories, and their true contents as comparable Python values."""

import json
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from statelib.formats.canonical.reading import iter_canonical, read_header
from statelib.formats.keyed.header import KeyedHeader
from statelib.formats.metadata.metadata_file import decode_metadata
from statelib.model.checkpoint import CheckpointMetadata
from statelib.model.handles import ByteStreamStateHandle, KeyGroupsSavepointStateHandle, StreamStateHandle
from statelib.model.state import StateDescriptor, StateKind
from statelib.model.types import ArrayOf, ListOf, Row, Scalar, StateType, Ttl, Tuple
from statelib.savepoints.opened import Checkpoint, open_checkpoint
from statelib.serializers.entries.keys import decode_keys, key_groups
from statelib.serializers.entries.rows import StateRows
from statelib.serializers.entries.values import decode_values

ROOT = Path(__file__).parent / "flink"
_COLUMNS = {
    "1.20.5": (
        "compressed-hashmap-canonical", "empty-state-hashmap-canonical", "keys-long-hashmap-canonical",
        "keys-row-hashmap-canonical", "keys-string-hashmap-canonical", "keys-tuple2-hashmap-canonical",
        "kinds-hashmap-canonical-p1", "kinds-hashmap-canonical-p4-files", "kinds-rocksdb-canonical-p1",
        "maxpar32768-hashmap-canonical", "opstate-canonical-p2", "ttl-hashmap-canonical", "ttl-rocksdb-canonical",
    ),
    "2.3.0": ("kinds-rocksdb-canonical-p1", "opstate-canonical-p2", "ttl-hashmap-canonical"),
}  # fmt: skip
FIXTURES = [f"{version}/{name}" for version, names in _COLUMNS.items() for name in names]
"""Canonical savepoints of types whose columns have the recorded values; all others are tested in
``test_flink_exports.py``."""
KEYED_KINDS = {kind.value for kind in StateKind if kind is not StateKind.TIMERS}
Json = dict[str, Any]
Entry = tuple[Any, ...]
"""An entry: (state, kind, key, key group, user key or list index or None, value)."""


@dataclass(frozen=True)
class Snapshot:
    directory: Path
    about: Json
    facts: Json
    truth: list[Json]

    def metadata(self) -> tuple[CheckpointMetadata, int, bytes]:
        """Return the content, the offset where reading ended, and the bytes of the file."""
        data = (self.directory / "_metadata").read_bytes()
        return *decode_metadata(data), data

    def content(self, handle: StreamStateHandle) -> memoryview:
        if isinstance(handle, ByteStreamStateHandle):
            return memoryview(handle.data)
        data = (self.directory / handle.path).read_bytes()
        assert len(data) == handle.size_bytes
        return memoryview(data)

    def read_range(self, handle: StreamStateHandle) -> Callable[[int, int], memoryview]:
        content = self.content(handle)
        return lambda start, stop: content[start:stop]


def load(fixture: str) -> Snapshot:
    folder = ROOT / fixture
    about = json.loads((folder / "about.json").read_text())
    (snapshot,) = about["snapshots"]
    facts = json.loads((folder / snapshot["metadata"]).read_text())
    lines = (folder / snapshot["truth"]).read_text().splitlines()
    assert len(lines) == snapshot["truthLines"]
    return Snapshot(folder / snapshot["path"], about, facts, [json.loads(line) for line in lines])


def opened(folder: Path, path: str = "", key_type: StateType | None = None) -> Checkpoint:
    """Open a snapshot of a fixture: the one at ``path``, or the newest one. The directory
    ``/flink-data/<version>/<version>/<fixture>`` in its paths is the fixture's folder."""
    path = path or json.loads((folder / "about.json").read_text())["snapshots"][-1]["path"]
    version = folder.parent.name
    return open_checkpoint(
        str(folder / path),
        relocate={f"file:///flink-data/{version}/{version}/{folder.name}": str(folder)},
        key_type=key_type,
    )


def keyed_handles(snapshot: Snapshot) -> Iterator[tuple[str, int, KeyGroupsSavepointStateHandle]]:
    """Return (operator uid, max parallelism, handle) of every subtask with keyed state."""
    uids = {hex_id: uid for uid, hex_id in snapshot.about["operatorIds"].items()}
    for operator in snapshot.metadata()[0].operators:
        for _, state in operator.subtasks:
            if state.keyed is not None:
                assert isinstance(state.keyed, KeyGroupsSavepointStateHandle)
                yield uids[operator.operator_id.hex()], operator.max_parallelism, state.keyed


def true_entries(snapshot: Snapshot, uid: str) -> list[Entry]:
    """Return the entries of an operator's keyed states as the Flink job recorded them."""
    lines = [line for line in snapshot.truth if line["op"] == uid and line["kind"] in KEYED_KINDS]
    assert all(line["ns"] is None for line in lines)
    return [
        (
            line["state"],
            line["kind"],
            plain(line["key"]),
            line["kg"],
            plain(line["uk"]) if "uk" in line else line.get("idx"),
            plain(line["value"]),
        )
        for line in lines
    ]


def stored_entries(snapshot: Snapshot, uid: str) -> list[Entry]:
    """Return the entries of an operator's keyed states as statelib reads them from the savepoint."""
    entries: list[Entry] = []
    for operator, max_parallelism, handle in keyed_handles(snapshot):
        if operator == uid:
            header = read_header(snapshot.read_range(handle.stream), handle, max_parallelism)
            for state, rows in iter_canonical(snapshot.read_range(handle.stream), handle, header):
                entries += decoded(header, header.schema.states[state], rows)
    return entries


def decoded(header: KeyedHeader, descriptor: StateDescriptor, rows: StateRows) -> Iterator[Entry]:
    """Return the entries of one state, those of a list state element by element."""
    keys = decode_keys(header.schema, descriptor, rows.keys)
    assert key_groups(header.schema, keys.keys).tolist() == keys.key_groups.tolist()
    values = column(descriptor, decode_values(descriptor, rows.values))
    key_column = [normal(header.schema.key_type, key) for key in keys.keys.to_pylist()]
    name, kind = descriptor.name, descriptor.kind.value
    for i, (key, group) in enumerate(zip(key_column, keys.key_groups.tolist(), strict=True)):
        if descriptor.kind is StateKind.LIST:
            yield from ((name, kind, key, group, index, value) for index, value in enumerate(values[i]))
        elif descriptor.user_key_type is not None:
            assert keys.user_keys is not None
            yield name, kind, key, group, normal(descriptor.user_key_type, keys.user_keys[i].as_py()), values[i]
        else:
            yield name, kind, key, group, None, values[i]


def column(descriptor: StateDescriptor, values: pa.Array) -> list[Any]:
    if descriptor.kind is StateKind.LIST:
        return [[normal(descriptor.value_type, item) for item in row] for row in values.to_pylist()]
    return [normal(descriptor.value_type, value) for value in values.to_pylist()]


def normal(type_: StateType, value: Any) -> Any:
    """Return an Arrow value in the form of :func:`plain`: tuples, and floats as their bits."""
    if value is None:
        return None
    if isinstance(type_, Tuple):
        return tuple(normal(field, value[f"f{i}"]) for i, field in enumerate(type_.fields))
    if isinstance(type_, Row):
        return tuple(normal(field.type, value[field.name]) for field in type_.fields)
    if isinstance(type_, ListOf | ArrayOf):
        return tuple(normal(type_.element, item) for item in value)
    if isinstance(type_, Ttl):
        return normal(type_.value, value["value"])
    assert isinstance(type_, Scalar), type_
    if type_.name == "double":
        return struct.pack(">d", value).hex()
    return struct.pack(">f", value).hex() if type_.name == "float" else value


def plain(typed: Json) -> Any:
    """Return a typed value of the true contents as a plain Python value."""
    if typed["type"] == "null":
        return None
    if "bits" in typed:
        return typed["bits"]
    if "v" in typed and isinstance(typed["v"], list):
        assert typed.get("kind", "+I") == "+I"
        return tuple(plain(item) for item in typed["v"])
    assert typed["type"] in ("long", "int", "short", "byte", "boolean", "string"), typed
    return typed["v"]
