"""What lies between two sets of entries: joined by their serialized keys, on columns."""

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from statelib.backends.key_order import as_arrow, byte_order, find_rows
from statelib.serializers.rows import StateRows
from statelib.wire.ragged import Ragged, concat

Rows = npt.NDArray[np.int64]


class Change(IntEnum):
    """The values index :data:`WORDS`."""

    ADDED = 0
    REMOVED = 1
    CHANGED = 2


WORDS = ("added", "removed", "changed")


@dataclass(frozen=True, eq=False)
class Changes:
    """Entries that differ, in ascending order of their keys.

    ``kinds``: int8, a :class:`Change` a row. ``before`` holds the values of the rows that are not
    added, ``after`` those of the rows that are not removed, in the same order."""

    keys: Ragged
    kinds: npt.NDArray[np.int8]
    before: Ragged
    after: Ragged

    def __len__(self) -> int:
        return len(self.keys)

    def count(self, change: Change) -> int:
        return int(np.count_nonzero(self.kinds == change))


def compare_rows(before: StateRows, after: StateRows) -> Changes:
    """Changes that lead from ``before`` to ``after``; keys are unique within each of the two."""
    at = find_rows(before.keys, after.keys)
    found = at >= 0
    kept = np.zeros(len(before), np.bool_)
    kept[at[found]] = True
    old, new = _unequal(before, after, at[found], np.flatnonzero(found))
    removed, added = np.flatnonzero(~kept), np.flatnonzero(~found)
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
    """Those of the pairs of rows with one key whose values differ."""
    unequal = pc.not_equal(as_arrow(before.values.take(old)), as_arrow(after.values.take(new)))
    differs = np.asarray(unequal.to_numpy(zero_copy_only=False), np.bool_)
    return old[differs], new[differs]
