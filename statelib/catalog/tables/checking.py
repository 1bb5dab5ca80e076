"""Check every row of the catalog: its values are allowed, and the rows that it refers to exist."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, ForeignKeyConstraint, Table, select, text

from statelib.catalog.tables.row_checks import Fault, faults, row_name
from statelib.catalog.tables.rows import to_head, to_record
from statelib.catalog.tables.schema import CHECKPOINT, LEASE, METADATA, QUALITY_RESULT
from statelib.catalog.tables.verdicts import sentences
from statelib.coordinator.checkpoint_lifecycle import COMMITTED
from statelib.coordinator.invariants import history_violations
from statelib.errors import CorruptStateError

_AT_ONCE = 10_000
"""How many rows are held in memory at once."""


@dataclass(frozen=True)
class RowFault:
    """One wrong value, and the row that holds it. ``pipeline`` and ``checkpoint_id`` are None if the row has no such
    column, or its value is unreadable. ``row`` is the name of the row in messages."""

    table: str
    row: str
    pipeline: str | None
    checkpoint_id: int | None
    column: str
    expected: str
    found: str


def check_rows(connection: Connection) -> tuple[int, list[RowFault]]:
    """Return the number of rows in all tables, and every fault in them, table by table."""
    total, row_faults = 0, list(_file_faults(connection))
    for table in METADATA.sorted_tables:
        rows = connection.execution_options(yield_per=_AT_ONCE).execute(select(table))
        for row in rows:
            total += 1
            values = row._asdict()
            row_faults += [_row_fault(table, values, fault) for fault in _value_faults(table, values)]
        row_faults += [_row_fault(table, values, fault) for values, fault in _dangling(connection, table)]
    row_faults += [_row_fault(LEASE, values, fault) for values, fault in _lease_faults(connection)]
    damaged = {fault.pipeline for fault in row_faults}
    row_faults += [_row_fault(LEASE, values, fault) for values, fault in _history_faults(connection, damaged)]
    return total, row_faults


def _value_faults(table: Table, values: Mapping[str, Any]) -> Iterator[Fault]:
    column_faults = list(faults(table, values))
    yield from column_faults
    if table is QUALITY_RESULT and not column_faults:
        try:
            sentences(values)
        except CorruptStateError:
            yield Fault("sentences", "a JSON array of texts", json.dumps(values["sentences"])[:80])


def _dangling(connection: Connection, table: Table) -> Iterator[tuple[Mapping[str, Any], Fault]]:
    """Yield each row that refers to a row that does not exist, with the fault."""
    for constraint in table.constraints:
        if not isinstance(constraint, ForeignKeyConstraint):
            continue
        other = constraint.referred_table.alias()
        pairs = [(element.parent, other.c[element.column.name]) for element in constraint.elements]
        joined = table.outerjoin(other, *[_all_equal(pairs)])
        for row in connection.execute(select(table).select_from(joined).where(pairs[0][1].is_(None))).all():
            values = row._asdict()
            column = pairs[-1][0].name
            yield values, Fault(column, f"a row of {constraint.referred_table.name}", repr(values[column])[:80])


def _all_equal(pairs: list[tuple[Any, Any]]) -> Any:
    condition = pairs[0][0] == pairs[0][1]
    for own, other in pairs[1:]:
        condition &= own == other
    return condition


def _lease_faults(connection: Connection) -> Iterator[tuple[Mapping[str, Any], Fault]]:
    """Yield each lease whose head never completed, or whose next id is used already, with the fault."""
    c = CHECKPOINT.c
    for lease in connection.execute(select(LEASE)).all():
        values = lease._asdict()
        of_pipeline = c.pipeline == values["pipeline"]
        if values["head"] is not None:
            head_row = select(c.state).where(of_pipeline, c.checkpoint_id == values["head"], c.state.in_(COMMITTED))
            if connection.execute(head_row).first() is None:
                yield values, Fault("head", "a checkpoint that completed", repr(values["head"]))
        newest = connection.execute(select(c.checkpoint_id).where(of_pipeline).order_by(c.checkpoint_id.desc())).first()
        are_integers = newest is not None and isinstance(newest[0], int) and isinstance(values["next_id"], int)
        if newest is not None and are_integers and newest[0] >= values["next_id"]:
            yield values, Fault("next_id", f"more than the newest id, {newest[0]}", str(values["next_id"]))


def _history_faults(connection: Connection, damaged: set[str | None]) -> Iterator[tuple[Mapping[str, Any], Fault]]:
    """Yield each lease of a pipeline whose rows contradict each other, with the fault. Pipelines in ``damaged``, which
    have wrong values in single rows, are left out."""
    for lease in connection.execute(select(LEASE).order_by(LEASE.c.pipeline)).all():
        if isinstance(lease.pipeline, str) and lease.pipeline not in damaged:
            rows = connection.execute(select(CHECKPOINT).where(CHECKPOINT.c.pipeline == lease.pipeline)).all()
            for violation in history_violations(to_head(lease), [to_record(row) for row in rows]):
                yield lease._asdict(), Fault("history", "a consistent history", violation)


def _file_faults(connection: Connection) -> Iterator[RowFault]:
    """Yield the problems that SQLite's own integrity check reports."""
    if connection.dialect.name != "sqlite":
        return
    for (sentence,) in connection.execute(text("PRAGMA integrity_check")).all():
        if sentence != "ok":
            yield RowFault("", "the file", None, None, "", "a whole database", str(sentence))


def _row_fault(table: Table, values: Mapping[str, Any], fault: Fault) -> RowFault:
    pipeline, number = values.get("pipeline"), values.get("checkpoint_id")
    return RowFault(
        table.name,
        row_name(table, values),
        pipeline if isinstance(pipeline, str) else None,
        number if isinstance(number, int) else None,
        fault.column,
        fault.expected,
        fault.found,
    )
