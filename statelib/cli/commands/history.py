"""``statelib history``: show what checkpoints cost, from the SQL view that BI tools read too."""

from typing import Annotated, Any

import typer

from statelib.cli.ending import errors
from statelib.cli.options import Json, PipelineOption
from statelib.cli.presenters.blocks import Note, TableColumn, TextTable, present
from statelib.cli.presenters.values import count, duration, minute, size
from statelib.flows import wiring
from statelib.flows.views.inspection import check_pipeline

_COLUMNS = (
    TableColumn("checkpoint"), TableColumn("interval (UTC)"), TableColumn("state"), TableColumn("took", right=True),
    TableColumn("sync", right=True, spare=True), TableColumn("async", right=True, spare=True),
    TableColumn("upload", right=True, spare=True), TableColumn("size", right=True), TableColumn("written", right=True),
    TableColumn("keys", right=True), TableColumn("entries", right=True, spare=True),
    TableColumn("keys changed", right=True), TableColumn("events/s", right=True, spare=True),
)  # fmt: skip


def history(
    pipeline: PipelineOption = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="Show the newest N checkpoints only.")] = 30,
    as_json: Json = False,
) -> None:
    """Show the time, bytes and keys of checkpoints, newest last.

    --json prints every column of the SQL view checkpoint_history."""
    with errors(as_json):
        deployment = wiring.begun_deployment()
        name = check_pipeline(deployment, pipeline) if pipeline else None
        rows = deployment.catalog().history.checkpoints(name, limit)[::-1]
        cells = [] if as_json else [_cells(row) for row in rows]
    block = TextTable("History", _COLUMNS, cells) if rows else Note("no checkpoints")
    present(rows, [block], as_json)


def _span(row: dict[str, Any]) -> str:
    """Return the start of the interval that a checkpoint applied or corrects, or the word for a savepoint."""
    if row["interval_start_ms"] is not None:
        return minute(row["interval_start_ms"])
    return row["kind"].lower() if row["mended_start_ms"] is None else f"mends {minute(row['mended_start_ms'])}"


def _cells(row: dict[str, Any]) -> list[str]:
    rate = row["events_per_second"]
    return [
        f"{row['pipeline']}/{row['checkpoint_id']}",
        _span(row),
        "head" if row["is_head"] else row["state"].lower(),
        *(duration(row[name]) for name in ("duration_ms", "sync_ms", "async_ms", "upload_ms")),
        size(row["size_bytes"]),
        size(row["uploaded_bytes"]),
        count(row["keys"]),
        count(row["entries"]),
        count(row["keys_changed"]),
        "-" if rate is None else f"{rate:,.0f}",
    ]
