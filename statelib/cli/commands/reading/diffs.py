"""``statelib checkpoints diff``: what became of the state between two snapshots."""

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import asdict
from typing import Annotated

import pyarrow as pa
import typer

from statelib.cli.commands.reading.snapshots import Snapshot, State, open_snapshot
from statelib.cli.elsewhere import KeyType, Relocate, moves_of, type_of
from statelib.cli.output import Column, Json, count, errors, line, note, print_json, table
from statelib.cli.places import local_file, path_of
from statelib.errors import InvalidRequestError
from statelib.formats.text.plain_text import texts
from statelib.model.amounts import amount
from statelib.model.types import StateType
from statelib.savepoints.diff.output import ChangeFiles, ChangeSample
from statelib.savepoints.diff.states import Diff, StateDiff
from statelib.savepoints.opened import Checkpoint


def diff(
    before: Snapshot,
    after: Snapshot,
    *,
    state: State = None,
    operator: Annotated[
        str | None,
        typer.Option("--operator", help="Only this operator: its uid, or its id in hex; A=B where the two differ."),
    ] = None,
    limit: Annotated[int, typer.Option("--limit", help="Show so many differing entries of each state.")] = 0,
    output: Annotated[
        str | None,
        typer.Option("--output", "-o", help="Directory of this machine for one Parquet file of differences per state."),
    ] = None,
    exit_code: Annotated[bool, typer.Option("--exit-code", help="Exit status 1 if the snapshots differ.")] = False,
    relocate: Relocate = None,
    key_type: KeyType = None,
    as_json: Json = False,
) -> None:
    """Compare two snapshots state by state; what both manifests prove to be equal is not read."""
    with errors(as_json):
        moves, keys = moves_of(relocate), type_of(key_type)
        named = zip((before, after), _operators(operator), strict=True)
        sides = [_opened(snapshot, name, moves, keys) for snapshot, name in named]
        sample = ChangeSample(limit)
        with ChangeFiles(local_file(output, "--output")) if output else nullcontext() as files:

            def each(name: str, rows: pa.Table) -> None:
                sample.add(name, rows)
                if files:
                    files.add(name, rows)

            compared = Diff(sides[0], sides[1])
            found = compared.read(() if state is None else (state,), each)
    written = [str(path) for path in files.paths] if files else []
    if as_json:
        _print_json(compared, found, sample, written)
    else:
        _print(compared, found, sample, written)
    if exit_code and any(told.different for told in found):
        raise typer.Exit(1)


def _operators(text: str | None) -> tuple[str | None, str | None]:
    """The operator of either side."""
    before, equals, after = (text or "").partition("=")
    if equals and not (before and after):
        raise InvalidRequestError(
            f"operator {text!r}: expected <before>=<after>, or one name for both", kind="bad-operator"
        )
    return before or None, after or before or None


def _opened(snapshot: str, operator: str | None, moves: Mapping[str, str], key_type: StateType | None) -> Checkpoint:
    """What the catalog knows lies where it was written; the moves are of sides given by their paths."""
    opened = open_snapshot(snapshot, moves if path_of(snapshot) else None, key_type)
    return opened if operator is None else opened.select(operator)


def _print_json(compared: Diff, found: tuple[StateDiff, ...], sample: ChangeSample, written: list[str]) -> None:
    states = [
        asdict(told) | {"different": told.different, "sample": _entries(sample.tables.get(told.name))} for told in found
    ]
    keys_before, keys_after = compared.keys
    print_json(
        {
            "before": compared.before.directory,
            "after": compared.after.directory,
            "keys_before": keys_before,
            "keys_after": keys_after,
            "states": states,
            "files": written,
        }
    )


def _entries(rows: pa.Table | None) -> list[dict[str, str]]:
    """Differing entries as text, column by column."""
    if rows is None:
        return []
    columns = {name: texts(rows[name].combine_chunks()) for name in rows.column_names if name != "change"}
    columns["change"] = rows["change"].to_pylist()
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _print(compared: Diff, found: tuple[StateDiff, ...], sample: ChangeSample, written: list[str]) -> None:
    line(f"before  {compared.before.directory}")
    line(f"after   {compared.after.directory}")
    keys_before, keys_after = map(count, compared.keys)
    line(f"keys    {keys_before} before, {keys_after} after")
    table("States", _COLUMNS, [_row(told) for told in found])
    for told in found:
        if told.incomparable:
            line(f"{told.name}: not comparable, {told.incomparable}")
    for name, rows in sample.tables.items():
        entries = _entries(rows)
        if entries:
            shown = ["change", *(c for c in rows.column_names if c != "change")]
            columns = [Column(c.replace("_", " "), wraps=c in ("before", "after")) for c in shown]
            table(name, columns, [[entry[c] for c in shown] for entry in entries])
    for path in written:
        line(path)
    different = sum(told.different for told in found)
    note(f"{count(different)} of {amount(len(found), 'state')} differ")


_COLUMNS = (
    Column("state"), Column(""), Column("entries before", right=True), Column("after", right=True),
    Column("added", right=True), Column("removed", right=True), Column("changed", right=True),
    Column("key groups read", right=True), Column("skipped", right=True),
)  # fmt: skip


def _row(told: StateDiff) -> list[str]:
    amounts = (told.entries_before, told.entries_after, told.added, told.removed, told.changed)
    return [
        told.name, _verdict(told), *map(count, amounts), count(told.key_groups_read), count(told.key_groups_skipped)
    ]  # fmt: skip


def _verdict(told: StateDiff) -> str:
    if told.before_type is None:
        return "only after"
    if told.after_type is None:
        return "only before"
    if told.incomparable:
        return "other type"
    return "differs" if told.different else "equal"
