"""``statelib history``: what checkpoints cost, from the view that SQL and BI tools read."""

from typing import Annotated, Any

import typer

from statelib.cli.output import Column, Json, PipelineOption, count, errors, note, print_json, size, table
from statelib.flows.views.inspection import check_pipeline
from statelib.flows.wiring import begun_deployment

_COLUMNS = (
    Column("checkpoint"), Column("interval (UTC)"), Column("state"), Column("took", right=True),
    Column("sync", right=True, spare=True), Column("async", right=True, spare=True),
    Column("upload", right=True, spare=True), Column("size", right=True), Column("written", right=True),
    Column("keys", right=True), Column("entries", right=True, spare=True), Column("keys changed", right=True),
    Column("events/s", right=True, spare=True),
)  # fmt: skip


def history(
    pipeline: PipelineOption = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="Most that are shown, the newest.")] = 30,
    as_json: Json = False,
) -> None:
    """Show what checkpoints took and wrote, newest last; --json has every column of the view checkpoint_history."""
    with errors(as_json):
        here = begun_deployment()
        name = check_pipeline(here, pipeline) if pipeline else None
        rows = here.catalog().history.checkpoints(name, limit)[::-1]
    if as_json:
        print_json(rows)
    elif rows:
        table("History", _COLUMNS, [_cells(row) for row in rows])
    else:
        note("no checkpoints")


def _cells(row: dict[str, Any]) -> list[str]:
    rate, interval = row["events_per_second"], row["interval_start"]
    return [
        f"{row['pipeline']}/{row['checkpoint_id']}",
        row["kind"].lower() if interval is None else interval[:16].replace("T", " "),
        "head" if row["is_head"] else row["state"].lower(),
        *(_took(row[name]) for name in ("duration_ms", "sync_ms", "async_ms", "upload_ms")),
        size(row["size_bytes"]),
        size(row["uploaded_bytes"]),
        count(row["keys"]),
        count(row["entries"]),
        count(row["keys_changed"]),
        "-" if rate is None else f"{rate:,.0f}",
    ]


def _took(ms: int | None) -> str:
    """Milliseconds for people: 250 ms, 2.5 s, 1:05 min."""
    if ms is None:
        return "-"
    if ms < 1_000:
        return f"{ms} ms"
    return f"{ms / 1000:.1f} s" if ms < 60_000 else f"{ms // 60_000}:{ms // 1000 % 60:02d} min"
