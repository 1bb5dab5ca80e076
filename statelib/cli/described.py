"""What ``inspect`` and ``checkpoints show`` say of a snapshot, for machines and for people."""

from typing import Any

from statelib.cli.output import Column, count, line, size, table
from statelib.errors import NotFoundError, UnsupportedError
from statelib.flows.opened import Checkpoint
from statelib.model.checkpoint import OperatorState
from statelib.model.state import KeyedStateSchema

Json = dict[str, Any]


def describe(opened: Checkpoint) -> Json:
    """For machines. Of an operator whose state cannot be read, ``unreadable`` says why."""
    parts = {part.selected: part for part in opened.each_operator()}
    return {
        "directory": opened.directory,
        "checkpoint_id": opened.metadata.checkpoint_id,
        "metadata_version": opened.metadata.version,
        "written_by": "statelib" if opened.manifest else "flink",
        "operators": [_operator(opened, o, parts.get(o.operator_id)) for o in opened.operators],
        "uploaded_bytes": opened.manifest.uploaded_bytes if opened.manifest else None,
        "files": [
            {
                "path": f.path,
                "size_bytes": f.size_bytes,
                "crc32c": f"{f.crc32c:08x}",
                "key_groups": str(f.key_group_range),
            }
            for f in (opened.manifest.files if opened.manifest else ())
        ],
    }


def _operator(opened: Checkpoint, operator: OperatorState, part: Checkpoint | None) -> Json:
    uid = opened.operator_name(operator)
    told: Json = {
        "operator_id": operator.operator_id.hex(),
        "uid": None if uid == operator.operator_id.hex() else uid,
        "parallelism": operator.parallelism,
        "max_parallelism": operator.max_parallelism,
        "subtasks": [
            {"subtask": i, "handle": type(s.keyed).__name__, "key_groups": str(s.keyed.key_group_range)}
            for i, s in operator.subtasks
            if s.keyed
        ],
        "key_type": None,
        "states": [],
    }
    if part is None:
        return told
    try:
        schema = part.schema()
    except (UnsupportedError, NotFoundError) as error:
        return {**told, "unreadable": error.message}
    return {**told, "key_type": str(schema.key_type), "states": _states(part, schema)}


def _states(part: Checkpoint, schema: KeyedStateSchema) -> list[Json]:
    statistics = part.manifest.statistics if part.manifest else ()
    return [
        {
            "name": state.name,
            "kind": state.kind.value,
            "user_key_type": str(state.user_key_type) if state.user_key_type else None,
            "value_type": str(state.value_type),
            "entries": statistics[i].total_entries if statistics else None,
        }
        for i, state in enumerate(schema.states)
    ]


def print_snapshot(opened: Checkpoint) -> None:
    """For people."""
    told = describe(opened)
    line(told["directory"])
    line(
        f"checkpoint {told['checkpoint_id']}, written by {told['written_by']}, "
        f"_metadata version {told['metadata_version']}"
    )
    for operator in (o for o in told["operators"] if o["subtasks"]):
        _print_operator(operator)
    if told["files"]:
        columns = [Column("file"), Column("size", right=True), Column("crc32c"), Column("key groups")]
        rows = [[f["path"], size(f["size_bytes"]), f["crc32c"], f["key_groups"]] for f in told["files"]]
        table("Files", columns, rows)
        if told["uploaded_bytes"] is not None:
            line(f"written for this checkpoint: {size(told['uploaded_bytes'])}, the rest was there already")
    stateless = [f"{_title(o)}, no keyed state" for o in told["operators"] if not o["subtasks"]]
    if stateless:
        line("\n" + "\n".join(stateless))


def _print_operator(operator: Json) -> None:
    line(f"\n{_title(operator)}, key {operator['key_type'] or 'unknown'}")
    if operator["uid"]:
        line(f"  id {operator['operator_id']}")
    if "unreadable" in operator:
        line(f"  states cannot be read: {operator['unreadable']}")
    else:
        columns = [Column("state"), Column("kind"), Column("user key"), Column("value", wraps=True)]
        rows = [
            [s["name"], s["kind"], s["user_key_type"] or "-", s["value_type"], count(s["entries"])]
            for s in operator["states"]
        ]
        table("States", [*columns, Column("entries", right=True)], rows)
    subtasks = [[str(s["subtask"]), s["key_groups"], s["handle"]] for s in operator["subtasks"]]
    table("Subtasks", [Column("subtask", right=True), Column("key groups"), Column("handle")], subtasks)


def _title(operator: Json) -> str:
    name = operator["uid"] or operator["operator_id"]
    return f"Operator {name}: parallelism {operator['parallelism']} of {operator['max_parallelism']}"
