"""Columns of stored sketches: one sketch per row, null for a key without one."""

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statelib.aggregates.grouping import valid_rows
from statelib.serializers.columns.arrow import byte_rows
from statelib.wire.ragged import Ragged

Rows = npt.NDArray[np.int64]


def stored_sketches(column: pa.Array) -> tuple[Rows, Ragged]:
    """Return (row, bytes) of the sketches of a column that are not null."""
    valid = valid_rows([column])
    return valid, byte_rows(column.take(pa.array(valid)))


def null_where(empty: npt.NDArray[np.bool_], column: pa.Array) -> pa.Array:
    """Return a column of sketches with null in the rows that are ``empty``."""
    return column.take(pa.array(np.arange(len(column)), mask=empty)) if empty.any() else column
