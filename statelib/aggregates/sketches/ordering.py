"""The order of the entries of many sketches: by group, then by an unsigned number."""

import numpy as np
import numpy.typing as npt

from statelib.wire.sorting import DIGIT_BITS, MOST_DIGITS, order_by, order_of

Rows = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]
_BITS = MOST_DIGITS * DIGIT_BITS
"""The bits of a number that is sorted digit by digit."""


def order_in_groups(codes: Rows, ranks: Words) -> Rows:
    """Return the row numbers in the order of the groups, and of the ranks within a group.

    The group and the upper bits of the rank, as one number, decide about nearly all rows. Equal ranks of one group need
    no order, and may be many."""
    if not len(codes):
        return codes
    above = ranks - ranks.min()
    left = max(_BITS - int(codes.max()).bit_length(), 0)
    dropped = max(int(above.max()).bit_length() - left, 0)
    numbers = (codes.astype(np.uint64) << np.uint64(left)) | (above >> np.uint64(dropped))
    order = order_of(numbers)
    ordered, sorted_ranks = numbers[order], ranks[order]
    is_wrong = (ordered[1:] == ordered[:-1]) & (sorted_ranks[1:] < sorted_ranks[:-1])
    return order_by([numbers, ranks]) if is_wrong.any() else order


def ranks_of_doubles(values: npt.NDArray[np.float64]) -> Words:
    """Return unsigned numbers in the order of the values, of which none is NaN or -0.0."""
    bits = values.view(np.int64)
    return np.asarray((bits ^ ((bits >> 63) | np.int64(-(2**63)))).view(np.uint64), np.uint64)
