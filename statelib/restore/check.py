"""Proof that the entries read are the entries written: counts and digests per key group.

Where the checksums of all files are compared as well, the counts suffice, because to compute the digests takes long.
"""

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing
from dataclasses import replace

import numpy as np

from statelib.backends.entries import add_entries, check_loaded_rows
from statelib.backends.keyed import KeyedStateBackend
from statelib.backends.keys.distinct import KeyCounter
from statelib.errors import CorruptStateError, InvalidRequestError
from statelib.formats.keyed.group_windows import GroupWindows, LargeGroup, Window
from statelib.model.amounts import number_of
from statelib.model.key_groups import KeyGroupRange, prefix_width
from statelib.model.state import (
    KeyCounts,
    KeyedStateSchema,
    StateStatistics,
    empty_statistics,
    key_states,
    merge_statistics,
)
from statelib.restore.plan import RestoreSource
from statelib.serializers.entries.rows import StateRows, statistics_of


class Tally:
    """The statistics of the entries that a restore reads, compared at the end with the recorded statistics.

    ``key_groups`` are the key groups that are read from the source. Nothing is counted if the source has no recorded
    statistics. ``digests``: whether digests are compared, too, and not counts only."""

    def __init__(self, source: RestoreSource, key_groups: KeyGroupRange, *, digests: bool = True) -> None:
        self._schema = source.schema
        self._range = key_groups
        self._width = prefix_width(source.schema.max_parallelism)
        self._digests = digests
        self._expected = expected_statistics(source, key_groups)
        if self._expected is not None and not digests:
            self._expected = tuple(replace(s, digests=np.zeros_like(s.digests)) for s in self._expected)
        self._seen = [empty_statistics(key_groups) for _ in source.schema.states]

    def add(self, state: int, rows: StateRows) -> None:
        """Count entries of the state with index ``state``. Raise CorruptStateError (``foreign-key-group``) if one of
        them is outside the key groups."""
        check_loaded_rows(self._schema.states[state].name, rows, self._schema, self._range)
        if self._expected is not None and len(rows):
            read = statistics_of(rows, self._width, self._range, digests=self._digests)
            self._seen[state] = merge_statistics(self._range, [self._seen[state], read])

    def check(self) -> None:
        """Raise CorruptStateError (``restore-mismatch``) naming the first state and key group that differ."""
        if self._expected is not None:
            check_statistics(self._schema, self._expected, tuple(self._seen))


def check_content(backend: KeyedStateBackend) -> None:
    """Read every entry of a restored backend and compare them with the statistics that the backend has.

    A restore that copies RocksDB's files relies on the manifest's statistics without reading each entry. This check
    proves them. Raise CorruptStateError (``restore-mismatch``) if they differ."""
    scanned = ((i, rows) for i, d in enumerate(backend.schema.states) for rows in backend.scan(d.name))
    check_statistics(
        backend.schema, backend.statistics(), count_entries(backend.schema, backend.key_group_range, scanned)
    )


def count_keys(backend: KeyedStateBackend) -> KeyCounts:
    """Return the numbers of distinct keys in a live backend. Only the states that decide which keys there are have to
    be read: in parallel, entry by entry."""
    counter, read = KeyCounter(backend.schema), key_states(backend.schema)
    with ExitStack() as opened:
        scans: list[Iterable[StateRows]] = [
            opened.enter_context(closing(backend.scan(state.name))) if index in read else ()
            for index, state in enumerate(backend.schema.states)
        ]
        for part in GroupWindows(backend.schema, backend.key_group_range, scans):
            for index, rows in _rows_of(part):
                counter.add(index, rows)
            counter.finish_part()
    return counter.counts(backend.key_group_range)


def _rows_of(part: Window | LargeGroup) -> Iterator[tuple[int, StateRows]]:
    """Yield (index of the state, entries)."""
    if isinstance(part, Window):
        yield from ((index, rows) for index, (rows, _) in enumerate(part.states))
    else:
        yield from ((index, rows) for index, pieces in enumerate(part.states) for rows, _ in pieces)


def count_entries(
    schema: KeyedStateSchema, key_groups: KeyGroupRange, entries: Iterable[tuple[int, StateRows]]
) -> tuple[StateStatistics, ...]:
    """Return the statistics of the entries, per state. Each chunk comes with the index of its state in ``schema``.

    Raise CorruptStateError (``foreign-key-group``) for an entry outside the key groups."""
    width = prefix_width(schema.max_parallelism)
    statistics = [empty_statistics(key_groups) for _ in schema.states]
    for state, rows in entries:
        check_loaded_rows(schema.states[state].name, rows, schema, key_groups)
        statistics[state] = add_entries(statistics[state], rows, width, 1)
    return tuple(statistics)


def expected_statistics(source: RestoreSource, key_groups: KeyGroupRange) -> tuple[StateStatistics, ...] | None:
    """Return the source's recorded statistics, limited to ``key_groups``, or None if none were recorded.

    Raise InvalidRequestError (``bad-statistics``) if they do not fit the schema or do not cover the key groups."""
    if source.statistics is None:
        return None
    if len(source.statistics) != len(source.schema.states):
        raise InvalidRequestError(
            f"statistics of {number_of(len(source.statistics), 'state')} for a schema of {len(source.schema.states)}",
            kind="bad-statistics",
        )
    return tuple(cut_statistics(s, key_groups) for s in source.statistics)


def cut_statistics(statistics: StateStatistics, key_groups: KeyGroupRange) -> StateStatistics:
    """Return the statistics of these key groups only. Raise InvalidRequestError (``bad-statistics``) unless all of them
    are covered."""
    covered = statistics.key_group_range
    if len(key_groups) and (key_groups.start < covered.start or key_groups.end > covered.end):
        raise InvalidRequestError(
            f"statistics of key groups {covered} do not cover the key groups {key_groups}", kind="bad-statistics"
        )
    cut = slice(key_groups.start - covered.start, key_groups.end + 1 - covered.start)
    return StateStatistics(key_groups, statistics.entries[cut], statistics.digests[cut])


def check_statistics(
    schema: KeyedStateSchema, expected: tuple[StateStatistics, ...], actual: tuple[StateStatistics, ...]
) -> None:
    """Raise CorruptStateError (``restore-mismatch``) unless both describe the same entries."""
    for descriptor, want, read in zip(schema.states, expected, actual, strict=True):
        wrong = np.flatnonzero((want.entries != read.entries) | (want.digests != read.digests))
        if len(wrong):
            i = int(wrong[0])
            difference = f"expected {number_of(int(want.entries[i]), 'entry')}, read {read.entries[i]}"
            if read.entries[i] == want.entries[i]:
                difference += f" with digest {read.digests[i]:016x} instead of {want.digests[i]:016x}"
            raise CorruptStateError(
                f"state {descriptor.name!r}, key group {want.key_group_range.start + i}: {difference};"
                f" key groups that differ: {len(wrong)}",
                kind="restore-mismatch",
                hint="statelib verify names the damaged file; restore an older checkpoint",
            )
