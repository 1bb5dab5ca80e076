"""``statelib inspect | export | verify``: read snapshots, ours and Flink's."""

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import Progress

from statelib.cli.described import describe, print_snapshot
from statelib.cli.output import Json, PipelineOption, count, err, errors, line, note, print_json, size
from statelib.errors import InvalidRequestError
from statelib.flows.inspection import (
    Verification,
    check_pipeline,
    completed,
    completed_record,
    export_lines,
    export_parquet,
    is_id,
    resolve,
    verify_at,
    writing,
)
from statelib.flows.opened import Checkpoint, open_checkpoint
from statelib.flows.wiring import Deployment, deployment, storage_root

Snapshot = Annotated[str, typer.Argument(help="<pipeline>/<id>, or the path of a snapshot directory.")]
State = Annotated[str | None, typer.Option("--state", help="Only this state.")]
Operator = Annotated[str | None, typer.Option("--operator", help="Only this operator: its uid, or its id in hex.")]


def inspect_(snapshot: Snapshot, as_json: Json = False) -> None:
    """Show operators, states, types and files of any snapshot, also of Flink's own."""
    with errors(as_json):
        opened = open_snapshot(snapshot)
        if as_json:
            print_json(describe(opened))
        else:
            print_snapshot(opened)


def open_snapshot(snapshot: str) -> Checkpoint:
    """A path needs no deployment; what is no path is looked up in the catalog."""
    path = path_of(snapshot)
    return open_checkpoint(path, storage_root=storage_root()) if path else resolve(deployment(), snapshot)


def path_of(snapshot: str) -> str:
    """The absolute path that is meant, '' for an id."""
    if is_id(snapshot) and not Path(snapshot).exists():
        return ""
    return snapshot if ":" in snapshot and not Path(snapshot).exists() else str(Path(snapshot).absolute())


def export(
    snapshot: Snapshot,
    form: Annotated[str, typer.Option("--format", help="jsonl (typed JSON lines) or parquet.")] = "jsonl",
    state: State = None,
    operator: Operator = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="File (jsonl) or directory (parquet).")] = None,
) -> None:
    """Write every entry of a snapshot out as text or as Parquet; overwrites nothing."""
    with errors():
        if form not in ("jsonl", "parquet"):
            raise InvalidRequestError(f"format {form!r}: expected jsonl or parquet", kind="bad-format")
        opened = open_snapshot(snapshot)
        if operator is not None:
            opened = opened.select(operator)
        if form == "jsonl":
            _export_lines(opened, state, output)
            return
        if output is None:
            raise InvalidRequestError("parquet is written to a directory", kind="no-output", hint="add -o DIRECTORY")
        for path in export_parquet(opened, state, output):
            line(str(path))


def _export_lines(opened: Checkpoint, state: str | None, output: Path | None) -> None:
    lines = export_lines(opened, state)
    if output is None:
        for text in lines:
            sys.stdout.write(text + "\n")
        return
    with writing(output):
        target = output.open("x", encoding="utf-8")
    try:
        with writing(output), target:
            target.writelines(text + "\n" for text in lines)
    except BaseException:
        output.unlink()
        raise


def verify_(
    snapshot: Annotated[str | None, typer.Argument(help="<pipeline>/<id> or a path; all completed if absent.")] = None,
    pipeline: PipelineOption = None,
    read_data: Annotated[bool, typer.Option(help="Read every byte and count every entry.")] = True,
    as_json: Json = False,
) -> None:
    """Prove that snapshots are whole: files, sizes, checksums, counts, digests. Exit status 1 if not."""
    with errors(as_json):
        results = _verify_all(snapshot, pipeline, read_data)
    if as_json:
        print_json(results)
    else:
        _print_verified(results)
    if any(result.problems for result in results):
        raise typer.Exit(1)


def _verify_all(snapshot: str | None, pipeline: str | None, read_data: bool) -> list[Verification]:
    if snapshot and pipeline:
        raise InvalidRequestError(
            f"both the snapshot {snapshot} and the pipeline {pipeline} are given: expected one of them",
            kind="bad-target",
        )
    path = path_of(snapshot) if snapshot else ""
    if path:
        return [verify_at(path, own=False, read_data=read_data, storage_root=storage_root())]
    here = deployment()
    targets = _targets(here, snapshot, pipeline)
    with Progress(console=err, transient=True, disable=not err.is_terminal) as progress:
        return [
            verify_at(
                target,
                own=True,
                read_data=read_data,
                scratch=here.work_directory,
                storage_root=here.storage_root,
            )
            for target in progress.track(targets, description="verifying")
        ]


def _targets(here: Deployment, snapshot: str | None, pipeline: str | None) -> list[str]:
    if snapshot:
        return [completed_record(here, snapshot).directory]
    records = completed(here, check_pipeline(here, pipeline) if pipeline else None)
    return [r.directory for r in sorted(records, key=lambda r: (r.pipeline, r.checkpoint_id))]


def _print_verified(results: list[Verification]) -> None:
    for result in results:
        state = "DAMAGED" if result.problems else "whole"
        files = "file " if result.files == 1 else "files"
        amounts = (
            f"{count(result.files):>5} {files}  {size(result.size_bytes):>10}  {count(result.entries):>12} entries"
        )
        line(f"{state:<8}{amounts}  {result.directory}")
        for problem in result.problems:
            line(f"    {problem}")
    damaged = sum(bool(result.problems) for result in results)
    note(f"{len(results)} verified, {damaged} damaged")
