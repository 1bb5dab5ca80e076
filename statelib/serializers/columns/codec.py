"""The port of this room: how the values of one type become bytes and come back, column by column."""

from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statelib.model.types import StateType
from statelib.wire.ragged import Bytes, Ragged

Cursor = npt.NDArray[np.int64]
"""One position a row: an absolute index into the bytes that are decoded."""
Hashes = npt.NDArray[np.int32]


class Codec(Protocol):
    """Vectorised serializer of one StateType.

    Laws: ``decode`` of what ``encode`` wrote gives equal values and cursors at the ends of the
    rows; ``skip`` moves the cursors as ``decode`` does. Slices and other Arrow encodings of the
    same values (``large_string``, dictionaries, ``timestamp('us')``) give the same bytes.
    """

    @property
    def type(self) -> StateType: ...

    @property
    def arrow_type(self) -> pa.DataType: ...

    @property
    def reported_length(self) -> int:
        """What Flink's ``TypeSerializer.getLength()`` says: > 0 fixed, 0 VoidNamespace, -1 variable."""

    @property
    def width(self) -> int:
        """Bytes that each value takes, -1 if they differ; unlike ``reported_length`` it is 1 for ``void``."""

    def encode(self, values: pa.Array) -> Ragged:
        """One row of bytes a value.

        Raises InvalidRequestError: ``null-value`` where the type holds no nulls (fields of a Row
        and values of a map may be null), ``bad-value-type`` where the Arrow type does not fit.
        """

    def decode(self, data: Bytes, cursor: Cursor, limit: Cursor) -> tuple[pa.Array, Cursor]:
        """Read one value a row, starting at ``cursor[i]`` and never beyond ``limit[i]``.

        Returns the values and the cursors behind them. Raises CorruptStateError (``truncated-value``
        and kinds that name the damage). A null that Flink's serializer can hold becomes an Arrow null.
        """

    def skip(self, data: Bytes, cursor: Cursor, limit: Cursor) -> Cursor:
        """The cursors behind one value a row, without building the values."""

    def java_hash(self, values: pa.Array) -> Hashes:
        """``hashCode()`` of each value, as Java computes it; nulls hash to 0.

        Raises UnsupportedError (``no-key-hash``) for types that Flink refuses as keys.
        """

    def deep_hash(self, values: pa.Array) -> Hashes:
        """What each value adds to the hash of a Row that holds it (``RowUtils.deepHashCode``)."""
