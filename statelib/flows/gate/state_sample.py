"""Entries of a state as the table that checks speak of: all of them, or those of some key groups.

A key's group is a hash of the key, so that whole key groups are a fair sample of the keys, and the same key
groups of two checkpoints are the same keys.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statelib.definition.frame_columns import FrameColumn, frame_columns
from statelib.model.amounts import amount
from statelib.model.state import StateStatistics
from statelib.quality.facts import StateSample
from statelib.savepoints.opened import Checkpoint
from statelib.savepoints.tables.state_table import StateTable, state_table


@dataclass(frozen=True)
class Chosen:
    """Key groups to read, None = all of them, and at most how many entries."""

    key_groups: tuple[int, ...] | None
    most_rows: int


def choose(statistics: StateStatistics, most_rows: int) -> Chosen:
    """All key groups where they have no more entries than that; else some, evenly spread, one at least."""
    entries = statistics.entries
    total = int(entries.sum())
    if total <= most_rows:
        return Chosen(None, most_rows)
    held = np.flatnonzero(entries)
    wanted = max(int(len(held) * most_rows / total), 1)
    return Chosen(tuple(int(held[i * len(held) // wanted]) for i in range(wanted)), most_rows)


def sample(
    opened: Checkpoint, state: str, key: tuple[str, ...], chosen: Chosen, scratch: str | None = None
) -> StateSample:
    """Read what was chosen. A single key group that is larger than ``most_rows`` is cut there, and the note says so.

    Raises as :func:`~statelib.savepoints.tables.state_table.state_table`, and what the formats raise."""
    table = state_table(opened, state)
    columns = frame_columns(key, table.schema.key_type, table.descriptor)
    empty = _framed(table.arrow_schema().empty_table(), columns)
    read, rows, cut = [empty], 0, False
    for part in _parts(table, chosen, scratch):
        kept = part.slice(0, chosen.most_rows - rows)
        read.append(_framed(kept, columns))
        rows += len(kept)
        if rows == chosen.most_rows:
            cut = True
            break
    total = _entries(opened, state, rows)
    keys = tuple(column.name for column in columns if column.is_key)
    note = "" if rows == total else _note(table, chosen, rows, total, cut=cut and chosen.key_groups is not None)
    return StateSample(state, pa.concat_tables(read), keys, total, chosen.key_groups, note)


def _parts(table: StateTable, chosen: Chosen, scratch: str | None) -> Iterator[pa.Table]:
    wanted = table.arrow_schema().names
    for split in table.splits(chosen.key_groups, None, 1):
        yield from table.read(split, wanted, scratch)


def _entries(opened: Checkpoint, state: str, rows: int) -> int:
    """Of the whole state; what was read where no manifest tells."""
    if opened.manifest is None:
        return rows
    names = [descriptor.name for descriptor in opened.manifest.schema.states]
    return opened.manifest.statistics[names.index(state)].total_entries


def _note(table: StateTable, chosen: Chosen, rows: int, total: int, *, cut: bool) -> str:
    groups = len(chosen.key_groups or ())
    more = ", the last of them in part" if cut else ""
    return (
        f"judged by a sample of {rows:,} of {amount(total, 'entry')} "
        f"({groups} of {table.schema.max_parallelism} key groups{more})"
    )


def _framed(table: pa.Table, columns: Sequence[FrameColumn]) -> pa.Table:
    return pa.table({column.name: _values(table, column) for column in columns})


def _values(table: pa.Table, column: FrameColumn) -> pa.ChunkedArray:
    found = table[column.source]
    for index in column.path:
        found = pc.struct_field(found, [index])
    if column.average:
        total, number = (pc.struct_field(found, [i]).cast(pa.float64()) for i in (0, 1))
        found = pc.if_else(pc.equal(number, 0), None, pc.divide(total, number))
    return found if isinstance(found, pa.ChunkedArray) else pa.chunked_array([found])
