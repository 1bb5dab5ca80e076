"""The declaration of the manifest as JSON: the fields of each object, their names, types, and values if missing.

A field may be added, with the value that older manifests have instead, but none is removed.
"""

import re
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from statelib.formats.manifest.declared_json import (
    BOOLEAN,
    BYTES,
    FLAG,
    INTEGER,
    KEY_GROUPS,
    MOMENT,
    NAMED_INTEGERS,
    NUMBER,
    NUMBERS,
    SIZES,
    TEXT,
    TEXTS,
    JsonField,
    Plain,
    Record,
    TwoForms,
    array_of,
    listed,
    one_of,
    optional,
    parsed,
    wrong,
)
from statelib.formats.manifest.key_counts_text import key_counts_from_text, key_counts_text
from statelib.model.amounts import number_of
from statelib.model.checkpoint import (
    CheckpointManifest,
    DataInterval,
    Delta,
    EventCounts,
    FileRecord,
    Origin,
    RestoreMeasure,
    SegmentRecord,
    SideDataRecord,
    SnapshotKind,
    SourcePosition,
    TableVersion,
)
from statelib.model.handles import ByteStreamStateHandle, FileStateHandle, RelativeFileStateHandle
from statelib.model.ids import pipeline_name
from statelib.model.key_groups import KeyGroupRange
from statelib.model.operator_state import OperatorStateDescriptor, OperatorStateMode
from statelib.model.state import FieldMeaning, KeyedStateSchema, StateDescriptor, StateKind, StateStatistics
from statelib.model.types import StateType
from statelib.serializers.type_text import parse_type


def manifest_to_json(manifest: CheckpointManifest) -> dict[str, object]:
    """Return the manifest as a dictionary that ``json`` can write; inverse of :func:`manifest_from_json`."""
    return MANIFEST.write(manifest)


def manifest_from_json(content: object) -> CheckpointManifest:
    """Return the manifest that ``content``, parsed JSON, describes.

    Raise ValueError, which names the field, or the StatelibError of a model class that refuses a value.
    """
    return MANIFEST.read(content, "manifest")


def _read_xxh3(content: object, where: str) -> int:
    text = TEXT.read(content, where)
    if not re.fullmatch("[0-9a-f]{16}", text):
        raise wrong(where, "16 hexadecimal digits", text)
    return int(text, 16)


TYPE: Plain[StateType] = parsed(parse_type)
PIPELINE = parsed(pipeline_name)
XXH3 = Plain(_read_xxh3, lambda xxh3: f"{xxh3:016x}")
RANGE = JsonField("key_groups", KEY_GROUPS, "key_group_range")


SEGMENT = Record(
    SegmentRecord,
    JsonField("start", INTEGER),
    JsonField("size_bytes", INTEGER),
    JsonField("crc32c", INTEGER),
    JsonField("xxh3", optional(XXH3), missing=None),
)
FILE = Record(
    FileRecord,
    JsonField("path", TEXT),
    JsonField("size_bytes", INTEGER),
    JsonField("crc32c", INTEGER),
    JsonField("xxh3", optional(XXH3), missing=None),
    JsonField("subtask", INTEGER),
    RANGE,
    JsonField("segments", listed(SEGMENT), missing=(), sparse=True),
)


def _inline_side_data(name: str, key_group_range: KeyGroupRange, data: bytes) -> SideDataRecord:
    return SideDataRecord(name, key_group_range, ByteStreamStateHandle(name, data))


def _side_data_in_file(name: str, key_group_range: KeyGroupRange, path: str) -> SideDataRecord:
    """Return side data whose handle has no size yet, because that is recorded with the file."""
    kind = FileStateHandle if path.startswith("/") or ":" in path else RelativeFileStateHandle
    return SideDataRecord(name, key_group_range, kind(path, 0))


SIDE_DATA = TwoForms(
    "data",
    Record(
        _inline_side_data, JsonField("name", TEXT), RANGE, JsonField("data", BYTES, get=lambda part: part.handle.data)
    ),
    Record(
        _side_data_in_file, JsonField("name", TEXT), RANGE, JsonField("path", TEXT, get=lambda part: part.handle.path)
    ),
    lambda part: isinstance(part.handle, ByteStreamStateHandle),
)

MEANING = Record(
    # earlier names are not written, because only the pipeline file needs them to read older snapshots
    FieldMeaning,
    JsonField("field", TEXT),
    JsonField("agg", TEXT),
    JsonField("of", optional(TEXT)),
    JsonField("by", TEXTS),
    JsonField("bounds", NUMBERS),
    JsonField("keeps_nulls", FLAG, missing=False, sparse=True),
    JsonField("together", FLAG, missing=False, sparse=True),
    JsonField("where", TEXT, missing="", sparse=True),
    JsonField("hashes", TEXT, missing="", sparse=True),
)
STATE = Record(
    StateDescriptor,
    JsonField("name", TEXT),
    JsonField("kind", one_of(StateKind)),
    JsonField("value_type", TYPE),
    JsonField("user_key_type", optional(TYPE)),
    JsonField("namespace_type", TYPE),
    JsonField("meanings", listed(MEANING), missing=()),
    JsonField("windows", TEXT, missing="", sparse=True),
    JsonField("user_key", TEXT, missing="", sparse=True),
    JsonField("time", TEXT, missing="", sparse=True),
)
OPERATOR_STATE = Record(
    OperatorStateDescriptor,
    JsonField("name", TEXT),
    JsonField("mode", Plain(lambda content, where: OperatorStateMode(INTEGER.read(content, where)), int)),
    JsonField("value_type", TYPE),
    JsonField("key_type", optional(TYPE), missing=None, sparse=True),
)
SCHEMA = Record(
    KeyedStateSchema,
    JsonField("key_type", TYPE),
    JsonField("max_parallelism", INTEGER),
    JsonField("states", listed(STATE)),
)


def _statistics(key_group_range: KeyGroupRange, entries: Any, digests: Any) -> StateStatistics:
    for name, array in (("entries", entries), ("digests", digests)):
        if len(array) != len(key_group_range):
            raise ValueError(f"{name}: {number_of(array.nbytes, 'byte')}, expected {8 * len(key_group_range)}")
    return StateStatistics(key_group_range, entries, digests)


STATISTICS = Record(
    _statistics,
    RANGE,
    JsonField("entries", array_of("<i8", np.int64)),
    JsonField("digests", array_of("<u8", np.uint64)),
)


def _position(
    start_ms: int | None, end_ms: int | None, watermark_ms: int, versions: tuple[TableVersion, ...]
) -> SourcePosition:
    if (start_ms is None) != (end_ms is None):
        raise ValueError("start_ms and end_ms go together")
    interval = None if start_ms is None or end_ms is None else DataInterval(start_ms, end_ms)
    return SourcePosition(interval, watermark_ms, tuple(versions))


INTERVAL = Record(DataInterval, JsonField("start_ms", MOMENT), JsonField("end_ms", MOMENT))
TABLE_VERSION = Record(TableVersion, JsonField("source", TEXT), JsonField("table", TEXT), JsonField("version", INTEGER))
POSITION = Record(
    _position,
    JsonField("start_ms", optional(MOMENT), get=lambda position: position.interval and position.interval.start_ms),
    JsonField("end_ms", optional(MOMENT), get=lambda position: position.interval and position.interval.end_ms),
    JsonField("watermark_ms", INTEGER),
    JsonField("versions", listed(TABLE_VERSION), missing=(), sparse=True),
)
DELTA = Record(Delta, JsonField("checkpoint_id", NUMBER), RANGE, JsonField("statistics", listed(STATISTICS)))
EVENTS = Record(
    EventCounts,
    JsonField("read", INTEGER),
    JsonField("applied", INTEGER),
    JsonField("null_key", INTEGER),
    JsonField("late", NAMED_INTEGERS, missing=()),
    JsonField("without_user_key", NAMED_INTEGERS, missing=(), sparse=True),
)
ORIGIN = Record(Origin, JsonField("pipeline", PIPELINE), JsonField("checkpoint_id", NUMBER))
RESTORE = Plain(
    lambda content, where: RestoreMeasure(*SIZES.read(content, where)),
    lambda restore: [restore.size_bytes, restore.restore_ms],
)


def _manifest(**values: Any) -> CheckpointManifest:
    """Return the manifest of all values, after checking whether they fit together."""
    number, base, schema = values["checkpoint_id"], values["base"], values["schema"]
    if base is not None and base >= number:
        raise ValueError(f"base {base} of checkpoint {number}: expected an older one")
    if len(values["statistics"]) != len(schema.states):
        raise ValueError(
            f"{number_of(len(values['statistics']), 'statistic')} for {number_of(len(schema.states), 'state')}"
        )
    for delta in values["deltas"]:
        if len(delta.statistics) != len(schema.states):
            raise ValueError(f"deltas: statistics of {number_of(len(delta.statistics), 'state')}")
    sizes = {file.path: file.size_bytes for file in reversed(values["files"])}
    with_timers = values.pop("keys_with_timers")
    for name in ("keys", "keys_below_deltas"):
        if values[name] is not None:
            counts = key_counts_from_text(values[name], schema.max_parallelism)
            values[name] = replace(counts, with_timers=with_timers)
    values["side_data"] = tuple(_sized(part, sizes) for part in values["side_data"])
    return CheckpointManifest(**values)


def _keys_text(manifest: CheckpointManifest, name: str = "keys") -> str | None:
    counts = getattr(manifest, name)
    return None if counts is None else key_counts_text(counts)


def _keys_with_timers(manifest: CheckpointManifest) -> bool:
    """Return whether keys that have only timers may be among the counted ones."""
    counts = manifest.keys or manifest.keys_below_deltas
    return counts is None or counts.with_timers or not manifest.schema.has_timers


def _sized(part: SideDataRecord, sizes: dict[str, int]) -> SideDataRecord:
    """Return side data with the size of its file. Raise ValueError unless the file is one of the manifest's."""
    handle = part.handle
    if isinstance(handle, ByteStreamStateHandle):
        return part
    if handle.path not in sizes:
        raise ValueError(f"side_data {part.name!r}: its file {handle.path} is not among the files")
    return replace(part, handle=replace(handle, size_bytes=sizes[handle.path]))


MANIFEST = Record(
    _manifest,
    JsonField("pipeline", PIPELINE),
    JsonField("checkpoint_id", NUMBER),
    JsonField("kind", one_of(SnapshotKind)),
    JsonField("strategy", TEXT),
    JsonField("epoch", NUMBER),
    JsonField("attempt", TEXT),
    JsonField("generation", NUMBER),
    JsonField("base", optional(NUMBER)),
    JsonField("created_at_ms", MOMENT),
    JsonField("position", POSITION),
    JsonField("events", EVENTS),
    JsonField("schema", SCHEMA),
    JsonField("files", listed(FILE)),
    JsonField("statistics", listed(STATISTICS)),
    JsonField("sync_ms", INTEGER),
    JsonField("async_ms", INTEGER),
    JsonField("uploaded_bytes", optional(INTEGER), missing=None),
    JsonField("origins", listed(ORIGIN), missing=()),
    JsonField("restored_from", TEXTS, missing=()),
    JsonField("restores", listed(optional(RESTORE)), missing=()),
    JsonField("uid", TEXT, missing=""),
    JsonField("upload_ms", optional(INTEGER), missing=None),
    JsonField("keys_changed", optional(INTEGER), missing=None),
    JsonField("drained", BOOLEAN, missing=False),
    JsonField("keys", optional(TEXT), missing=None, get=_keys_text),
    JsonField("side_data", listed(SIDE_DATA), missing=(), sparse=True),
    JsonField("seed", TEXT, missing="", sparse=True),
    JsonField("deltas", listed(DELTA), missing=(), sparse=True),
    JsonField(
        "keys_below_deltas",
        optional(TEXT),
        missing=None,
        sparse=True,
        get=partial(_keys_text, name="keys_below_deltas"),
    ),
    JsonField("keys_with_timers", BOOLEAN, missing=True, sparse=True, get=_keys_with_timers),
    JsonField("read_by_job", BOOLEAN, missing=False, sparse=True),
    JsonField("rehearsed", listed(INTEGER), missing=(), sparse=True),
    JsonField("mends", optional(INTERVAL), missing=None, sparse=True),
    JsonField("key", TEXTS, missing=(), sparse=True),
    JsonField("operator_states", listed(OPERATOR_STATE), missing=(), sparse=True),
)
