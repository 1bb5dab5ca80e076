"""``statelib checkpoints``: which there are, and everything about one."""

from dataclasses import asdict
from typing import Annotated, Any

import typer

from statelib.cli.output import Json, PipelineOption, count, errors, out, print_json, size, table, when
from statelib.flows.inspection import lineage_of_head, resolve
from statelib.flows.opened import Checkpoint
from statelib.flows.wiring import deployment
from statelib.model.ids import CheckpointId, PipelineName
from statelib.model.record import CheckpointRecord, CheckpointState

app = typer.Typer(no_args_is_help=True, help="Checkpoints and savepoints that the catalog knows.")


@app.command("list", epilog="Example: statelib checkpoints list -p aircraft_activity --json")
def list_(
    pipeline: PipelineOption = None,
    everything: Annotated[bool, typer.Option("--all", help="Pending and aborted ones too.")] = False,
    as_json: Json = False,
) -> None:
    """List completed checkpoints, newest last. '*' marks the history of the present state."""
    with errors(as_json):
        here = deployment()
        found = here.catalog().list(PipelineName(pipeline) if pipeline else None)
        records = sorted(found, key=lambda r: (r.pipeline, r.checkpoint_id))
        if not everything:
            records = [r for r in records if r.state is CheckpointState.COMPLETED]
        names = sorted({r.pipeline for r in records})
        heads = {name: set(lineage_of_head(here, name)) for name in names}
        if as_json:
            print_json([asdict(r) | {"in_head_lineage": r.checkpoint_id in heads[r.pipeline]} for r in records])
            return
        columns = [("pipeline", ""), ("id", "right"), ("", ""), ("kind", ""), ("state", ""), ("base", "right")]
        columns += [("interval (UTC)", ""), ("strategy", ""), ("p", "right"), ("entries", "right"), ("bytes", "right")]
        table(
            "Checkpoints",
            [*columns, ("completed (UTC)", "")],
            [_row(r, r.checkpoint_id in heads[r.pipeline]) for r in records],
        )


def _row(record: CheckpointRecord, in_lineage: bool) -> list[str]:
    interval = when(record.interval.start_ms)[:10] if record.interval else "-"
    return [
        record.pipeline, str(record.checkpoint_id), "*" if in_lineage else "", record.kind.lower(),
        record.state.lower(), "-" if record.base is None else str(record.base), interval, record.strategy,
        str(record.parallelism), count(record.entries), size(record.size_bytes), when(record.completed_at_ms),
    ]  # fmt: skip


@app.command(epilog="Example: statelib checkpoints show aircraft_activity/4")
def show(
    checkpoint: Annotated[str, typer.Argument(help="<pipeline>/<id>")],
    as_json: Json = False,
) -> None:
    """Show one checkpoint: its record, states, files, and where its quality report lies."""
    with errors(as_json):
        here = deployment()
        name, _, number = checkpoint.rpartition("/")
        if not number.isdecimal():
            raise typer.BadParameter(f"{checkpoint!r}: expected <pipeline>/<id>, such as aircraft_activity/4")
        record = here.catalog().get(PipelineName(name), CheckpointId(int(number)))
        opened = resolve(here, checkpoint) if record.state is CheckpointState.COMPLETED else None
        if as_json:
            print_json(asdict(record) | {"snapshot": describe(opened) if opened else None})
            return
        shown = {k: v for k, v in asdict(record).items() if v not in (None, "")}
        table(f"Checkpoint {checkpoint}", [("field", ""), ("value", "")], [[k, str(v)] for k, v in shown.items()])
        if opened:
            print_snapshot(opened)


def describe(opened: Checkpoint) -> dict[str, Any]:
    """What ``inspect`` and ``show`` say of a snapshot, for machines."""
    schema, manifest = opened.schema(), opened.manifest
    states = [
        {"name": s.name, "kind": s.kind.value, "value_type": str(s.value_type)}
        | ({"user_key_type": str(s.user_key_type)} if s.user_key_type else {})
        | ({"entries": manifest.statistics[i].total_entries} if manifest else {})
        for i, s in enumerate(schema.states)
    ]
    return {
        "directory": opened.directory,
        "checkpoint_id": opened.metadata.checkpoint_id,
        "metadata_version": opened.metadata.version,
        "written_by": "statelib" if manifest else "flink",
        "operators": [
            {
                "operator_id": o.operator_id.hex(),
                "uid": o.uid,
                "parallelism": o.parallelism,
                "max_parallelism": o.max_parallelism,
                "subtasks": [
                    {"subtask": i, "handle": type(s.keyed).__name__, "key_groups": str(s.keyed.key_group_range)}
                    for i, s in o.subtasks
                    if s.keyed
                ],
            }
            for o in opened.operators
        ],
        "key_type": str(schema.key_type),
        "states": states,
        "files": [
            {
                "path": f.path,
                "size_bytes": f.size_bytes,
                "crc32c": f"{f.crc32c:08x}",
                "key_groups": str(f.key_group_range),
            }
            for f in (manifest.files if manifest else ())
        ],
    }


def print_snapshot(opened: Checkpoint) -> None:
    """The same for people."""
    told = describe(opened)
    out.print(
        f"[bold]{told['directory']}[/]\n_metadata version {told['metadata_version']}, written by {told['written_by']}, "
        f"key type {told['key_type']}"
    )
    subtasks = [
        [o["uid"] or o["operator_id"], str(s["subtask"]), s["key_groups"], s["handle"]]
        for o in told["operators"]
        for s in o["subtasks"]
    ]
    table("Operators", [("operator", ""), ("subtask", "right"), ("key groups", ""), ("handle", "")], subtasks)
    states = [
        [s["name"], s["kind"], s.get("user_key_type", "-"), s["value_type"], count(s.get("entries"))]
        for s in told["states"]
    ]
    table("States", [("state", ""), ("kind", ""), ("user key", ""), ("value", ""), ("entries", "right")], states)
    files = [[f["path"], size(f["size_bytes"]), f["crc32c"], f["key_groups"]] for f in told["files"]]
    table("Files", [("file", ""), ("size", "right"), ("crc32c", ""), ("key groups", "")], files)
