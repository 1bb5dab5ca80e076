"""``statelib inspect | export | verify``: read snapshots, ours and Flink's."""

import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated

import typer

from statelib.cli import completion
from statelib.cli.elsewhere import KeyType, Relocate, moves_of, type_of
from statelib.cli.output import Json, errors, line, note, print_json, working
from statelib.cli.places import local_file, path_of, taken_for_id
from statelib.cli.presenters.described import describe, is_damaged
from statelib.cli.presenters.trees import print_tree
from statelib.errors import InvalidRequestError
from statelib.flows.views.inspection import resolve
from statelib.flows.wiring import begun_deployment, storage_root
from statelib.model.types import StateType
from statelib.savepoints.lines import LINE_FORMATS, Skip, export_all_lines, export_lines
from statelib.savepoints.opened import Checkpoint, open_checkpoint
from statelib.savepoints.operator_content import left_out
from statelib.savepoints.tables.line_order import in_java_order
from statelib.savepoints.tables.parquet_files import export_parquet, writing
from statelib.visible import visible_json

Snapshot = Annotated[
    str,
    typer.Argument(help="<pipeline>/<id>, or the path of a snapshot directory.", autocompletion=completion.snapshots),
]
State = Annotated[str | None, typer.Option("--state", help="Only this state.")]
Operator = Annotated[str | None, typer.Option("--operator", help="Only this operator: its uid, or its id in hex.")]


def inspect_(
    snapshot: Snapshot,
    counted: Annotated[bool, typer.Option("--count", help="Read all state to count what no manifest tells.")] = False,
    *,
    relocate: Relocate = None,
    key_type: KeyType = None,
    as_json: Json = False,
) -> None:
    """Show operators, states, types and files of any snapshot, also of Flink's own."""
    with errors(as_json):
        opened = open_snapshot(snapshot, moves_of(relocate), type_of(key_type))
        described = describe(opened, counted=counted)
    if as_json:
        print_json(described)
    else:
        print_tree(described)
    if is_damaged(described):
        raise typer.Exit(1)


def open_snapshot(
    snapshot: str, moves: Mapping[str, str] | None = None, key_type: StateType | None = None
) -> Checkpoint:
    """A path needs no deployment; what is no path is looked up in the catalog, and lies where that says."""
    path = path_of(snapshot)
    if path:
        return open_checkpoint(path, storage_root=storage_root(), relocate=absolute(moves), key_type=key_type)
    if moves:
        raise InvalidRequestError(
            f"--relocate with {snapshot}, which the catalog knows: expected the path of a snapshot that was moved",
            kind="bad-relocation",
        )
    here = begun_deployment()
    with taken_for_id(snapshot):
        return resolve(here, snapshot)


def absolute(moves: Mapping[str, str] | None) -> dict[str, str]:
    """New places as they are meant from here."""
    return {old: new if ":" in new else os.path.abspath(new) for old, new in (moves or {}).items()}


def export(
    snapshot: Snapshot,
    form: Annotated[
        str, typer.Option("--format", help="typed-jsonl (lossless), jsonl (plain JSON) or parquet.")
    ] = "typed-jsonl",
    state: State = None,
    operator: Operator = None,
    output: Annotated[
        str | None, typer.Option("--output", "-o", help="File (jsonl) or directory (parquet) of this machine.")
    ] = None,
    *,
    everything: Annotated[bool, typer.Option("--all", help="Operator state too (lines only).")] = False,
    ordered: Annotated[
        bool, typer.Option("--sorted/--unsorted", help="Lines in the order of their text, or as they are stored.")
    ] = True,
    relocate: Relocate = None,
    key_type: KeyType = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="With --output: print which files were written as one JSON document.")
    ] = False,
) -> None:
    """Write every entry of a snapshot out as text or as Parquet; overwrites nothing.

    --all goes on past state that cannot be written as text: it is listed, and the exit status is 1."""
    skipped: list[str] = []
    with errors(as_json):
        if form not in (*LINE_FORMATS, "parquet"):
            raise InvalidRequestError(
                f"format {form!r}: expected {', '.join(LINE_FORMATS)} or parquet", kind="bad-format"
            )
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
    if as_json:
        print_json({"files": files, "not_exported": missing})
    else:
        _print_exported(files if form == "parquet" else [], missing)
    if skipped:
        raise typer.Exit(1)


def _lines(opened: Checkpoint, state: str | None, form: str, skip: Skip | None) -> Iterator[str]:
    """The lines of keyed state; with ``skip`` also those of operator state."""
    if skip is None:
        return export_lines(opened, state, None, LINE_FORMATS[form])
    return export_all_lines(opened, state, None, LINE_FORMATS[form], skip)


def _print_exported(files: list[str], missing: list[str]) -> None:
    for path in files:
        line(path)
    for told in missing:
        note(f"not exported: {told}")


def _check_output(form: str, output: Path | None, everything: bool, as_json: bool) -> None:
    if form == "parquet" and everything:
        raise InvalidRequestError(
            "--all goes with lines: tables hold keyed state only", kind="bad-format", hint="--format typed-jsonl"
        )
    if form == "parquet" and output is None:
        raise InvalidRequestError("parquet is written to a directory", kind="no-output", hint="add -o DIRECTORY")
    if as_json and output is None:
        raise InvalidRequestError(
            "the lines are JSON already: --json tells of files", kind="no-output", hint="add -o FILE"
        )


def _write_lines(lines: Iterator[str], output: Path | None) -> None:
    if output is None:
        shown = visible_json if sys.stdout.isatty() else str  # a terminal would obey what a value holds
        for text in lines:
            sys.stdout.write(shown(text) + "\n")
        return
    with writing(output):
        target = output.open("x", encoding="utf-8")
    try:
        with writing(output), target:
            target.writelines(text + "\n" for text in lines)
    except BaseException:
        output.unlink()
        raise
