"""Campaigns against change logs."""

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from statelib.formats.changelog.change_set import decode_stream
from statelib.formats.changelog.encoder import ChangedRows, encode_changes
from statelib.model.handles import (
    ByteStreamStateHandle,
    ChangelogStateBackendHandleImpl,
    ChangelogStateHandleStreamImpl,
)
from statelib.model.key_groups import KeyGroupRange
from statelib.model.state import KeyedStateSchema
from statelib.model.types import LONG
from statelib.restore.changelog.change_log import read_change_log
from statelib.restore.plan import RestoreSource
from statelib.restore.union_schema import union_schema
from statelib.serializers.entries.rows import StateRows
from statelib.testing.memory_storage import MemoryReader
from tests.fuzz.campaign import Target
from tests.fuzz.samples import CANONICAL, ROOT, canonical_samples

_ALL = KeyGroupRange(0, 127)


def _handle(data: bytes, offset: int) -> ChangelogStateBackendHandleImpl:
    part = ChangelogStateHandleStreamImpl(_ALL, ((ByteStreamStateHandle("log", data), offset),), len(data), 0, "id")
    return ChangelogStateBackendHandleImpl(_ALL, len(data), (), (part,), 0, 0, "id")


def _read(schema: KeyedStateSchema, offset: int, data: bytes) -> None:
    handle = _handle(data, offset)
    source = RestoreSource(handle, MemoryReader(), schema, None)
    log = read_change_log(source, handle, _ALL)
    for _ in log.over(_ALL).rest():
        pass
    union_schema(source.reader, {0: handle}, 128, "log", LONG)


def _flink_logs() -> Target:
    schemas: dict[str, KeyedStateSchema] = {}
    seeds: dict[str, bytes] = {}
    for fixture in ("1.20.5/hashmap-changelog", "2.3.0/rocksdb-changelog"):
        for path in sorted(Path(ROOT / fixture).rglob("dstl/*")):
            name, data = f"{fixture} {path.name}", path.read_bytes()
            schema = union_schema(MemoryReader(), {0: _handle(data, 0)}, 128, "log", LONG)
            if schema.states:  # The others continue what an earlier file began.
                seeds[name], schemas[name] = data, schema
    return Target(seeds, lambda name, data: _read(schemas[name], 0, data))


def _own_logs(raw: bool) -> Target:
    """Return the target of statelib's own logs. ``raw``: not compressed, so that damage reaches the records."""
    seeds: dict[str, bytes] = {}
    schemas: dict[str, KeyedStateSchema] = {}
    for fixture in (CANONICAL[0], CANONICAL[2], CANONICAL[3]):
        for name, sample in canonical_samples(fixture, 6):
            data = encode_changes(sample.schema, [_changed(rows) for rows in sample.rows])
            seeds[name] = b"\0" + decode_stream(memoryview(data), name).tobytes() if raw else data
            schemas[name] = sample.schema
    return Target(seeds, lambda name, data: _read(schemas[name], 0, data))


def _changed(rows: StateRows) -> ChangedRows:
    """Return changes in which the first key is removed and the others are kept."""
    first = min(len(rows), 1)
    return ChangedRows(rows.take(np.arange(first, len(rows))), rows.keys.slice(0, first))


LOGS: Mapping[str, Callable[[], Target]] = {
    "logs-flink": _flink_logs,
    "logs-own": lambda: _own_logs(raw=True),
    "logs-own-compressed": lambda: _own_logs(raw=False),
}
