"""``statelib inspect | export | verify``: read snapshots, ours and Flink's."""

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import Progress

from statelib.cli.checkpoints import describe, print_snapshot
from statelib.cli.output import Json, PipelineOption, count, err, errors, out, print_json, size, table
from statelib.errors import InvalidRequestError
from statelib.flows.inspection import (
    Verification,
    completed,
    export_lines,
    export_parquet,
    resolve,
    verify,
)
from statelib.flows.opened import Checkpoint, open_checkpoint
from statelib.flows.wiring import Deployment, deployment
from statelib.model.ids import PipelineName

Snapshot = Annotated[str, typer.Argument(help="<pipeline>/<id>, or the path of a snapshot directory.")]
State = Annotated[str | None, typer.Option("--state", help="Only this state.")]


def inspect_(snapshot: Snapshot, as_json: Json = False) -> None:
    """Show operators, states, types and files of any snapshot, also of Flink's own."""
    with errors(as_json):
        opened = open_checkpoint(snapshot) if Path(snapshot).exists() else resolve(deployment(), snapshot)
        if as_json:
            print_json(describe(opened))
        else:
            print_snapshot(opened)


def export(
    snapshot: Snapshot,
    form: Annotated[str, typer.Option("--format", help="jsonl (typed JSON lines) or parquet.")] = "jsonl",
    state: State = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="File (jsonl) or directory (parquet).")] = None,
) -> None:
    """Write every entry of a snapshot out as text or as Parquet."""
    with errors():
        opened = open_checkpoint(snapshot) if Path(snapshot).exists() else resolve(deployment(), snapshot)
        if form == "jsonl":
            _export_lines(opened, state, output)
        elif form == "parquet":
            if output is None:
                raise InvalidRequestError(
                    "parquet is written to a directory", kind="no-output", hint="add -o DIRECTORY"
                )
            for path in export_parquet(opened, state, output):
                out.print(str(path))
        else:
            raise InvalidRequestError(f"format {form!r}: expected jsonl or parquet", kind="bad-format")


def _export_lines(opened: Checkpoint, state: str | None, output: Path | None) -> None:
    target = output.open("x", encoding="utf-8") if output else sys.stdout
    try:
        for line in export_lines(opened, state):
            target.write(line + "\n")
    finally:
        if output:
            target.close()


def verify_(
    snapshot: Annotated[str | None, typer.Argument(help="<pipeline>/<id> or a path; all completed if absent.")] = None,
    pipeline: PipelineOption = None,
    read_data: Annotated[bool, typer.Option(help="Read every byte and count every entry.")] = True,
    as_json: Json = False,
) -> None:
    """Prove that snapshots are whole: files, sizes, checksums, counts, digests. Exit status 1 if not."""
    with errors(as_json):
        here = None if snapshot and Path(snapshot).exists() else deployment()
        results = _verify_all(_targets(here, snapshot, pipeline), read_data, here)
    if as_json:
        print_json(results)
    else:
        _print_verified(results)
    if any(result.problems for result in results):
        raise typer.Exit(1)


def _targets(here: Deployment | None, snapshot: str | None, pipeline: str | None) -> list[str]:
    if snapshot and here is None:
        return [snapshot]
    assert here is not None
    if snapshot:
        return [resolve(here, snapshot).directory]
    return [r.directory for r in completed(here, PipelineName(pipeline) if pipeline else None)]


def _verify_all(targets: list[str], read_data: bool, here: Deployment | None) -> list[Verification]:
    scratch = here.work_directory if here else None
    with Progress(console=err, transient=True) as progress:
        return [
            verify(open_checkpoint(target), read_data=read_data, scratch=scratch)
            for target in progress.track(targets, description="verifying")
        ]


def _print_verified(results: list[Verification]) -> None:
    rows = [
        [r.directory, count(r.files), size(r.size_bytes), count(r.entries), "; ".join(r.problems) or "whole"]
        for r in results
    ]
    columns = [("snapshot", ""), ("files", "right"), ("bytes", "right"), ("entries", "right"), ("result", "")]
    table("Verified", columns, rows)
