"""The port of this room: a codec turns a column of values of one type into bytes and back."""

from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statelib.model.types import StateType
from statelib.wire.ragged import Bytes, Ragged

Cursor = npt.NDArray[np.int64]
"""One position per row: an absolute index into the bytes that are decoded."""
Hashes = npt.NDArray[np.int32]


class Codec(Protocol):
    """A serializer of one type that works on whole columns.

    Laws: ``decode`` of what ``encode`` wrote gives equal values, and cursors at the ends of the rows. ``skip`` moves
    the cursors as ``decode`` does. Slices and other Arrow encodings of the same values (``large_string``,
    dictionaries, ``timestamp('us')``) give the same bytes.

    A codec whose values differ in size may also have a method ``steps``; see
    :class:`~statelib.serializers.aspects.steps.Stepped`.
    """

    @property
    def type(self) -> StateType: ...

    @property
    def arrow_type(self) -> pa.DataType: ...

    @property
    def reported_length(self) -> int:
        """The result of Flink's ``TypeSerializer.getLength()``: the size in bytes if it is fixed, 0 for the void
        namespace, -1 if it varies."""

    @property
    def width(self) -> int:
        """The size of each value in bytes, or -1 if sizes differ. Unlike ``reported_length`` it is 1 for ``void``."""

    def encode(self, values: pa.Array) -> Ragged:
        """Return one row of bytes per value.

        Raise InvalidRequestError: ``null-value`` if the type holds no nulls (fields of a Row and values of a map may
        be null), ``bad-value-type`` if the Arrow type does not fit.
        """

    def decode(self, data: Bytes, cursor: Cursor, limit: Cursor) -> tuple[pa.Array, Cursor]:
        """Read one value per row, from ``cursor[i]`` on and never beyond ``limit[i]``.

        Return the values and the cursors after them. A null that Flink's serializer can hold becomes an Arrow null.
        Raise CorruptStateError (``truncated-value`` and kinds that name the damage).
        """

    def skip(self, data: Bytes, cursor: Cursor, limit: Cursor) -> Cursor:
        """Return the cursors after one value per row, without building the values."""

    def java_hash(self, values: pa.Array) -> Hashes:
        """Return ``hashCode()`` of each value, as Java computes it. The hash of null is 0.

        Raise UnsupportedError (``no-key-hash``) for a type that Flink refuses as a key.
        """

    def deep_hash(self, values: pa.Array) -> Hashes:
        """Return the number that each value adds to the hash of a Row that holds it (``RowUtils.deepHashCode``)."""


@runtime_checkable
class KeyEncoder(Protocol):
    """A codec that writes other bytes for some values if they are keys. Both forms are read in the same way."""

    def encode_keys(self, keys: pa.Array) -> Ragged:
        """Return one row of bytes per key, as :meth:`Codec.encode` does for other values."""
