"""The manifest as JSON: every field by name, statistics as base64 of little-endian arrays.

Reading checks each field's type and raises ValueError naming the field.
"""

import base64
from collections.abc import Callable
from typing import TypeVar

import numpy as np

from statelib.model.checkpoint import (
    CheckpointManifest,
    DataInterval,
    EventCounts,
    FileRecord,
    SnapshotKind,
    SourcePosition,
)
from statelib.model.ids import AttemptId, CheckpointId, Epoch, pipeline_name
from statelib.model.key_groups import KeyGroupRange
from statelib.model.state import KeyedStateSchema, StateDescriptor, StateKind, StateStatistics
from statelib.serializers.type_text import parse_type

T = TypeVar("T")
_Json = dict[str, object]


def manifest_to_json(manifest: CheckpointManifest) -> _Json:
    """JSON-able dictionary; inverse of :func:`manifest_from_json`."""
    return {
        "pipeline": manifest.pipeline,
        "checkpoint_id": manifest.checkpoint_id,
        "kind": manifest.kind.value,
        "strategy": manifest.strategy,
        "epoch": manifest.epoch,
        "attempt": manifest.attempt,
        "generation": manifest.generation,
        "base": manifest.base,
        "created_at_ms": manifest.created_at_ms,
        "position": _position_to_json(manifest.position),
        "events": {
            "read": manifest.events.read,
            "applied": manifest.events.applied,
            "null_key": manifest.events.null_key,
        },
        "schema": schema_to_json(manifest.schema),
        "files": [_file_to_json(file) for file in manifest.files],
        "statistics": [_statistics_to_json(statistics) for statistics in manifest.statistics],
        "sync_ms": manifest.sync_ms,
        "async_ms": manifest.async_ms,
        "uploaded_bytes": manifest.uploaded_bytes,
    }


def manifest_from_json(content: object) -> CheckpointManifest:
    """Raises ValueError, or the StatelibError of a model class that refuses a value."""
    o = _Object(content, "manifest")
    base = o.optional_integer("base")
    manifest = CheckpointManifest(
        pipeline=pipeline_name(o.text("pipeline")),
        checkpoint_id=CheckpointId(o.integer("checkpoint_id")),
        kind=SnapshotKind(o.text("kind")),
        strategy=o.text("strategy"),
        epoch=Epoch(o.integer("epoch")),
        attempt=AttemptId(o.text("attempt")),
        generation=o.integer("generation"),
        base=None if base is None else CheckpointId(base),
        created_at_ms=o.integer("created_at_ms"),
        position=_position_from_json(o.child("position")),
        events=_events_from_json(o.child("events")),
        schema=schema_from_json(o.value("schema")),
        files=tuple(map(_file_from_json, o.children("files"))),
        statistics=tuple(map(_statistics_from_json, o.children("statistics"))),
        sync_ms=o.integer("sync_ms"),
        async_ms=o.integer("async_ms"),
        # came later: absent from what the first statelib wrote
        uploaded_bytes=o.optional_integer("uploaded_bytes") if o.has("uploaded_bytes") else None,
    )
    if len(manifest.statistics) != len(manifest.schema.states):
        raise ValueError(f"{len(manifest.statistics)} statistics for {len(manifest.schema.states)} states")
    return manifest


def schema_to_json(schema: KeyedStateSchema) -> _Json:
    """Types as their text (``statelib.model.types``); inverse of :func:`schema_from_json`."""
    return {
        "key_type": str(schema.key_type),
        "max_parallelism": schema.max_parallelism,
        "states": [
            {
                "name": state.name,
                "kind": state.kind.value,
                "value_type": str(state.value_type),
                "user_key_type": None if state.user_key_type is None else str(state.user_key_type),
                "namespace_type": str(state.namespace_type),
            }
            for state in schema.states
        ],
    }


def schema_from_json(content: object) -> KeyedStateSchema:
    """Raises ValueError, or the StatelibError of a type or state that is refused."""
    o = _Object(content, "schema")
    return KeyedStateSchema(
        parse_type(o.text("key_type")),
        o.integer("max_parallelism"),
        tuple(_state_from_json(state) for state in o.children("states")),
    )


def _state_from_json(o: "_Object") -> StateDescriptor:
    user_key = o.optional_text("user_key_type")
    return StateDescriptor(
        o.text("name"),
        StateKind(o.text("kind")),
        parse_type(o.text("value_type")),
        None if user_key is None else parse_type(user_key),
        parse_type(o.text("namespace_type")),
    )


def _position_to_json(position: SourcePosition) -> _Json:
    interval = position.interval
    return {
        "start_ms": None if interval is None else interval.start_ms,
        "end_ms": None if interval is None else interval.end_ms,
        "watermark_ms": position.watermark_ms,
    }


def _position_from_json(o: "_Object") -> SourcePosition:
    start, end = o.optional_integer("start_ms"), o.optional_integer("end_ms")
    if (start is None) != (end is None):
        raise ValueError("position: start_ms and end_ms go together")
    interval = None if start is None or end is None else DataInterval(start, end)
    return SourcePosition(interval, o.integer("watermark_ms"))


def _events_from_json(o: "_Object") -> EventCounts:
    return EventCounts(o.integer("read"), o.integer("applied"), o.integer("null_key"))


def _file_to_json(file: FileRecord) -> _Json:
    return {
        "path": file.path,
        "size_bytes": file.size_bytes,
        "crc32c": file.crc32c,
        "subtask": file.subtask,
        "key_groups": [file.key_group_range.start, file.key_group_range.end],
    }


def _file_from_json(o: "_Object") -> FileRecord:
    return FileRecord(
        o.text("path"), o.integer("size_bytes"), o.integer("crc32c"), o.integer("subtask"), o.key_groups("key_groups")
    )


def _statistics_to_json(statistics: StateStatistics) -> _Json:
    key_groups = statistics.key_group_range
    return {
        "key_groups": [key_groups.start, key_groups.end],
        "entries": base64.b64encode(statistics.entries.astype("<i8").tobytes()).decode("ascii"),
        "digests": base64.b64encode(statistics.digests.astype("<u8").tobytes()).decode("ascii"),
    }


def _statistics_from_json(o: "_Object") -> StateStatistics:
    key_groups = o.key_groups("key_groups")
    entries = np.frombuffer(o.packed("entries", 8 * len(key_groups)), "<i8").astype(np.int64)
    digests = np.frombuffer(o.packed("digests", 8 * len(key_groups)), "<u8").astype(np.uint64)
    return StateStatistics(key_groups, entries, digests)


class _Object:
    """A JSON object whose fields are read by type; ``where`` is its path in errors."""

    def __init__(self, content: object, where: str) -> None:
        if not isinstance(content, dict):
            raise ValueError(f"{where}: expected an object")
        self._content = content
        self._where = where

    def has(self, name: str) -> bool:
        return name in self._content

    def value(self, name: str) -> object:
        if name not in self._content:
            raise ValueError(f"{self._where}.{name}: missing")
        return self._content[name]

    def text(self, name: str) -> str:
        return self._typed(name, str)

    def integer(self, name: str) -> int:
        value = self._typed(name, int)
        if isinstance(value, bool):
            raise ValueError(f"{self._where}.{name}: expected a number")
        return value

    def optional_text(self, name: str) -> str | None:
        return self._optional(name, self.text)

    def optional_integer(self, name: str) -> int | None:
        return self._optional(name, self.integer)

    def child(self, name: str) -> "_Object":
        return _Object(self.value(name), f"{self._where}.{name}")

    def children(self, name: str) -> list["_Object"]:
        return [_Object(item, f"{self._where}.{name}[{i}]") for i, item in enumerate(self._typed(name, list))]

    def key_groups(self, name: str) -> KeyGroupRange:
        bounds = self._typed(name, list)
        if len(bounds) != 2 or not all(type(bound) is int for bound in bounds):
            raise ValueError(f"{self._where}.{name}: expected two numbers")
        return KeyGroupRange(bounds[0], bounds[1])

    def packed(self, name: str, size: int) -> bytes:
        """Base64 text of exactly ``size`` bytes."""
        data = base64.b64decode(self.text(name), validate=True)
        if len(data) != size:
            raise ValueError(f"{self._where}.{name}: {len(data)} bytes, expected {size}")
        return data

    def _typed(self, name: str, kind: type[T]) -> T:
        value = self.value(name)
        if not isinstance(value, kind):
            raise ValueError(f"{self._where}.{name}: expected {kind.__name__}, found {type(value).__name__}")
        return value

    def _optional(self, name: str, read: Callable[[str], T]) -> T | None:
        return None if self.value(name) is None else read(name)
