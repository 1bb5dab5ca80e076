"""Find where the elements of lists and maps begin, for many rows at once.

Elements of fixed width follow from arithmetic. Others are found step by step: step k skips the k-th element of every
row that has one, so the number of steps is the length of the longest row.
"""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from statelib.errors import CorruptStateError
from statelib.serializers.columns.codec import Codec, Cursor
from statelib.serializers.columns.cursors import refuse
from statelib.wire.ragged import Bytes, Offsets, Ragged, offsets_of

Skip = Callable[[Bytes, Cursor, Cursor], Cursor]
SEPARATOR = 0x2C
"""The byte between the elements of list state (docs/spec/formats.md#values)."""


def strided(cursor: Cursor, counts: npt.NDArray[np.int64], stride: int) -> Cursor:
    """Return the starts of ``counts[i]`` elements, of which the first is at ``cursor[i]`` and each next one ``stride``
    bytes later."""
    offsets = offsets_of(counts)
    firsts: Cursor = np.repeat(cursor - offsets[:-1] * stride, counts)
    firsts += np.arange(offsets[-1], dtype=np.int64) * stride
    return firsts


def counted(
    skip: Skip, data: Bytes, cursor: Cursor, limit: Cursor, counts: npt.NDArray[np.int64]
) -> tuple[Cursor, Cursor]:
    """Return the starts of all elements, row after row, and the cursors after the last element of each row."""
    offsets = offsets_of(counts)
    starts = np.empty(int(offsets[-1]), np.int64)
    at = cursor.copy()
    rows, step = np.flatnonzero(counts > 0), 0
    while len(rows):
        starts[offsets[rows] + step] = at[rows]
        at[rows] = skip(data, at[rows], limit[rows])
        step += 1
        rows = rows[counts[rows] > step]
    return starts, at


def separated(element: Codec, rows: Ragged) -> tuple[Cursor, Offsets]:
    """Return the starts of the elements of list state, row after row, and the offsets at which each row's share begins.

    Raise CorruptStateError (``bad-separator``) if another byte follows an element."""
    if element.width > 0:
        return _separated_fixed(element, rows)
    at, limit = rows.starts.copy(), rows.offsets[1:]
    steps: list[tuple[npt.NDArray[np.intp], Cursor]] = []
    active = np.flatnonzero(at < limit)
    while len(active):
        steps.append((active, at[active]))
        at[active] = element.skip(rows.data, at[active], limit[active])
        more = active[at[active] < limit[active]]
        _check_separators(rows.data, at[more])
        at[more] += 1
        active = more
    if not steps:
        return np.empty(0, np.int64), np.zeros(len(rows) + 1, np.int64)
    owners = np.concatenate([owner for owner, _ in steps])
    order = np.argsort(owners, kind="stable")
    return np.concatenate([start for _, start in steps])[order], offsets_of(np.bincount(owners, minlength=len(rows)))


def _separated_fixed(element: Codec, rows: Ragged) -> tuple[Cursor, Offsets]:
    stride = element.width + 1
    sizes = rows.lengths
    bad = (sizes > 0) & ((sizes + 1) % stride != 0)
    refuse(
        bad, sizes, f"list of {element.type}", f"elements of {element.width} bytes with separators", "truncated-value"
    )
    counts = (sizes + 1) // stride
    starts = strided(rows.starts, counts, stride)
    offsets = offsets_of(counts)
    last = np.zeros(len(starts), np.bool_)
    last[offsets[1:][counts > 0] - 1] = True
    _check_separators(rows.data, starts[~last] + element.width)
    return starts, offsets


def _check_separators(data: Bytes, at: Cursor) -> None:
    bad = np.flatnonzero(data[at] != SEPARATOR)
    if len(bad):
        offset = int(at[bad[0]])
        raise CorruptStateError(
            f"list state at offset {offset}: expected separator 0x2c between elements, found {int(data[offset]):#04x}",
            kind="bad-separator",
        )
