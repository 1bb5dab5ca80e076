"""The differences between two sets of entries, joined on columns by their serialized keys."""

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from statelib.backends.keys.lookup import find_rows
from statelib.backends.keys.order import byte_order
from statelib.serializers.entries.rows import StateRows
from statelib.wire.ragged import Ragged, as_arrow, concat

Rows = npt.NDArray[np.int64]


class ChangeKind(IntEnum):
    """The kind of a difference. Its value is an index of :data:`WORDS`."""

    ADDED = 0
    REMOVED = 1
    CHANGED = 2


WORDS = ("added", "removed", "changed")


@dataclass(frozen=True, eq=False)
class Changes:
    """The entries that differ, in ascending order of their keys.

    ``kinds`` (int8) holds one :class:`ChangeKind` per row. ``before`` holds the values of the rows that are not added,
    ``after`` the values of the rows that are not removed, both in the order of the rows."""

    keys: Ragged
    kinds: npt.NDArray[np.int8]
    before: Ragged
    after: Ragged

    def __len__(self) -> int:
        return len(self.keys)

    def count(self, change: ChangeKind) -> int:
        """Return the number of entries that differ in this way."""
        return int(np.count_nonzero(self.kinds == change))


def compare_rows(before: StateRows, after: StateRows) -> Changes:
    """Return the changes that lead from ``before`` to ``after``. Keys must be unique within each of the two."""
    positions = find_rows(before.keys, after.keys)
    is_common = positions >= 0
    remains = np.zeros(len(before), np.bool_)
    remains[positions[is_common]] = True
    old, new = _unequal(before, after, positions[is_common], np.flatnonzero(is_common))
    removed, added = np.flatnonzero(~remains), np.flatnonzero(~is_common)
    old_rows = np.concatenate([np.full(len(added), -1), removed, old])
    new_rows = np.concatenate([added, np.full(len(removed), -1), new])
    kinds = np.repeat(np.arange(3, dtype=np.int8), [len(added), len(removed), len(old)])
    keys = concat([after.keys.take(added), before.keys.take(removed), after.keys.take(new)])
    order = byte_order(keys)
    old_rows, new_rows = old_rows[order], new_rows[order]
    return Changes(
        keys.take(order),
        kinds[order],
        before.values.take(old_rows[old_rows >= 0]),
        after.values.take(new_rows[new_rows >= 0]),
    )


def _unequal(before: StateRows, after: StateRows, old: Rows, new: Rows) -> tuple[Rows, Rows]:
    """Return the pairs of rows whose values differ. ``old`` and ``new`` are row numbers of the same keys."""
    unequal = pc.not_equal(as_arrow(before.values.take(old)), as_arrow(after.values.take(new)))
    differs = np.asarray(unequal.to_numpy(zero_copy_only=False), np.bool_)
    return old[differs], new[differs]
