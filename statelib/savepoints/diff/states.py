"""The comparison of two snapshots, state by state. They may have different backends, strategies and parallelism.

Key groups with equal counts and digests in both manifests are not read. Without two manifests, handles whose files both
snapshots share are not read. All other key groups are read in windows, so that the memory does not grow with the state.
If a checkpoint was built on the other one, the changes that its run recorded are read instead of the state.
"""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from statelib.errors import InvalidRequestError
from statelib.model.key_groups import prefix_width
from statelib.model.state import KeyedStateSchema, StateDescriptor
from statelib.restore.schemas.matching import as_stored, describe, moves_fields
from statelib.savepoints.diff.changes import WORDS, ChangeKind, Changes, compare_rows
from statelib.savepoints.diff.recorded import RecordedSide
from statelib.savepoints.diff.side import Mask, Side
from statelib.savepoints.opened import Checkpoint
from statelib.serializers.entries.keys import decode_keys
from statelib.serializers.entries.rows import NO_ROWS, StateRows, key_groups_of, statistics_of
from statelib.serializers.entries.values import decode_values
from statelib.storage.local.scratch import scratch_directory

WINDOW_BYTES = 64 * 1024 * 1024
"""The stored bytes of both snapshots that are read into memory at a time. A key group is never split, so a large one
may exceed this."""

Each = Callable[[str, pa.Table], None]


@dataclass(frozen=True)
class StateDiff:
    """The differences of one state between two snapshots.

    ``before_type``, ``after_type``: None if that snapshot does not have the state. ``entries_before``,
    ``entries_after``: the numbers of entries; None if they are neither recorded nor counted. ``added``, ``removed``,
    ``changed``: the numbers of entries that differ; None if the entries could not be compared. ``key_groups_read``: the
    number of key groups that were compared entry by entry. ``key_groups_skipped``: the number of key groups that are
    equal by their statistics or files. ``incomparable``: the reason why the entries could not be compared; '' if they
    were."""

    name: str
    before_type: str | None
    after_type: str | None
    entries_before: int | None
    entries_after: int | None
    added: int | None
    removed: int | None
    changed: int | None
    key_groups_read: int
    key_groups_skipped: int
    incomparable: str = ""

    @property
    def different(self) -> bool:
        one_sided = self.before_type is None or self.after_type is None
        return one_sided or bool(self.incomparable or self.added or self.removed or self.changed)


class Diff:
    """The differences from the snapshot ``before`` to the snapshot ``after``. State is read only when a result is used.

    ``scratch``: the directory for temporary copies. ``window_bytes``: the stored bytes that are read at a time.

    Methods raise what reading the state of a snapshot raises, such as UnsupportedError and NotFoundError, and
    CorruptStateError (``restore-mismatch``) for entries that do not have the recorded statistics."""

    def __init__(
        self, before: Checkpoint, after: Checkpoint, scratch: str | None = None, window_bytes: int = WINDOW_BYTES
    ) -> None:
        self.before = before
        self.after = after
        self._scratch = scratch
        self._window_bytes = window_bytes

    @property
    def keys(self) -> tuple[int | None, int | None]:
        """The numbers of distinct keys in ``before`` and in ``after``, over all states; None for a snapshot whose
        manifest does not record it."""
        before, after = (s.manifest.total_keys if s.manifest else None for s in (self.before, self.after))
        return before, after

    @cached_property
    def states(self) -> tuple[StateDiff, ...]:
        """The differences of every state that one of the snapshots has."""
        return self.read()

    def to_arrow(self, state: str) -> pa.Table:
        """Return the entries of a state that differ, in key order, with the columns ``key_group, key[, user_key],
        change, before, after``.

        Raises InvalidRequestError (``unknown-state``, ``incomparable-state``)."""
        tables: list[pa.Table] = []
        (difference,) = self.read((state,), lambda _, table: tables.append(table))
        if difference.incomparable:
            raise InvalidRequestError(
                f"state {state!r} cannot be compared entry by entry: {difference.incomparable}",
                kind="incomparable-state",
            )
        return pa.concat_tables(tables)

    def read(self, states: Collection[str] = (), each: Each | None = None) -> tuple[StateDiff, ...]:
        """Compare the states with the given names, or all states if no name is given, and return one element per state.

        ``each``: called with (name of the state, table of entries that differ); first with an empty table per state
        that can be compared, then with batches in key order. The columns are those of :meth:`to_arrow`.

        Raises InvalidRequestError (``unknown-state``)."""
        with scratch_directory(self._scratch, "diff") as directory:
            before, after = Side(self.before, f"{directory}/a"), Side(self.after, f"{directory}/b")
            try:
                return _Pass(before, after, states, self._window_bytes).run(each)
            finally:
                before.close()
                after.close()


@dataclass
class _Pair:
    """One state in both snapshots. ``incomparable``: why it cannot be compared, or ''. ``differs``: the key groups
    whose entries must be compared. ``recorded``: the changes that the run of the later snapshot recorded. ``counts``:
    the numbers of added, removed and changed entries so far."""

    name: str
    before: StateDescriptor | None
    after: StateDescriptor | None
    incomparable: str
    differs: Mask
    recorded: RecordedSide | None
    counts: list[int]


class _Pass:
    """One comparison of the states that :meth:`Diff.read` names, which reads both snapshots once."""

    def __init__(self, before: Side, after: Side, states: Collection[str], window_bytes: int) -> None:
        self._before = before
        self._after = after
        self._window_bytes = window_bytes
        names = list(before.index) + [name for name in after.index if name not in before.index]
        for name in states:
            if name not in names:
                after.schema.state(name)
        self._incomparable = _incomparable(before.schema, after.schema)
        self._shared = _shared(before, after)
        self._pairs = [self._pair(name) for name in names if not states or name in states]

    def _pair(self, name: str) -> _Pair:
        before, after = (
            side.schema.states[side.index[name]] if name in side.index else None for side in (self._before, self._after)
        )
        incomparable = self._incomparable
        if not incomparable and before and after:
            incomparable = _other_form(before, after)
        differs = np.zeros(len(self._before.whole), np.bool_) if incomparable else self._differs(name)
        recorded = None if incomparable else RecordedSide.of(self._before.opened, self._after.opened, name)
        return _Pair(name, before, after, incomparable, differs, recorded, [0, 0, 0])

    def _differs(self, name: str) -> Mask:
        """Return the key groups of a state whose entries must be compared: neither statistics nor shared files prove
        that they are equal."""
        sides = (self._before, self._after)
        if any(side.statistics is None for side in sides):
            return (self._before.held() | self._after.held()) & ~self._shared
        old, new = (side.recorded(name) for side in sides)
        if old is None or new is None:
            present = old or new
            assert present is not None
            return np.asarray(present.entries > 0, np.bool_)
        return np.asarray((old.entries != new.entries) | (old.digests != new.digests), np.bool_)

    def run(self, each: Each | None) -> tuple[StateDiff, ...]:
        comparable = [pair for pair in self._pairs if not pair.incomparable]
        if each:
            for pair in comparable:
                each(pair.name, self._table(pair, compare_rows(NO_ROWS, NO_ROWS)))
        for window in self._windows(comparable):
            old, new = self._before.read(window), list[StateRows]()
            for pair in comparable:
                wanted = pair.differs & window
                before = self._cut(self._before, old, pair.name, wanted)
                changes = self._recorded(pair, before, wanted)
                if changes is None:
                    new = self._after.read(window) if wanted.any() and not new else new
                    after = self._cut(self._after, new, pair.name, wanted) if wanted.any() else NO_ROWS
                    changes = compare_rows(before, after)
                pair.counts = [n + changes.count(change) for n, change in zip(pair.counts, ChangeKind, strict=True)]
                if each and len(changes):
                    each(pair.name, self._table(pair, changes))
        return tuple(map(self._difference, self._pairs))

    def _recorded(self, pair: _Pair, before: StateRows, wanted: Mask) -> Changes | None:
        """Return the changes that the run of the later snapshot recorded in some key groups. Return None if it recorded
        none, or if they do not lead from the statistics of the earlier snapshot to those of the later one: then that
        one is not the base of the run, but a checkpoint of another deployment with the same name and id."""
        old, new = self._before.recorded(pair.name), self._after.recorded(pair.name)
        if pair.recorded is None or old is None or new is None:
            return None
        rows = pair.recorded.both(before, wanted)
        width = prefix_width(self._after.schema.max_parallelism)
        gone, written = (statistics_of(part, width, self._after.whole) for part in rows)
        leads = (old.entries - gone.entries + written.entries == new.entries) & (
            old.digests - gone.digests + written.digests == new.digests
        )
        if not leads[wanted].all():
            pair.recorded = None
            return None
        return compare_rows(*rows)

    def _windows(self, pairs: list[_Pair]) -> Iterator[Mask]:
        """Yield masks of the key groups to read, in ascending order, each with up to about ``window_bytes`` bytes."""
        no_key_groups = np.zeros(len(self._before.whole), np.bool_)
        needed = np.logical_or.reduce([no_key_groups, *(pair.differs for pair in pairs)])
        if not needed.any():
            return
        weights = self._before.weights() + self._after.weights()
        window, window_bytes = no_key_groups.copy(), 0.0
        for group in np.flatnonzero(needed).tolist():
            if window_bytes and window_bytes + weights[group] > self._window_bytes:
                yield window
                window, window_bytes = no_key_groups.copy(), 0.0
            window[group] = True
            window_bytes += weights[group]
        yield window

    def _cut(self, side: Side, read: list[StateRows], name: str, wanted: Mask) -> StateRows:
        rows = read[side.index[name]] if name in side.index else NO_ROWS
        if not len(rows):
            return rows
        inside = wanted[key_groups_of(rows.keys, prefix_width(side.schema.max_parallelism))]
        return rows if bool(inside.all()) else rows.take(np.flatnonzero(inside))

    def _table(self, pair: _Pair, changes: Changes) -> pa.Table:
        schema = self._after.schema if pair.after else self._before.schema
        before, after = pair.before or pair.after, pair.after or pair.before
        assert before is not None
        assert after is not None
        columns = decode_keys(schema, after, changes.keys).columns()
        columns["change"] = pa.array(WORDS).take(pa.array(changes.kinds))
        columns["before"] = _spread(decode_values(before, changes.before), changes.kinds != ChangeKind.ADDED)
        columns["after"] = _spread(decode_values(after, changes.after), changes.kinds != ChangeKind.REMOVED)
        return pa.table(columns)

    def _difference(self, pair: _Pair) -> StateDiff:
        read = int(pair.differs.sum())
        added, removed, changed = (None, None, None) if pair.incomparable else pair.counts
        return StateDiff(
            name=pair.name,
            before_type=describe(pair.before) if pair.before else None,
            after_type=describe(pair.after) if pair.after else None,
            entries_before=self._before.entries(pair.name),
            entries_after=self._after.entries(pair.name),
            added=added,
            removed=removed,
            changed=changed,
            key_groups_read=read,
            key_groups_skipped=0 if pair.incomparable else len(pair.differs) - read,
            incomparable=pair.incomparable,
        )


def _incomparable(before: KeyedStateSchema, after: KeyedStateSchema) -> str:
    """Return why no entry of one snapshot can be compared with an entry of the other; '' if entries can be compared."""
    if before.max_parallelism != after.max_parallelism:
        return f"max_parallelism: {before.max_parallelism} before, {after.max_parallelism} after"
    if as_stored(before.key_type) != as_stored(after.key_type):
        return f"key: {before.key_type} before, {after.key_type} after"
    return ""


def _other_form(before: StateDescriptor, after: StateDescriptor) -> str:
    """Return why entries of two states cannot be compared as bytes; '' if they can be compared."""
    types = f"{describe(before)} before, {describe(after)} after"
    if describe(before, names=False) != describe(after, names=False):
        return f"type: {types}"
    return f"fields in another order: {types}" if moves_fields(before.value_type, after.value_type) else ""


def _shared(before: Side, after: Side) -> Mask:
    """Return a mask of the key groups that lie in the same files in both snapshots."""
    mask = np.zeros(len(before.whole), np.bool_)
    after_contents = after.contents()
    for content, key_groups in before.contents().items():
        if content in after_contents:
            mask[key_groups.start : key_groups.end + 1] = True
    return mask


def _spread(values: pa.Array, present: Mask) -> pa.Array:
    """Return one value per row: the next of ``values`` in rows where ``present`` is true, and null in the others."""
    return values.take(pa.array(np.cumsum(present) - 1, mask=~present))
