"""The 128-bit numbers of a decimal column as numpy arrays, as doubles, and in their shortest big-endian form."""

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statelib.serializers.columns.codec import Cursor
from statelib.serializers.columns.cursors import refuse
from statelib.wire.ragged import Bytes

DECIMAL_BYTES = 16
_WORD_BYTES = 8
EXACT_DOUBLES = 1 << 53
"""The magnitude below which a double holds every integer exactly."""
_EXACT_POWERS = 22
"""The largest power of ten that a double holds exactly."""
Words = npt.NDArray[np.int64]
"""One row per number: the low 64 bits, which have no sign, and the high 64 bits."""


def decimal_words(values: pa.Array) -> Words:
    """Return the unscaled numbers of a decimal column. The result is a view of the column's buffer."""
    data = values.buffers()[1]
    if data is None or not len(values):
        return np.empty((0, 2), np.int64)
    return np.frombuffer(data, np.int64, 2 * len(values), values.offset * DECIMAL_BYTES).reshape(-1, 2)


def decimal_array(words: Words, arrow_type: pa.DataType) -> pa.Array:
    """Return a decimal column of these unscaled numbers. This is the inverse of :func:`decimal_words`.

    Raise pyarrow.ArrowInvalid if a number has more digits than the type."""
    values = pa.Array.from_buffers(arrow_type, len(words), [None, pa.py_buffer(np.ascontiguousarray(words))])
    values.validate(full=True)
    return values


def as_doubles(values: pa.Array) -> pa.Array:
    """Return numbers as doubles: for a decimal the nearest one, which is equal to the same number in a pipeline file.
    Arrow's own cast of a decimal differs from it in the last bit for one value in eight."""
    if not pa.types.is_decimal(values.type):
        return values.cast(pa.float64(), safe=False)
    words, null, scale = decimal_words(values), values.is_null().to_numpy(zero_copy_only=False), values.type.scale
    low, high = words[:, 0], words[:, 1]
    fits = (high == low >> 63) & (low > -EXACT_DOUBLES) & (low < EXACT_DOUBLES)
    if scale <= _EXACT_POWERS and bool((fits | null).all()):
        return pa.array(low / 10.0**scale, mask=null)  # both are exact, so that only the division rounds
    return values.cast(pa.string()).cast(pa.float64())


def shortest_sizes(words: Words) -> npt.NDArray[np.int64]:
    """Return the number of bytes of the shortest two's complement of each number: 1 to 16."""
    sign = words[:, 1] >> 63
    low, high = ((words[:, i] ^ sign).view(np.uint64) for i in (0, 1))
    sizes = np.ones(len(words), np.int64)
    for k in range(1, _WORD_BYTES + 1):
        sizes += (low >= np.uint64(1 << 8 * k - 1)) | (high > 0)
    if high.any():
        for k in range(1, _WORD_BYTES):
            sizes += high >= np.uint64(1 << 8 * k - 1)
    return sizes


def big_endian_bytes(words: Words) -> Bytes:
    """Return the numbers as a matrix (rows, 16) of big-endian bytes."""
    return np.ascontiguousarray(words[:, ::-1].astype(">i8")).view(np.uint8).reshape(-1, DECIMAL_BYTES)


def words_of_bytes(data: Bytes, start: Cursor, sizes: npt.NDArray[np.int64], what: object, kind: str) -> Words:
    """Return the big-endian numbers of 1 to 16 bytes that begin at each ``start``.

    Raise CorruptStateError of ``kind`` for another size."""
    refuse((sizes < 1) | (sizes > DECIMAL_BYTES), sizes, what, "1 to 16 bytes", kind)
    sign = np.where(data[start] >= 0x80, 0xFF, 0).astype(np.uint8)
    digits = np.repeat(sign, DECIMAL_BYTES).reshape(-1, DECIMAL_BYTES)
    for size in np.unique(sizes).tolist():
        rows = np.flatnonzero(sizes == size)
        digits[rows, :size] = data[start[rows, None] + np.arange(size)][:, ::-1]
    return digits.view(np.int64)
