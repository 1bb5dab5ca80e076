"""The order of the entries of many sketches: by group, then by an unsigned number."""

import numpy as np
import numpy.typing as npt

from statelib.wire.sorting import order_of

Rows = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]
_HALF = np.uint64(32)


def order_in_groups(codes: Rows, ranks: Words) -> Rows:
    """Return the row numbers in the order of the groups, and of the ranks within a group.

    One sort by the group and the upper half of the rank is several times as fast as two sorts. The lower half matters
    only if it contradicts the order of equal upper halves, which is rare for hashes."""
    order = order_of((codes.astype(np.uint64) << _HALF) | (ranks >> _HALF))
    sorted_codes, sorted_ranks = codes[order], ranks[order]
    is_wrong = (sorted_codes[1:] == sorted_codes[:-1]) & (sorted_ranks[1:] < sorted_ranks[:-1])
    return np.lexsort((ranks, codes)) if is_wrong.any() else order


def ranks_of_doubles(values: npt.NDArray[np.float64]) -> Words:
    """Return unsigned numbers in the order of the values, of which none is NaN or -0.0."""
    bits = values.view(np.int64)
    return np.asarray((bits ^ ((bits >> 63) | np.int64(-(2**63)))).view(np.uint64), np.uint64)
