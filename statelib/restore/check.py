"""Proof that what was read is what was written: counts and digests, key group by key group."""

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing

import numpy as np

from statelib.backends.distinct_keys import KeyCounter
from statelib.backends.entries import add_entries, check_loaded_rows
from statelib.backends.keyed import KeyedStateBackend
from statelib.errors import CorruptStateError, InvalidRequestError
from statelib.formats.keyed.group_windows import GroupWindows, LargeGroup, Window
from statelib.model.amounts import number_of
from statelib.model.key_groups import KeyGroupRange, prefix_width
from statelib.model.state import KeyCounts, KeyedStateSchema, StateStatistics, empty_statistics
from statelib.restore.plan import RestoreSource
from statelib.serializers.rows import StateRows


class Tally:
    """Statistics of the entries that pass by, compared at the end with those recorded.

    ``key_groups``: those that are read from the source. Nothing is counted for a source without
    recorded statistics."""

    def __init__(self, source: RestoreSource, key_groups: KeyGroupRange) -> None:
        self._schema = source.schema
        self._range = key_groups
        self._width = prefix_width(source.schema.max_parallelism)
        self.expected = expected_statistics(source, key_groups)
        self._seen = [empty_statistics(key_groups) for _ in source.schema.states]

    def add(self, state: int, rows: StateRows) -> None:
        """Raises CorruptStateError (``foreign-key-group``) for an entry outside the key groups."""
        check_loaded_rows(self._schema.states[state].name, rows, self._schema, self._range)
        if self.expected is not None and len(rows):
            self._seen[state] = add_entries(self._seen[state], rows, self._width, 1)

    def check(self) -> None:
        """Raise CorruptStateError (``restore-mismatch``) naming the first state and key group that differ."""
        if self.expected is not None:
            check_statistics(self._schema, self.expected, tuple(self._seen))


def check_content(backend: KeyedStateBackend) -> None:
    """Read every entry of a restored backend and compare with the statistics it keeps.

    A restore that went on with RocksDB's files trusts what their manifest says; this is the proof.
    Raises CorruptStateError (``restore-mismatch``)."""
    scanned = ((i, rows) for i, d in enumerate(backend.schema.states) for rows in backend.scan(d.name))
    check_statistics(
        backend.schema, backend.statistics(), count_entries(backend.schema, backend.key_group_range, scanned)
    )


def count_keys(backend: KeyedStateBackend) -> KeyCounts:
    """The distinct keys of a live backend, of which every entry is read, all states side by side."""
    counter = KeyCounter(backend.schema)
    with ExitStack() as opened:
        scans = [opened.enter_context(closing(backend.scan(state.name))) for state in backend.schema.states]
        for part in GroupWindows(backend.schema, backend.key_group_range, scans):
            for index, rows in _rows_of(part):
                counter.add(index, rows)
            counter.finish_part()
    return counter.counts(backend.key_group_range)


def _rows_of(part: Window | LargeGroup) -> Iterator[tuple[int, StateRows]]:
    """Entries with the numbers of their states."""
    if isinstance(part, Window):
        yield from ((index, rows) for index, (rows, _) in enumerate(part.states))
    else:
        yield from ((index, rows) for index, pieces in enumerate(part.states) for rows, _ in pieces)


def count_entries(
    schema: KeyedStateSchema, key_groups: KeyGroupRange, entries: Iterable[tuple[int, StateRows]]
) -> tuple[StateStatistics, ...]:
    """Statistics of the entries, each chunk with the number of its state in ``schema``.

    Raises CorruptStateError (``foreign-key-group``) for an entry outside the key groups."""
    width = prefix_width(schema.max_parallelism)
    found = [empty_statistics(key_groups) for _ in schema.states]
    for state, rows in entries:
        check_loaded_rows(schema.states[state].name, rows, schema, key_groups)
        found[state] = add_entries(found[state], rows, width, 1)
    return tuple(found)


def expected_statistics(source: RestoreSource, key_groups: KeyGroupRange) -> tuple[StateStatistics, ...] | None:
    """The source's recorded statistics, cut to ``key_groups``; None where none were recorded."""
    if source.statistics is None:
        return None
    if len(source.statistics) != len(source.schema.states):
        raise InvalidRequestError(
            f"statistics of {number_of(len(source.statistics), 'state')} for a schema of {len(source.schema.states)}",
            kind="bad-statistics",
        )
    return tuple(cut_statistics(s, key_groups) for s in source.statistics)


def cut_statistics(statistics: StateStatistics, key_groups: KeyGroupRange) -> StateStatistics:
    """The part of the key groups; InvalidRequestError (``bad-statistics``) unless all are covered."""
    covered = statistics.key_group_range
    if len(key_groups) and (key_groups.start < covered.start or key_groups.end > covered.end):
        raise InvalidRequestError(
            f"statistics of key groups {covered} do not cover the key groups {key_groups}", kind="bad-statistics"
        )
    cut = slice(key_groups.start - covered.start, key_groups.end + 1 - covered.start)
    return StateStatistics(key_groups, statistics.entries[cut], statistics.digests[cut])


def check_statistics(
    schema: KeyedStateSchema, expected: tuple[StateStatistics, ...], found: tuple[StateStatistics, ...]
) -> None:
    """Raise CorruptStateError (``restore-mismatch``) unless both describe the same entries."""
    for descriptor, want, have in zip(schema.states, expected, found, strict=True):
        wrong = np.flatnonzero((want.entries != have.entries) | (want.digests != have.digests))
        if len(wrong):
            at = int(wrong[0])
            raise CorruptStateError(
                f"state {descriptor.name!r}, key group {want.key_group_range.start + at}: expected"
                f" {want.entries[at]} entries with digest {want.digests[at]:016x}, read {have.entries[at]} with"
                f" {have.digests[at]:016x} ({len(wrong)} key groups differ)",
                kind="restore-mismatch",
                hint="statelib verify names the damaged file; restore an older checkpoint",
            )
