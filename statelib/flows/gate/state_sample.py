"""Read the entries of a state as a table for the pipeline's checks: all of them, or those of some key groups.

The key group of a key is a hash of the key. Whole key groups are therefore a fair sample of the keys, and the same key
groups of two checkpoints contain the same keys.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from statelib.definition.frame_columns import frame_columns
from statelib.definition.framed_state import framed
from statelib.model.amounts import amount
from statelib.model.state import StateStatistics
from statelib.quality.facts import StateSample
from statelib.savepoints.opened import Checkpoint
from statelib.savepoints.tables.state_table import StateTable, state_table


@dataclass(frozen=True)
class SampledKeyGroups:
    """The key groups to read, None for all of them, and the maximum number of entries."""

    key_groups: tuple[int, ...] | None
    most_rows: int


def choose(statistics: StateStatistics, most_rows: int) -> SampledKeyGroups:
    """Return all key groups if they have at most ``most_rows`` entries; otherwise some, evenly spread, at least one."""
    entries = statistics.entries
    total = int(entries.sum())
    if total <= most_rows:
        return SampledKeyGroups(None, most_rows)
    held = np.flatnonzero(entries)
    wanted = max(int(len(held) * most_rows / total), 1)
    return SampledKeyGroups(tuple(int(held[i * len(held) // wanted]) for i in range(wanted)), most_rows)


def sample(
    opened: Checkpoint, state: str, key: tuple[str, ...], chosen: SampledKeyGroups, scratch: str | None = None
) -> StateSample:
    """Return the entries of the chosen key groups as a sample. A single key group with more than ``most_rows`` entries
    is cut, and the sample's note says so.

    Raises as :func:`~statelib.savepoints.tables.state_table.state_table` and as the formats."""
    table = state_table(opened, state)
    columns = frame_columns(key, table.schema.key_type, table.descriptor)
    empty = framed(table.arrow_schema().empty_table(), columns)
    read, rows, cut = [empty], 0, False
    for whole in table.entries(chosen.key_groups, scratch):
        part = whole.slice(0, chosen.most_rows - rows)
        read.append(framed(part, columns))
        rows += len(part)
        if rows == chosen.most_rows:
            cut = True
            break
    total = _entries(opened, state, rows)
    keys = tuple(column.name for column in columns if column.is_key)
    note = "" if rows == total else _note(table, chosen, rows, total, cut=cut and chosen.key_groups is not None)
    return StateSample(state, pa.concat_tables(read), keys, total, chosen.key_groups, note)


def _entries(opened: Checkpoint, state: str, rows: int) -> int:
    """Return the number of entries of the whole state; if the manifest does not have it, ``rows``, the number that was
    read."""
    if opened.manifest is None or opened.manifest.deltas:
        return rows
    names = [descriptor.name for descriptor in opened.manifest.schema.states]
    return opened.manifest.statistics[names.index(state)].total_entries


def _note(table: StateTable, chosen: SampledKeyGroups, rows: int, total: int, *, cut: bool) -> str:
    groups = len(chosen.key_groups or ())
    more = ", the last of them in part" if cut else ""
    return (
        f"judged by a sample of {rows:,} of {amount(total, 'entry')} "
        f"({groups} of {table.schema.max_parallelism} key groups{more})"
    )
