"""The manifest as JSON: fields by name, statistics as base64 of little-endian arrays.

Reading checks the type of each field, and raises a ValueError that names the field.
"""

import base64
import re
from collections.abc import Sequence

import numpy as np

from statelib.formats.manifest.json_object import JsonObject
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
    SideDataRecord,
    SnapshotKind,
    SourcePosition,
)
from statelib.model.handles import ByteStreamStateHandle, FileStateHandle, RelativeFileStateHandle
from statelib.model.ids import AttemptId, CheckpointId, Epoch, pipeline_name
from statelib.model.state import FieldMeaning, KeyCounts, KeyedStateSchema, StateDescriptor, StateKind, StateStatistics
from statelib.serializers.type_text import parse_type

_Json = dict[str, object]


def manifest_to_json(manifest: CheckpointManifest) -> _Json:
    """Return the manifest as a dictionary that ``json`` can write; inverse of :func:`manifest_from_json`.

    ``side_data`` is there only if a function keeps some, so that other manifests are as they were before."""
    content: _Json = {
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
    if manifest.side_data:
        content["side_data"] = list(map(_side_data_to_json, manifest.side_data))
    return content


def manifest_from_json(content: object) -> CheckpointManifest:
    """Return the manifest that ``content``, parsed JSON, describes.

    Raise ValueError, or the StatelibError of a model class that refuses a value.
    """
    o = JsonObject(content, "manifest")
    base = o.optional_number("base")
    files = tuple(map(_file_from_json, o.children("files")))
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
        files=files,
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
        side_data=tuple(_side_data_from_json(part, files) for part in o.children("side_data"))
        if o.has("side_data")
        else (),
    )
    if base is not None and base >= manifest.checkpoint_id:
        raise ValueError(f"base {base} of checkpoint {manifest.checkpoint_id}: expected an older one")
    if len(manifest.statistics) != len(manifest.schema.states):
        raise ValueError(
            f"{number_of(len(manifest.statistics), 'statistic')} for {number_of(len(manifest.schema.states), 'state')}"
        )
    return manifest


def _keys_from_json(o: JsonObject) -> KeyCounts | None:
    """Return the number of keys per key group; None if the manifest, perhaps an older one, does not have them."""
    if not o.has("keys") or o.value("keys") is None:
        return None
    return key_counts_from_text(o.text("keys"), o.child("schema").integer("max_parallelism"))


def _restores_from_json(o: JsonObject) -> tuple[RestoreMeasure | None, ...]:
    pairs = o.optional_pairs("restores")
    return tuple(None if pair is None else RestoreMeasure(*pair) for pair in pairs)


def _origin_from_json(o: JsonObject) -> Origin:
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
    o = JsonObject(content, "schema")
    return KeyedStateSchema(
        parse_type(o.text("key_type")),
        o.integer("max_parallelism"),
        tuple(_state_from_json(state) for state in o.children("states")),
    )


def _state_from_json(o: JsonObject) -> StateDescriptor:
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


def _meaning_from_json(o: JsonObject) -> FieldMeaning:
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


def _position_from_json(o: JsonObject) -> SourcePosition:
    start, end = o.optional_moment("start_ms"), o.optional_moment("end_ms")
    if (start is None) != (end is None):
        raise ValueError("position: start_ms and end_ms go together")
    interval = None if start is None or end is None else DataInterval(start, end)
    return SourcePosition(interval, o.integer("watermark_ms"))


def _events_from_json(o: JsonObject) -> EventCounts:
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


def _file_from_json(o: JsonObject) -> FileRecord:
    return FileRecord(
        o.text("path"),
        o.integer("size_bytes"),
        o.integer("crc32c"),
        o.integer("subtask"),
        o.key_groups("key_groups"),
        xxh3=_xxh3_from_json(o),
        segments=tuple(map(_segment_from_json, o.children("segments"))) if o.has("segments") else (),
    )


def _segment_from_json(o: JsonObject) -> SegmentRecord:
    return SegmentRecord(o.integer("start"), o.integer("size_bytes"), o.integer("crc32c"), _xxh3_from_json(o))


def _side_data_to_json(part: SideDataRecord) -> _Json:
    content: _Json = {"name": part.name, "key_groups": [part.key_group_range.start, part.key_group_range.end]}
    if isinstance(part.handle, ByteStreamStateHandle):
        return {**content, "data": base64.b64encode(part.handle.data).decode("ascii")}
    return {**content, "path": part.handle.path}


def _side_data_from_json(o: JsonObject, files: Sequence[FileRecord]) -> SideDataRecord:
    """Return the side data that ``o`` describes. Raise ValueError unless its file is one of ``files``."""
    name, key_groups = o.text("name"), o.key_groups("key_groups")
    if o.has("data"):
        data = base64.b64decode(o.text("data"), validate=True)
        return SideDataRecord(name, key_groups, ByteStreamStateHandle(name, data))
    path = o.text("path")
    sizes = [file.size_bytes for file in files if file.path == path]
    if not sizes:
        raise ValueError(f"side_data {name!r}: its file {path} is not among the files")
    kind = FileStateHandle if path.startswith("/") or ":" in path else RelativeFileStateHandle
    return SideDataRecord(name, key_groups, kind(path, sizes[0]))


def _xxh3_to_json(xxh3: int | None) -> str | None:
    return None if xxh3 is None else f"{xxh3:016x}"


def _xxh3_from_json(o: JsonObject) -> int | None:
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


def _statistics_from_json(o: JsonObject) -> StateStatistics:
    key_groups = o.key_groups("key_groups")
    entries = np.frombuffer(o.packed("entries", 8 * len(key_groups)), "<i8").astype(np.int64)
    digests = np.frombuffer(o.packed("digests", 8 * len(key_groups)), "<u8").astype(np.uint64)
    return StateStatistics(key_groups, entries, digests)
