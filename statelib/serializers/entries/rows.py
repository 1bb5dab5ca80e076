"""Serialized entries of one state, in which form backends, formats and files exchange them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from statelib.model.key_groups import KeyGroupRange
from statelib.model.state import StateStatistics
from statelib.wire.digest import row_hashes
from statelib.wire.ragged import Ragged, blocks, concat, from_list, offsets_of


@dataclass(frozen=True, eq=False)
class StateRows:
    """Entries of one state. Entry ``i`` is (``keys[i]``, ``values[i]``), and its bytes are the same in every format.

    A key is the key-group prefix, the key, the namespace and, in map state, the user key. The bytes of a value depend
    on the kind of state. Source: docs/spec/formats.md#composite-keys, #values."""

    keys: Ragged
    values: Ragged

    def __len__(self) -> int:
        return len(self.keys)

    def take(self, rows: npt.NDArray[np.integer]) -> "StateRows":
        """Return the entries with these numbers, in this order."""
        return StateRows(self.keys.take(rows), self.values.take(rows))

    def slice(self, start: int, stop: int) -> "StateRows":
        """Return the entries from ``start`` to ``stop`` (exclusive), without a copy."""
        return StateRows(self.keys.slice(start, stop), self.values.slice(start, stop))


NO_ROWS = StateRows(from_list([]), from_list([]))


def without_values(keys: Ragged) -> StateRows:
    """Return rows of the keys whose values are empty."""
    return StateRows(keys, Ragged(NO_ROWS.values.data, np.zeros(len(keys) + 1, np.int64)))


WINDOW_BYTES = 4 * 1024 * 1024


def windows(rows: StateRows) -> Iterator[StateRows]:
    """Yield the entries in runs of about :data:`WINDOW_BYTES`, without a copy, for work that takes several times as
    much memory as its input."""
    sizes = rows.keys.lengths + rows.values.lengths
    for start, stop in blocks(offsets_of(sizes), WINDOW_BYTES):
        yield rows.slice(start, stop)


def join_rows(parts: Sequence[StateRows]) -> StateRows:
    """Return the entries of all parts, in their order."""
    if not parts:
        return NO_ROWS
    if len(parts) == 1:
        return parts[0]
    return StateRows(concat([part.keys for part in parts]), concat([part.values for part in parts]))


def key_groups_of(keys: Ragged, prefix_width: int) -> npt.NDArray[np.int32]:
    """Return the key group of each serialized key, which is a big-endian prefix of one or two bytes."""
    first = keys.data[keys.starts].astype(np.int32)
    if prefix_width == 1:
        return first
    return first * 256 + keys.data[keys.starts + 1]


def statistics_of(
    rows: StateRows, prefix_width: int, key_group_range: KeyGroupRange, *, digests: bool = True
) -> StateStatistics:
    """Return the number and the digest of the entries of each key group; all digests are 0 unless ``digests``. Every
    key must lie in the range."""
    groups = key_groups_of(rows.keys, prefix_width) - key_group_range.start
    size = len(key_group_range)
    sums = np.zeros(size, np.uint64)
    if digests:
        np.add.at(sums, groups, row_hashes(rows.keys, rows.values))
    return StateStatistics(key_group_range, np.bincount(groups, minlength=size).astype(np.int64), sums)
