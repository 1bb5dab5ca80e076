"""A look at every row of the catalog: whether it holds what it may, and leads to rows that are there."""

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
"""Rows that are held in memory."""


@dataclass(frozen=True)
class RowFault:
    """What is wrong with one value of one row. ``pipeline`` and ``checkpoint_id`` are None where the row names none
    that can be read; ``row`` is what messages call it."""

    table: str
    row: str
    pipeline: str | None
    checkpoint_id: int | None
    column: str
    expected: str
    found: str


def check_rows(connection: Connection) -> tuple[int, list[RowFault]]:
    """How many rows there are, and every fault of them, table by table."""
    total, found = 0, list(_file_faults(connection))
    for table in METADATA.sorted_tables:
        rows = connection.execution_options(yield_per=_AT_ONCE).execute(select(table))
        for row in rows:
            total += 1
            values = row._asdict()
            found += [_of(table, values, fault) for fault in _value_faults(table, values)]
        found += [_of(table, values, fault) for values, fault in _dangling(connection, table)]
    found += [_of(LEASE, values, fault) for values, fault in _heads(connection)]
    found += [_of(LEASE, values, fault) for values, fault in _histories(connection, {f.pipeline for f in found})]
    return total, found


def _value_faults(table: Table, values: Mapping[str, Any]) -> Iterator[Fault]:
    of_columns = list(faults(table, values))
    yield from of_columns
    if table is QUALITY_RESULT and not of_columns:
        try:
            sentences(values)
        except CorruptStateError:
            yield Fault("sentences", "a JSON array of texts", json.dumps(values["sentences"])[:80])


def _dangling(connection: Connection, table: Table) -> Iterator[tuple[Mapping[str, Any], Fault]]:
    """Rows that lead to a row that is not there."""
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


def _heads(connection: Connection) -> Iterator[tuple[Mapping[str, Any], Fault]]:
    """Pipelines whose head is no checkpoint that ever completed, or that would give ids out again."""
    c = CHECKPOINT.c
    for lease in connection.execute(select(LEASE)).all():
        values = lease._asdict()
        of_pipeline = c.pipeline == values["pipeline"]
        if values["head"] is not None:
            there = select(c.state).where(of_pipeline, c.checkpoint_id == values["head"], c.state.in_(COMMITTED))
            if connection.execute(there).first() is None:
                yield values, Fault("head", "a checkpoint that completed", repr(values["head"]))
        newest = connection.execute(select(c.checkpoint_id).where(of_pipeline).order_by(c.checkpoint_id.desc())).first()
        ints = newest is not None and isinstance(newest[0], int) and isinstance(values["next_id"], int)
        if newest is not None and ints and newest[0] >= values["next_id"]:
            yield values, Fault("next_id", f"more than the newest id, {newest[0]}", str(values["next_id"]))


def _histories(connection: Connection, faulty: set[str | None]) -> Iterator[tuple[Mapping[str, Any], Fault]]:
    """Pipelines whose rows are each as they may be, and together are not. ``faulty``: pipelines that are left out."""
    for lease in connection.execute(select(LEASE).order_by(LEASE.c.pipeline)).all():
        if isinstance(lease.pipeline, str) and lease.pipeline not in faulty:
            rows = connection.execute(select(CHECKPOINT).where(CHECKPOINT.c.pipeline == lease.pipeline)).all()
            for violation in history_violations(to_head(lease), [to_record(row) for row in rows]):
                yield lease._asdict(), Fault("history", "a consistent history", violation)


def _file_faults(connection: Connection) -> Iterator[RowFault]:
    """What SQLite itself finds wrong with its file."""
    if connection.dialect.name != "sqlite":
        return
    for (sentence,) in connection.execute(text("PRAGMA integrity_check")).all():
        if sentence != "ok":
            yield RowFault("", "the file", None, None, "", "a whole database", str(sentence))


def _of(table: Table, values: Mapping[str, Any], fault: Fault) -> RowFault:
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
