"""``statelib checkpoints list`` and ``show``: the checkpoints and savepoints in the catalog."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import groupby
from typing import Annotated, Any

import typer

from statelib.cli.commands.quarantine import gate_cell, gate_lines
from statelib.cli.ending import end_in_trouble, errors
from statelib.cli.options import Json, NamedCheckpoint, PipelineOption
from statelib.cli.presenters.blocks import Block, Fields, Line, Note, TableColumn, TextTable, present
from statelib.cli.presenters.snapshot_document import describe
from statelib.cli.presenters.snapshot_tree import snapshot_view
from statelib.cli.presenters.values import count, minute, size, when
from statelib.flows import wiring
from statelib.flows.cleanup.each_pipeline import Troubles
from statelib.flows.views.inspection import check_pipeline, lineage_of_head, named_checkpoint
from statelib.model.amounts import keys_and_entries
from statelib.model.checkpoint import DataInterval
from statelib.model.ids import CheckpointId, PipelineName
from statelib.model.quality import GateSummary, QualityResult
from statelib.model.record import CheckpointRecord, CheckpointState, why

DAY_MS = 86_400_000

app = typer.Typer(no_args_is_help=True, help="The checkpoints and savepoints in the catalog.")

Row = tuple[CheckpointRecord, bool, GateSummary | None]
"""A record, whether it is in the lineage of the head, and the newest verdict of the gate."""


@app.command("list", epilog="Example: statelib checkpoints list -p aircraft_activity --json")
def list_(
    pipeline: PipelineOption = None,
    everything: Annotated[bool, typer.Option("--all", help="List pending, aborted and deleted ones too.")] = False,
    as_json: Json = False,
) -> None:
    """List checkpoints that are complete or in quarantine, newest last. '*' marks the head and its lineage."""
    with errors(as_json):
        deployment = wiring.begun_deployment()
        catalog, troubles = deployment.catalog(), Troubles()
        lineages: dict[PipelineName, set[CheckpointId]] = {}

        def records_of(name: PipelineName) -> list[CheckpointRecord]:
            records = catalog.list(name)
            lineages[name] = set(lineage_of_head(deployment, name))
            return [r for r in reversed(records) if everything or r.state in _STORED]

        names = [check_pipeline(deployment, pipeline)] if pipeline else catalog.pipelines()
        listed = troubles.each(names, records_of)
        if not listed:
            troubles.check()
        gates = catalog.gate.summaries()
        rows = [
            (r, r.checkpoint_id in lineages[r.pipeline], gates.get((r.pipeline, r.checkpoint_id)))
            for records in listed
            for r in records
        ]
    present([_document(*row) for row in rows], _list_view(rows, everything), as_json)
    end_in_trouble(troubles)


_STORED = (CheckpointState.COMPLETED, CheckpointState.QUARANTINED)
_COLUMNS = (
    TableColumn("id", right=True), TableColumn(""), TableColumn("kind"), TableColumn("interval (UTC)"),
    TableColumn("base", right=True), TableColumn("strategy", spare=True), TableColumn("p", right=True, spare=True),
    TableColumn("keys", right=True), TableColumn("size", right=True), TableColumn("gate", spare=True),
    TableColumn("completed (UTC)"),
)  # fmt: skip


def _document(record: CheckpointRecord, in_lineage: bool, gate: GateSummary | None) -> dict[str, Any]:
    numbers = None if gate is None else asdict(gate) | {"passed": gate.passed}
    return _facts(record) | {"in_head_lineage": in_lineage, "gate": numbers}


def _facts(record: CheckpointRecord) -> dict[str, Any]:
    return asdict(record) | {"mends": asdict(record.mends) if record.mends else None}


def _list_view(rows: Sequence[Row], everything: bool) -> Iterator[Block]:
    if not rows:
        yield Note("no checkpoints" if everything else "no completed checkpoints")
    for name, of_pipeline in groupby(rows, key=lambda row: row[0].pipeline):
        yield TextTable(name, _COLUMNS, [_cells(*row) for row in of_pipeline])


def _cells(record: CheckpointRecord, in_lineage: bool, gate: GateSummary | None) -> list[str]:
    completed = record.state is CheckpointState.COMPLETED
    return [
        str(record.checkpoint_id), "*" if in_lineage else "", record.kind.lower(), _interval(record),
        "-" if record.base is None else str(record.base), record.strategy, str(record.parallelism),
        count(record.keys), size(record.size_bytes), gate_cell(record, gate),
        minute(record.completed_at_ms) if completed else record.state.lower(),
    ]  # fmt: skip


def _interval(record: CheckpointRecord) -> str:
    """Return the interval that a checkpoint applied or mends, '-' if there is none."""
    if record.mends is not None:
        return f"mends {_start(record.mends)}"
    return "-" if record.interval is None else _start(record.interval)


def _start(interval: DataInterval) -> str:
    """Return the day of an interval that is one whole day; of any other interval, the minute in which it starts."""
    whole_day = interval.start_ms % DAY_MS == 0 and interval.end_ms - interval.start_ms == DAY_MS
    return when(interval.start_ms)[: 10 if whole_day else 16]


@app.command(epilog="Example: statelib checkpoints show aircraft_activity/4")
def show(checkpoint: NamedCheckpoint, as_json: Json = False) -> None:
    """Show one checkpoint: its record, the verdict of the quality gate, its states and files."""
    with errors(as_json):
        deployment = wiring.begun_deployment()
        record = deployment.catalog().get(*named_checkpoint(deployment, checkpoint))
        quality = deployment.catalog().gate.results(record.pipeline, record.checkpoint_id)
        opened = deployment.open(record) if record.state in _STORED else None
        snapshot = describe(opened) if opened else None
        document = _facts(record) | {"quality": quality, "snapshot": snapshot}
        present(document, _show_view(record, quality, snapshot), as_json)


def _show_view(
    record: CheckpointRecord, quality: Sequence[QualityResult], snapshot: dict[str, Any] | None
) -> Iterator[Block]:
    yield Fields([*_fields(record)])
    yield from gate_lines(quality)
    if snapshot is None:
        yield Fields([("directory", record.directory)])
    else:
        yield Line()
        yield from snapshot_view(snapshot)


def _fields(record: CheckpointRecord) -> Iterator[tuple[str, str]]:
    """Yield (label, value) of everything that the catalog records of a checkpoint."""
    yield "checkpoint", f"{record.pipeline}/{record.checkpoint_id}"
    yield "kind", f"{record.kind.lower()}, {record.strategy}, parallelism {record.parallelism}"
    yield "state", record.state.lower() + (f": {why(record)}" if record.reason else "")
    if record.interval:
        yield "interval", f"{when(record.interval.start_ms)} to {when(record.interval.end_ms)} UTC"
    if record.mends:
        yield "mends", f"{when(record.mends.start_ms)} to {when(record.mends.end_ms)} UTC"
    yield "base", "none: built from nothing" if record.base is None else f"{record.pipeline}/{record.base}"
    if record.events:
        events = record.events
        yield "events", f"{count(events.read)} read, {count(events.applied)} applied, {count(events.null_key)} no key"
    if record.size_bytes is not None:
        yield "contents", f"{keys_and_entries(record.keys, record.entries)}, {size(record.size_bytes)}"
    yield "begun", f"{when(record.created_at_ms)} UTC"
    if record.state is CheckpointState.PENDING and record.deadline_ms is not None:
        yield "deadline", f"{when(record.deadline_ms)} UTC"
    if record.completed_at_ms is not None:
        yield "completed", f"{when(record.completed_at_ms)} UTC"
    yield "owner", f"{record.owner.lower()}, epoch {record.epoch}, generation {record.generation}"
    rest = {"note": record.note, "attempt": record.attempt, "report": record.report}
    yield from ((field, value) for field, value in rest.items() if value)
