"""The JSON document that describes a snapshot, for ``inspect`` and ``checkpoints show``."""

from typing import Any

from statelib.errors import CorruptStateError, InvalidRequestError, NotFoundError, UnsupportedError
from statelib.model.checkpoint import OperatorState
from statelib.model.handles import (
    ByteStreamStateHandle,
    KeyedStateHandle,
    SegmentFileStateHandle,
    materialized_parts,
)
from statelib.model.operator_state import OperatorStateMode
from statelib.model.state import KeyedStateSchema
from statelib.model.types import VOID, Ttl
from statelib.savepoints.content import Entries, Stream, amounts_of, opaque_types, streams_of
from statelib.savepoints.opened import Checkpoint
from statelib.savepoints.operator_content import left_out, operator_counts

Json = dict[str, Any]


def describe(opened: Checkpoint, *, counted: bool = False) -> Json:
    """Return the description of a snapshot.

    An operator whose state cannot be read or counted has the reason in ``unreadable``. With ``counted``, a snapshot
    without a manifest is read whole, to count its entries and keys."""
    parts = {part.selected: part for part in opened.each_operator()}
    return {
        "directory": opened.directory,
        "checkpoint_id": opened.metadata.checkpoint_id,
        "metadata_version": opened.metadata.version,
        "written_by": opened.written_by,
        "operators": [_operator(opened, o, parts.get(o.operator_id), counted) for o in opened.operators],
        "left_out": left_out(opened),
        "late_events": dict(opened.manifest.events.late) if opened.manifest else {},
        "events_without_user_key": dict(opened.manifest.events.without_user_key) if opened.manifest else {},
        "uploaded_bytes": opened.manifest.uploaded_bytes if opened.manifest else None,
        "drained": opened.manifest.drained if opened.manifest else False,
        "seed": opened.manifest.seed if opened.manifest else "",
        "restored_from": list(opened.manifest.restored_from) if opened.manifest else [],
        "deltas": [
            {
                "checkpoint_id": delta.checkpoint_id,
                "key_groups": str(delta.key_group_range),
                "partial_values": delta.entries,
            }
            for delta in (opened.manifest.deltas if opened.manifest else ())
        ],
        "side_data": [
            {
                "name": part.name,
                "key_groups": str(part.key_group_range),
                "path": None if isinstance(part.handle, ByteStreamStateHandle) else part.handle.path,
                "size_bytes": part.handle.size_bytes,
            }
            for part in (opened.manifest.side_data if opened.manifest else ())
        ],
        "files": [
            {
                "path": f.path,
                "size_bytes": f.size_bytes,
                "crc32c": f"{f.crc32c:08x}",
                "xxh3": None if f.xxh3 is None else f"{f.xxh3:016x}",
                "key_groups": str(f.key_group_range),
                "segments": [{"start": s.start, "size_bytes": s.size_bytes} for s in f.segments],
            }
            for f in (opened.manifest.files if opened.manifest else ())
        ],
    }


def is_damaged(described: Json) -> bool:
    """Return whether the description has an operator with damaged state. Only snapshots that Flink wrote are described
    in spite of damage; for others it is an error."""
    operators = described["operators"]
    return any(part.get("damaged") for operator in operators for part in (operator, *operator["operator_states"]))


def _operator(opened: Checkpoint, operator: OperatorState, part: Checkpoint | None, counted: bool) -> Json:
    uid = opened.operator_name(operator)
    description: Json = {
        "operator_id": operator.operator_id.hex(),
        "uid": None if uid == operator.operator_id.hex() else uid,
        "parallelism": operator.parallelism,
        "max_parallelism": operator.max_parallelism,
        "subtasks": [_subtask(i, s.keyed) for i, s in operator.subtasks if s.keyed],
        "entries_by_key_group": None,
        "key_type": None,
        "keys": None,
        "states": [],
        "operator_states": _operator_states(opened, operator),
        "finished": operator.finished,
        "finished_subtasks": sum(state.finished for _, state in operator.subtasks),
    }
    if part is None:
        return description
    try:
        schema = part.schema()
        description |= {"key_type": str(schema.key_type), "states": _states(schema, None)}
        amounts = amounts_of(part, counted=counted)
    except (UnsupportedError, NotFoundError, InvalidRequestError) as error:  # also files that were moved
        return {**description, "unreadable": error.message}
    except CorruptStateError as error:
        if opened.manifest is not None:
            raise
        return {**description, "unreadable": error.message, "damaged": True}
    if amounts.entries is not None:
        _add_entries(description, operator, amounts.entries)
    return {**description, "keys": amounts.keys, "states": _states(schema, amounts.entries)}


def _subtask(index: int, handle: KeyedStateHandle) -> Json:
    """Return the description of a subtask's keyed state. ``size_bytes`` counts all its streams, also those that it
    shares with other subtasks or checkpoints."""
    streams = list(streams_of(handle))
    return {
        "subtask": index,
        "handle": type(handle).__name__,
        "materialized": [type(part).__name__ for part in materialized_parts(handle)],
        "key_groups": str(handle.key_group_range),
        "size_bytes": sum(stream.handle.size_bytes for stream in streams),
        "entries": None,
        "streams": [_stream(stream) for stream in streams],
    }


def _stream(stream: Stream) -> Json:
    """Return the description of a stream. ``start`` is the offset of a segment in its file; ``path`` is None for a
    stream inside ``_metadata``."""
    handle = stream.handle
    return {
        "role": stream.role,
        "path": None if isinstance(handle, ByteStreamStateHandle) else handle.path,
        "size_bytes": handle.size_bytes,
        "start": handle.start if isinstance(handle, SegmentFileStateHandle) else None,
    }


def _add_entries(description: Json, operator: OperatorState, entries: Entries) -> None:
    by_group = entries.sum(axis=0)
    description["entries_by_key_group"] = by_group.tolist()
    ranges = {i: s.keyed.key_group_range for i, s in operator.subtasks if s.keyed}
    for subtask in description["subtasks"]:
        groups = ranges[subtask["subtask"]]
        subtask["entries"] = int(by_group[groups.start : groups.end + 1].sum())


def _operator_states(opened: Checkpoint, operator: OperatorState) -> list[Json]:
    """Return the descriptions of an operator's operator states. Types and elements are None for a state whose
    serializer is unknown."""
    try:
        counts = operator_counts(opened, operator)
    except (UnsupportedError, NotFoundError, InvalidRequestError, CorruptStateError) as error:
        if isinstance(error, CorruptStateError) and opened.manifest is not None:
            raise
        modes = {name: mode for _, s in operator.subtasks if s.operator for name, mode, _ in s.operator.states}
        return [
            _operator_state(name, OperatorStateMode(mode))
            | {"unreadable": error.message}
            | ({"damaged": True} if isinstance(error, CorruptStateError) else {})
            for name, mode in modes.items()
        ]
    return [
        {
            "name": descriptor.name,
            "mode": descriptor.mode.name.lower(),
            "key_type": str(descriptor.key_type) if descriptor.key_type else None,
            "value_type": str(descriptor.value_type),
            "elements": elements,
            "opaque": [t.serializer for t in opaque_types((descriptor.key_type, descriptor.value_type))],
        }
        for descriptor, elements in counts
    ]


def _operator_state(name: str, mode: OperatorStateMode) -> Json:
    unknown: Json = {"key_type": None, "value_type": None, "elements": None, "opaque": []}
    return {"name": name, "mode": mode.name.lower(), **unknown}


def _states(schema: KeyedStateSchema, entries: Entries | None) -> list[Json]:
    """Return the descriptions of keyed states. ``ttl``: whether each value has the time of its last access; ``opaque``:
    the serializers that only Flink has."""
    totals = None if entries is None else entries.sum(axis=1).tolist()
    return [
        {
            "name": state.name,
            "kind": state.kind.value,
            "user_key_type": str(state.user_key_type) if state.user_key_type else None,
            "value_type": str(state.value_type),
            "namespace_type": None if state.namespace_type == VOID else str(state.namespace_type),
            "entries": None if totals is None else totals[i],
            "ttl": isinstance(state.value_type, Ttl),
            "opaque": [t.serializer for t in opaque_types((schema.key_type, state.user_key_type, state.value_type))],
        }
        for i, state in enumerate(schema.states)
    ]
