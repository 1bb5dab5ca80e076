"""``statelib checkpoints diff``: compare the state of two snapshots."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from typing import Annotated, Any

import pyarrow as pa
import typer

from statelib.cli.ending import errors
from statelib.cli.named_snapshots import KeyType, Relocate, Snapshot, State, moves_of, open_snapshot, type_of
from statelib.cli.options import Json
from statelib.cli.paths import local_file, path_of
from statelib.cli.presenters.blocks import Block, Fields, Line, Note, TableColumn, TextTable, present
from statelib.cli.presenters.differences import differences_table
from statelib.cli.presenters.values import count
from statelib.errors import InvalidRequestError
from statelib.formats.text.plain_text import texts
from statelib.model.amounts import amount
from statelib.model.types import StateType
from statelib.savepoints.diff.output import ChangeFiles, ChangeSample
from statelib.savepoints.diff.states import Diff, StateDiff
from statelib.savepoints.opened import Checkpoint


@dataclass(frozen=True)
class _Result:
    """A finished comparison: the difference per state, a sample of differing entries, and the files written."""

    snapshots: Diff
    states: Sequence[StateDiff]
    sample: ChangeSample
    files: list[str]


def diff(
    before: Snapshot,
    after: Snapshot,
    *,
    state: State = None,
    operator: Annotated[
        str | None,
        typer.Option("--operator", help="Only this operator: its uid, or its id in hex; A=B if the two differ."),
    ] = None,
    limit: Annotated[int, typer.Option("--limit", help="Show this many differing entries per state.")] = 0,
    output: Annotated[
        str | None,
        typer.Option(
            "--output", "-o", help="Directory on this machine for Parquet files of the differences, one file per state."
        ),
    ] = None,
    exit_code: Annotated[bool, typer.Option("--exit-code", help="Exit status 1 if the snapshots differ.")] = False,
    relocate: Relocate = None,
    key_type: KeyType = None,
    as_json: Json = False,
) -> None:
    """Compare two snapshots state by state. Parts that both manifests prove to be equal are not read."""
    with errors(as_json):
        moves, keys = moves_of(relocate), type_of(key_type)
        named = zip((before, after), _operators(operator), strict=True)
        sides = [_opened(snapshot, name, moves, keys) for snapshot, name in named]
        sample = ChangeSample(limit)
        with ChangeFiles(local_file(output, "--output")) if output else nullcontext() as files:

            def collect(name: str, rows: pa.Table) -> None:
                sample.add(name, rows)
                if files:
                    files.add(name, rows)

            snapshots = Diff(sides[0], sides[1])
            states = snapshots.read(() if state is None else (state,), collect)
    result = _Result(snapshots, states, sample, [str(path) for path in files.paths] if files else [])
    present(_document(result), _view(result), as_json)
    if exit_code and any(state.different for state in result.states):
        raise typer.Exit(1)


def _operators(text: str | None) -> tuple[str | None, str | None]:
    """Return the operator of the earlier snapshot and that of the later one."""
    before, equals, after = (text or "").partition("=")
    if equals and not (before and after):
        raise InvalidRequestError(
            f"operator {text!r}: expected <before>=<after>, or one name for both", kind="bad-operator"
        )
    return before or None, after or before or None


def _opened(snapshot: str, operator: str | None, moves: Mapping[str, str], key_type: StateType | None) -> Checkpoint:
    """Open one side. The moves concern sides that are given by a path; the catalog has the places of the others."""
    opened = open_snapshot(snapshot, moves if path_of(snapshot) else None, key_type)
    return opened if operator is None else opened.select(operator)


def _document(result: _Result) -> dict[str, Any]:
    states = [
        asdict(state) | {"different": state.different, "sample": _entries(result.sample.tables.get(state.name))}
        for state in result.states
    ]
    keys_before, keys_after = result.snapshots.keys
    return {
        "before": result.snapshots.before.directory,
        "after": result.snapshots.after.directory,
        "keys_before": keys_before,
        "keys_after": keys_after,
        "states": states,
        "files": result.files,
    }


def _entries(rows: pa.Table | None) -> list[dict[str, str]]:
    """Return differing entries as text, a dictionary by column name per entry."""
    if rows is None:
        return []
    columns = {name: texts(rows[name].combine_chunks()) for name in rows.column_names if name != "change"}
    columns["change"] = rows["change"].to_pylist()
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _view(result: _Result) -> Iterator[Block]:
    snapshots = result.snapshots
    keys_before, keys_after = map(count, snapshots.keys)
    yield Fields(
        [
            ("before", snapshots.before.directory),
            ("after", snapshots.after.directory),
            ("keys", f"{keys_before} before, {keys_after} after"),
        ],
        label_width=7,
    )
    yield TextTable("States", _COLUMNS, [_row(state) for state in result.states])
    for state in result.states:
        if state.incomparable:
            yield Line(f"{state.name}: not comparable, {state.incomparable}")
    for name, rows in result.sample.tables.items():
        entries = _entries(rows)
        if entries:
            shown = ["change", *(c for c in rows.column_names if c != "change")]
            yield differences_table(name, [{c: entry[c] for c in shown} for entry in entries])
    for path in result.files:
        yield Line(path)
    different = sum(state.different for state in result.states)
    verb = "differs" if different == 1 else "differ"
    yield Note(f"{count(different)} of {amount(len(result.states), 'state')} {verb}")


_COLUMNS = (
    TableColumn("state"), TableColumn(""), TableColumn("entries before", right=True), TableColumn("after", right=True),
    TableColumn("added", right=True), TableColumn("removed", right=True), TableColumn("changed", right=True),
    TableColumn("key groups read", right=True), TableColumn("skipped", right=True),
)  # fmt: skip


def _row(state: StateDiff) -> list[str]:
    numbers = (
        state.entries_before, state.entries_after, state.added, state.removed, state.changed,
        state.key_groups_read, state.key_groups_skipped,
    )  # fmt: skip
    return [state.name, _verdict(state), *map(count, numbers)]


def _verdict(state: StateDiff) -> str:
    if state.before_type is None:
        return "only after"
    if state.after_type is None:
        return "only before"
    if state.incomparable:
        return "other type"
    return "differs" if state.different else "equal"
