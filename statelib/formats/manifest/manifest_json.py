"""The manifest as JSON: fields by name, statistics as base64 of little-endian arrays.

Reading checks the type of each field, and raises a ValueError that names the field.
"""

import base64
import re
from collections.abc import Callable
from typing import TypeVar

import numpy as np

from statelib.formats.manifest.key_counts_text import key_counts_from_text, key_counts_text
from statelib.model.amounts import number_of
from statelib.model.checkpoint import (
    CheckpointManifest,
    DataInterval,
    EventCounts,
    FileRecord,
    Origin,
    RestoreMeasure,
    SegmentRecord,
    SnapshotKind,
    SourcePosition,
)
from statelib.model.ids import MAX_NUMBER, AttemptId, CheckpointId, Epoch, pipeline_name
from statelib.model.key_groups import MAX_MAX_PARALLELISM, KeyGroupRange
from statelib.model.state import FieldMeaning, KeyCounts, KeyedStateSchema, StateDescriptor, StateKind, StateStatistics
from statelib.serializers.type_text import parse_type

_FIRST_MS, _LAST_MS = -62_135_596_800_000, 253_402_300_799_999

T = TypeVar("T")
_Json = dict[str, object]


def manifest_to_json(manifest: CheckpointManifest) -> _Json:
    """Return the manifest as a dictionary that ``json`` can write; inverse of :func:`manifest_from_json`."""
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
            "late": dict(manifest.events.late),
        },
        "schema": _schema_to_json(manifest.schema),
        "files": [_file_to_json(file) for file in manifest.files],
        "statistics": [_statistics_to_json(statistics) for statistics in manifest.statistics],
        "sync_ms": manifest.sync_ms,
        "async_ms": manifest.async_ms,
        "uploaded_bytes": manifest.uploaded_bytes,
        "origins": [{"pipeline": o.pipeline, "checkpoint_id": o.checkpoint_id} for o in manifest.origins],
        "restored_from": list(manifest.restored_from),
        "restores": [None if r is None else [r.size_bytes, r.restore_ms] for r in manifest.restores],
        "uid": manifest.uid,
        "upload_ms": manifest.upload_ms,
        "keys_changed": manifest.keys_changed,
        "drained": manifest.drained,
        "keys": None if manifest.keys is None else key_counts_text(manifest.keys),
    }


def manifest_from_json(content: object) -> CheckpointManifest:
    """Return the manifest that ``content``, parsed JSON, describes.

    Raise ValueError, or the StatelibError of a model class that refuses a value.
    """
    o = _Object(content, "manifest")
    base = o.optional_number("base")
    manifest = CheckpointManifest(
        pipeline=pipeline_name(o.text("pipeline")),
        checkpoint_id=CheckpointId(o.number("checkpoint_id")),
        kind=SnapshotKind(o.text("kind")),
        strategy=o.text("strategy"),
        epoch=Epoch(o.number("epoch")),
        attempt=AttemptId(o.text("attempt")),
        generation=o.number("generation"),
        base=None if base is None else CheckpointId(base),
        created_at_ms=o.moment("created_at_ms"),
        position=_position_from_json(o.child("position")),
        events=_events_from_json(o.child("events")),
        schema=_schema_from_json(o.value("schema")),
        files=tuple(map(_file_from_json, o.children("files"))),
        statistics=tuple(map(_statistics_from_json, o.children("statistics"))),
        sync_ms=o.integer("sync_ms"),
        async_ms=o.integer("async_ms"),
        # this field and those below are missing in older manifests
        uploaded_bytes=o.later_integer("uploaded_bytes"),
        origins=tuple(map(_origin_from_json, o.children("origins"))) if o.has("origins") else (),
        restored_from=o.texts("restored_from") if o.has("restored_from") else (),
        restores=_restores_from_json(o) if o.has("restores") else (),
        uid=o.text("uid") if o.has("uid") else "",
        upload_ms=o.later_integer("upload_ms"),
        keys_changed=o.later_integer("keys_changed"),
        drained=o.has("drained") and o.boolean("drained"),
        keys=_keys_from_json(o),
    )
    if base is not None and base >= manifest.checkpoint_id:
        raise ValueError(f"base {base} of checkpoint {manifest.checkpoint_id}: expected an older one")
    if len(manifest.statistics) != len(manifest.schema.states):
        raise ValueError(
            f"{number_of(len(manifest.statistics), 'statistic')} for {number_of(len(manifest.schema.states), 'state')}"
        )
    return manifest


def _keys_from_json(o: "_Object") -> KeyCounts | None:
    """Return the number of keys per key group; None if the manifest, perhaps an older one, does not have them."""
    if not o.has("keys") or o.value("keys") is None:
        return None
    return key_counts_from_text(o.text("keys"), o.child("schema").integer("max_parallelism"))


def _restores_from_json(o: "_Object") -> tuple[RestoreMeasure | None, ...]:
    pairs = o.optional_pairs("restores")
    return tuple(None if pair is None else RestoreMeasure(*pair) for pair in pairs)


def _origin_from_json(o: "_Object") -> Origin:
    return Origin(pipeline_name(o.text("pipeline")), CheckpointId(o.number("checkpoint_id")))


def _schema_to_json(schema: KeyedStateSchema) -> _Json:
    """Return the schema as a dictionary with types as text (``statelib.model.types``); inverse of
    :func:`_schema_from_json`."""
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
                "meanings": [_meaning_to_json(meaning) for meaning in state.meanings],
            }
            for state in schema.states
        ],
    }


def _schema_from_json(content: object) -> KeyedStateSchema:
    """Return the schema that ``content``, parsed JSON, describes.

    Raise ValueError, or the StatelibError of a type or state that refuses a value.
    """
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
        # missing in older manifests
        tuple(map(_meaning_from_json, o.children("meanings"))) if o.has("meanings") else (),
    )


_MEANING_FLAGS = ("keeps_nulls", "together")


def _meaning_to_json(meaning: FieldMeaning) -> _Json:
    """Return the meaning without its earlier names, which only the pipeline file needs to read older snapshots."""
    return {
        "field": meaning.field,
        "agg": meaning.agg,
        "of": meaning.of,
        "by": list(meaning.by),
        "bounds": list(meaning.bounds),
        **{name: True for name in _MEANING_FLAGS if getattr(meaning, name)},
    }


def _meaning_from_json(o: "_Object") -> FieldMeaning:
    flags = (o.has(name) and o.value(name) is True for name in _MEANING_FLAGS)  # written only if true
    return FieldMeaning(
        o.text("field"), o.text("agg"), o.optional_text("of"), o.texts("by"), o.numbers("bounds"), (), *flags
    )


def _position_to_json(position: SourcePosition) -> _Json:
    interval = position.interval
    return {
        "start_ms": None if interval is None else interval.start_ms,
        "end_ms": None if interval is None else interval.end_ms,
        "watermark_ms": position.watermark_ms,
    }


def _position_from_json(o: "_Object") -> SourcePosition:
    start, end = o.optional_moment("start_ms"), o.optional_moment("end_ms")
    if (start is None) != (end is None):
        raise ValueError("position: start_ms and end_ms go together")
    interval = None if start is None or end is None else DataInterval(start, end)
    return SourcePosition(interval, o.integer("watermark_ms"))


def _events_from_json(o: "_Object") -> EventCounts:
    return EventCounts(o.integer("read"), o.integer("applied"), o.integer("null_key"), o.named_integers("late"))


def _file_to_json(file: FileRecord) -> _Json:
    content: _Json = {
        "path": file.path,
        "size_bytes": file.size_bytes,
        "crc32c": file.crc32c,
        "xxh3": _xxh3_to_json(file.xxh3),
        "subtask": file.subtask,
        "key_groups": [file.key_group_range.start, file.key_group_range.end],
    }
    if file.segments:
        content["segments"] = [
            {"start": s.start, "size_bytes": s.size_bytes, "crc32c": s.crc32c, "xxh3": _xxh3_to_json(s.xxh3)}
            for s in file.segments
        ]
    return content


def _file_from_json(o: "_Object") -> FileRecord:
    return FileRecord(
        o.text("path"),
        o.integer("size_bytes"),
        o.integer("crc32c"),
        o.integer("subtask"),
        o.key_groups("key_groups"),
        xxh3=_xxh3_from_json(o),
        segments=tuple(map(_segment_from_json, o.children("segments"))) if o.has("segments") else (),
    )


def _segment_from_json(o: "_Object") -> SegmentRecord:
    return SegmentRecord(o.integer("start"), o.integer("size_bytes"), o.integer("crc32c"), _xxh3_from_json(o))


def _xxh3_to_json(xxh3: int | None) -> str | None:
    return None if xxh3 is None else f"{xxh3:016x}"


def _xxh3_from_json(o: "_Object") -> int | None:
    """Return the XXH3-64 that 16 hexadecimal digits spell; None if it is null, or missing as in older manifests."""
    text = o.optional_text("xxh3") if o.has("xxh3") else None
    if text is not None and not re.fullmatch("[0-9a-f]{16}", text):
        raise ValueError("files.xxh3: expected 16 hexadecimal digits")
    return None if text is None else int(text, 16)


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

    def boolean(self, name: str) -> bool:
        return self._typed(name, bool)

    def texts(self, name: str) -> tuple[str, ...]:
        values = self._typed(name, list)
        if not all(isinstance(text, str) for text in values):
            raise ValueError(f"{self._where}.{name}: expected texts")
        return tuple(values)

    def integer(self, name: str) -> int:
        value = self._typed(name, int)
        if isinstance(value, bool) or not -(2**63) <= value < 2**63:
            raise ValueError(f"{self._where}.{name}: expected a number of 64 bits")
        return value

    def number(self, name: str) -> int:
        """Return an id, an epoch or a generation."""
        value = self.integer(name)
        if not 0 <= value <= MAX_NUMBER:
            raise ValueError(f"{self._where}.{name}: expected 0 to {MAX_NUMBER}")
        return value

    def optional_number(self, name: str) -> int | None:
        return self._optional(name, self.number)

    def moment(self, name: str) -> int:
        """Return epoch milliseconds within the years 1 to 9999, which people can be shown."""
        value = self.integer(name)
        if not _FIRST_MS <= value <= _LAST_MS:
            raise ValueError(f"{self._where}.{name}: expected a moment of the years 1 to 9999")
        return value

    def optional_moment(self, name: str) -> int | None:
        return self._optional(name, self.moment)

    def optional_text(self, name: str) -> str | None:
        return self._optional(name, self.text)

    def optional_integer(self, name: str) -> int | None:
        return self._optional(name, self.integer)

    def later_integer(self, name: str) -> int | None:
        """Return an integer, or None if it is null or missing, as in older manifests."""
        return self.optional_integer(name) if self.has(name) else None

    def child(self, name: str) -> "_Object":
        return _Object(self.value(name), f"{self._where}.{name}")

    def children(self, name: str) -> list["_Object"]:
        return [_Object(item, f"{self._where}.{name}[{i}]") for i, item in enumerate(self._typed(name, list))]

    def named_integers(self, name: str) -> tuple[tuple[str, int], ...]:
        """Return (name, number) pairs in their order; none if the field is missing, as in older manifests."""
        if name not in self._content:
            return ()
        child = self.child(name)
        return tuple((key, child.integer(key)) for key in child._content)

    def key_groups(self, name: str) -> KeyGroupRange:
        bounds = self._typed(name, list)
        if len(bounds) != 2 or not all(type(bound) is int for bound in bounds):
            raise ValueError(f"{self._where}.{name}: expected two numbers")
        if not -1 <= bounds[1] < MAX_MAX_PARALLELISM:
            raise ValueError(f"{self._where}.{name}: expected key groups below {MAX_MAX_PARALLELISM}")
        return KeyGroupRange(bounds[0], bounds[1])

    def optional_pairs(self, name: str) -> tuple[tuple[int, int] | None, ...]:
        pairs = self._typed(name, list)
        for pair in pairs:
            is_pair = isinstance(pair, list) and len(pair) == 2 and all(type(n) is int and n >= 0 for n in pair)
            if pair is not None and not is_pair:
                raise ValueError(f"{self._where}.{name}: expected pairs of numbers")
        return tuple(None if pair is None else (pair[0], pair[1]) for pair in pairs)

    def numbers(self, name: str) -> tuple[float, ...]:
        values = self._typed(name, list)
        if not all(type(number) in (int, float) for number in values):
            raise ValueError(f"{self._where}.{name}: expected numbers")
        return tuple(map(float, values))

    def packed(self, name: str, size: int) -> bytes:
        """Return the bytes that the base64 text holds. Raise ValueError unless there are exactly ``size`` of them."""
        data = base64.b64decode(self.text(name), validate=True)
        if len(data) != size:
            raise ValueError(f"{self._where}.{name}: {number_of(len(data), 'byte')}, expected {size}")
        return data

    def _typed(self, name: str, kind: type[T]) -> T:
        value = self.value(name)
        if not isinstance(value, kind):
            raise ValueError(f"{self._where}.{name}: expected {kind.__name__}, found {type(value).__name__}")
        return value

    def _optional(self, name: str, read: Callable[[str], T]) -> T | None:
        return None if self.value(name) is None else read(name)
