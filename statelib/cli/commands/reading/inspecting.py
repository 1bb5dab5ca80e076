"""``statelib inspect`` and ``statelib export``: read snapshots, also those that Flink wrote."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from statelib.cli.ending import errors
from statelib.cli.named_snapshots import KeyType, Operator, Relocate, Snapshot, State, moves_of, open_snapshot, type_of
from statelib.cli.options import Json
from statelib.cli.paths import local_file
from statelib.cli.presenters.blocks import Block, Line, Note, in_utf8, present
from statelib.cli.presenters.console import drop_output, working
from statelib.cli.presenters.snapshot_document import describe, is_damaged
from statelib.cli.presenters.snapshot_tree import snapshot_view
from statelib.errors import InvalidRequestError
from statelib.savepoints.lines import LINE_FORMATS, export_all_lines, export_lines
from statelib.savepoints.opened import Checkpoint
from statelib.savepoints.operator_content import Skip, left_out
from statelib.savepoints.tables.line_order import in_java_order
from statelib.savepoints.tables.parquet_files import export_parquet, writing
from statelib.visible import visible_json


def inspect_(
    snapshot: Snapshot,
    counted: Annotated[
        bool, typer.Option("--count", help="Read all state, to count the entries that no manifest counts.")
    ] = False,
    *,
    relocate: Relocate = None,
    key_type: KeyType = None,
    as_json: Json = False,
) -> None:
    """Show the operators, states, types and files of a snapshot, also of one that Flink wrote."""
    with errors(as_json):
        opened = open_snapshot(snapshot, moves_of(relocate), type_of(key_type))
        description = describe(opened, counted=counted)
    present(description, snapshot_view(description), as_json)
    if is_damaged(description):
        raise typer.Exit(1)


def export(
    snapshot: Snapshot,
    form: Annotated[
        str, typer.Option("--format", help="typed-jsonl (lossless), jsonl (plain JSON) or parquet.")
    ] = "typed-jsonl",
    state: State = None,
    operator: Operator = None,
    output: Annotated[
        str | None, typer.Option("--output", "-o", help="File (jsonl) or directory (parquet) on this machine.")
    ] = None,
    *,
    everything: Annotated[
        bool, typer.Option("--all", help="Export operator state too. Not with --format parquet.")
    ] = False,
    ordered: Annotated[
        bool, typer.Option("--sorted/--unsorted", help="Sort the lines by their text, or keep the stored order.")
    ] = True,
    relocate: Relocate = None,
    key_type: KeyType = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="With --output: print the paths of the written files as one JSON document.")
    ] = False,
) -> None:
    """Write every entry of a snapshot as a line of text, or as a row of a Parquet file. No file is overwritten.

    With --all, state that cannot be written as text does not end the export: it is listed, and the exit status is 1."""
    skipped: list[str] = []
    with errors(as_json):
        _check_form(form)
        target = None if output is None else local_file(output, "--output")
        _check_output(form, target, everything, as_json)
        opened = open_snapshot(snapshot, moves_of(relocate), type_of(key_type))
        if operator is not None:
            opened = opened.select(operator)
        if form in LINE_FORMATS:
            lines = _lines(opened, state, form, skipped.append if everything else None)
            _write_lines(in_java_order(lines) if ordered else lines, target)
            files, missing = [] if target is None else [str(target)], [*skipped, *left_out(opened)]
        else:
            assert target is not None
            with working(f"exporting {opened.directory}"):
                files, missing = [str(path) for path in export_parquet(opened, state, target)], []
    document = {"files": files, "not_exported": missing}
    present(document, _export_view(files if form == "parquet" else [], missing), as_json)
    if skipped:
        raise typer.Exit(1)


def _check_form(form: str) -> None:
    if form not in (*LINE_FORMATS, "parquet"):
        raise InvalidRequestError(
            f"format {form!r}: expected {', '.join(LINE_FORMATS)} or parquet",
            kind="bad-format",
            hint="for CSV, use statelib query CHECKPOINT \"COPY (SELECT * FROM STATE) TO 'state.csv'\"",
        )


def _lines(opened: Checkpoint, state: str | None, form: str, skip: Skip | None) -> Iterator[str]:
    """Return the lines of keyed state; with ``skip`` also those of operator state."""
    if skip is None:
        return export_lines(opened, state, None, LINE_FORMATS[form])
    return export_all_lines(opened, state, None, LINE_FORMATS[form], skip)


def _export_view(files: list[str], missing: list[str]) -> Iterator[Block]:
    for path in files:
        yield Line(path)
    for text in missing:
        yield Note(f"not exported: {text}")


def _check_output(form: str, output: Path | None, everything: bool, as_json: bool) -> None:
    if form == "parquet" and everything:
        raise InvalidRequestError(
            "--all goes with lines: tables hold keyed state only", kind="bad-format", hint="--format typed-jsonl"
        )
    if form == "parquet" and output is None:
        raise InvalidRequestError("parquet is written to a directory", kind="no-output", hint="add -o DIRECTORY")
    if as_json and output is None:
        raise InvalidRequestError(
            "the lines are JSON already: --json prints the paths of files", kind="no-output", hint="add -o FILE"
        )


def _write_lines(lines: Iterator[str], output: Path | None) -> None:
    if output is None:
        shown = visible_json if sys.stdout.isatty() else str  # a terminal would obey control characters in values
        try:
            stdout = in_utf8()
            for text in lines:
                stdout.write(shown(text) + "\n")
            stdout.flush()
        except BrokenPipeError:  # the reader, such as head, has enough
            drop_output()
            raise typer.Exit from None
        return
    with writing(output):
        target = output.open("x", encoding="utf-8")
    try:
        with writing(output), target:
            target.writelines(text + "\n" for text in lines)
    except BaseException:
        output.unlink()
        raise
