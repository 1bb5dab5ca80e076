"""``statelib checkpoints``: which there are, and everything about one."""

from collections.abc import Iterator
from dataclasses import asdict
from itertools import groupby
from typing import Annotated

import typer

from statelib.cli import completion
from statelib.cli.commands.quarantine import gate_cell, gate_lines
from statelib.cli.output import (
    Column,
    Json,
    PipelineOption,
    count,
    end_in_trouble,
    errors,
    line,
    note,
    print_json,
    size,
    table,
    when,
)
from statelib.cli.presenters.described import describe
from statelib.cli.presenters.trees import print_tree
from statelib.flows.cleanup.each_pipeline import Troubles
from statelib.flows.views.inspection import check_pipeline, lineage_of_head, parse_checkpoint, resolve
from statelib.flows.wiring import begun_deployment
from statelib.model.amounts import keys_and_entries
from statelib.model.checkpoint import DataInterval
from statelib.model.ids import CheckpointId, PipelineName
from statelib.model.quality import GateSummary
from statelib.model.record import CheckpointRecord, CheckpointState, why

DAY_MS = 86_400_000

app = typer.Typer(no_args_is_help=True, help="Checkpoints and savepoints that the catalog knows.")


@app.command("list", epilog="Example: statelib checkpoints list -p aircraft_activity --json")
def list_(
    pipeline: PipelineOption = None,
    everything: Annotated[bool, typer.Option("--all", help="Pending and aborted ones too.")] = False,
    as_json: Json = False,
) -> None:
    """List completed checkpoints, and those in quarantine, newest last. '*' marks the history of the present state."""
    with errors(as_json):
        here = begun_deployment()
        catalog, troubles = here.catalog(), Troubles()
        heads: dict[PipelineName, set[CheckpointId]] = {}

        def of_one(name: PipelineName) -> list[CheckpointRecord]:
            found = catalog.list(name)
            heads[name] = set(lineage_of_head(here, name))
            return [r for r in reversed(found) if everything or r.state in _STORED]

        listed = troubles.each([check_pipeline(here, pipeline)] if pipeline else catalog.pipelines(), of_one)
        if not listed:
            troubles.check()
        records = [record for of_pipeline in listed for record in of_pipeline]
        gates = catalog.gate.summaries()
    if as_json:
        print_json([_plain(r, heads[r.pipeline], gates.get((r.pipeline, r.checkpoint_id))) for r in records])
    elif not records:
        note("no checkpoints" if everything else "no completed checkpoints")
    else:
        for name, of_pipeline in groupby(records, key=lambda r: r.pipeline):
            rows = [_row(r, r.checkpoint_id in heads[name], gates.get((name, r.checkpoint_id))) for r in of_pipeline]
            table(name, _COLUMNS, rows)
    end_in_trouble(troubles)


_STORED = (CheckpointState.COMPLETED, CheckpointState.QUARANTINED)
_COLUMNS = (
    Column("id", right=True), Column(""), Column("kind"), Column("interval (UTC)"), Column("base", right=True),
    Column("strategy", spare=True), Column("p", right=True, spare=True), Column("keys", right=True),
    Column("size", right=True), Column("gate", spare=True), Column("completed (UTC)"),
)  # fmt: skip


def _plain(record: CheckpointRecord, lineage: set[CheckpointId], gate: GateSummary | None) -> dict[str, object]:
    numbers = None if gate is None else asdict(gate) | {"passed": gate.passed}
    return asdict(record) | {"in_head_lineage": record.checkpoint_id in lineage, "gate": numbers}


def _row(record: CheckpointRecord, in_lineage: bool, gate: GateSummary | None) -> list[str]:
    done = record.state is CheckpointState.COMPLETED
    return [
        str(record.checkpoint_id), "*" if in_lineage else "", record.kind.lower(), _interval(record.interval),
        "-" if record.base is None else str(record.base), record.strategy, str(record.parallelism),
        count(record.keys), size(record.size_bytes), gate_cell(record, gate),
        when(record.completed_at_ms)[:16] if done else record.state.lower(),
    ]  # fmt: skip


def _interval(interval: DataInterval | None) -> str:
    """The day; where it is not one whole day, the minute it starts."""
    if interval is None:
        return "-"
    whole_day = interval.start_ms % DAY_MS == 0 and interval.end_ms - interval.start_ms == DAY_MS
    return when(interval.start_ms)[: 10 if whole_day else 16]


@app.command(epilog="Example: statelib checkpoints show aircraft_activity/4")
def show(
    checkpoint: Annotated[str, typer.Argument(help="<pipeline>/<id>", autocompletion=completion.checkpoints)],
    as_json: Json = False,
) -> None:
    """Show one checkpoint: its record, what the gate said, its states and files."""
    with errors(as_json):
        here = begun_deployment()
        record = here.catalog().get(*parse_checkpoint(checkpoint))
        quality = here.catalog().gate.results(record.pipeline, record.checkpoint_id)
        opened = resolve(here, checkpoint) if record.state in _STORED else None
        if as_json:
            snapshot = describe(opened) if opened else None
            print_json(asdict(record) | {"quality": [asdict(r) for r in quality], "snapshot": snapshot})
            return
        for field, value in _fields(record):
            line(f"{field:<12} {value}")
        for text in gate_lines(quality):
            line(text)
        if opened:
            line()
            print_tree(describe(opened))
        else:
            line(f"{'directory':<12} {record.directory}")


def _fields(record: CheckpointRecord) -> Iterator[tuple[str, str]]:
    """What is known of a checkpoint, in the order in which people ask."""
    yield "checkpoint", f"{record.pipeline}/{record.checkpoint_id}"
    yield "kind", f"{record.kind.lower()}, {record.strategy}, parallelism {record.parallelism}"
    yield "state", record.state.lower() + (f": {why(record)}" if record.reason else "")
    if record.interval:
        yield "interval", f"{when(record.interval.start_ms)} to {when(record.interval.end_ms)} UTC"
    yield "base", "none: built from nothing" if record.base is None else f"{record.pipeline}/{record.base}"
    if record.events:
        events = record.events
        yield "events", f"{count(events.read)} read, {count(events.applied)} applied, {count(events.null_key)} no key"
    if record.entries is not None:
        yield "contents", f"{keys_and_entries(record.keys, record.entries)}, {size(record.size_bytes)}"
    yield "begun", f"{when(record.created_at_ms)} UTC"
    if record.state is CheckpointState.PENDING and record.deadline_ms is not None:
        yield "deadline", f"{when(record.deadline_ms)} UTC"
    if record.completed_at_ms is not None:
        yield "completed", f"{when(record.completed_at_ms)} UTC"
    yield "owner", f"{record.owner.lower()}, epoch {record.epoch}, generation {record.generation}"
    rest = {"note": record.note, "attempt": record.attempt, "report": record.report}
    yield from ((field, value) for field, value in rest.items() if value)
