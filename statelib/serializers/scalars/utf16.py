"""UTF-8 (Arrow) to UTF-16 code units (Java) and back, and units to StringValue's bytes and back.

Source: docs/spec/formats.md#strings (StringValue).
"""

import numpy as np
import numpy.typing as npt

from statelib.errors import CorruptStateError, InvalidRequestError, UnsupportedError
from statelib.serializers.columns.codec import Cursor
from statelib.serializers.columns.cursors import refuse
from statelib.wire.ragged import Bytes, Offsets, Ragged, gather, offsets_of, positions

Units = npt.NDArray[np.uint32]

_LEAD_BITS = np.array([0, 0x7F, 0x1F, 0x0F, 0x07], np.uint32)
_LEAD_MARK = np.array([0, 0, 0xC0, 0xE0, 0xF0], np.uint32)


def is_ascii(data: Bytes) -> bool:
    """Return whether every byte is below 0x80."""
    return not len(data) or int(data.max()) < 0x80


def units_of(rows: Ragged) -> tuple[Units, Offsets]:
    """Return the UTF-16 code units of UTF-8 rows, and the offsets, from 0 on, at which the units of each row begin.

    Raise InvalidRequestError (``lone-surrogate``) for bytes that encode half a surrogate pair."""
    data = rows.data[rows.offsets[0] : rows.offsets[-1]]
    bounds = rows.offsets - rows.offsets[0]
    if is_ascii(data):
        return data.astype(np.uint32), bounds
    lead = (data & 0xC0) != 0x80
    points = _code_points(data, np.flatnonzero(lead))
    if np.any((points & 0xFFFFF800) == 0xD800):
        raise InvalidRequestError(
            "string column: expected Unicode characters, found a lone surrogate", kind="lone-surrogate"
        )
    astral = points > 0xFFFF
    first = offsets_of(1 + astral.astype(np.int64))
    units = np.empty(int(first[-1]), np.uint32)
    units[first[:-1]] = np.where(astral, 0xD7C0 + (points >> 10), points)
    units[first[:-1][astral] + 1] = 0xDC00 + (points[astral] & 0x3FF)
    return units, first[offsets_of(lead.view(np.uint8))[bounds]]


def _code_points(data: Bytes, at: npt.NDArray[np.int64]) -> Units:
    """Return the character that starts at each of the positions ``at``."""
    byte = data[at].astype(np.uint32)
    size = 1 + (byte >= 0xC0).astype(np.int8) + (byte >= 0xE0) + (byte >= 0xF0)
    points = byte & _LEAD_BITS[size]
    for k in (1, 2, 3):
        more = np.flatnonzero(size > k)
        points[more] = (points[more] << 6) | (data[at[more] + k] & 0x3F)
    return points


def utf8_of(units: Units, offsets: Offsets) -> Ragged:
    """Return the units as UTF-8 rows. This is the inverse of :func:`units_of`.

    Raise UnsupportedError (``lone-surrogate``): Java allows half a surrogate pair, UTF-8 does not."""
    high = (units & 0xFC00) == 0xD800
    low = (units & 0xFC00) == 0xDC00
    paired = np.zeros(len(units), np.bool_)
    paired[1:] = low[1:] & high[:-1]
    starts = offsets[:-1]
    paired[starts[starts < len(units)]] = False
    if np.count_nonzero(low) != np.count_nonzero(paired) or np.count_nonzero(high) != np.count_nonzero(paired):
        raise UnsupportedError(
            "stored string with a lone surrogate: Java allows it, UTF-8 and hence Arrow do not", kind="lone-surrogate"
        )
    points = units.copy()
    second = np.flatnonzero(paired)
    points[second - 1] = 0x10000 + ((units[second - 1] & 0x3FF) << 10) + (units[second] & 0x3FF)
    return _utf8(points[~paired], offsets_of((~paired).view(np.uint8))[offsets])


def _utf8(points: Units, offsets: Offsets) -> Ragged:
    size = 1 + (points >= 0x80).astype(np.int8) + (points >= 0x800) + (points >= 0x10000)
    first = offsets_of(size)
    out = np.empty(int(first[-1]), np.uint8)
    out[first[:-1]] = _LEAD_MARK[size] | (points >> (6 * (size - 1)).astype(np.uint32))
    for k in (1, 2, 3):
        more = np.flatnonzero(size > k)
        shift = (6 * (size[more] - 1 - k)).astype(np.uint32)
        out[first[more] + k] = 0x80 | ((points[more] >> shift) & 0x3F)
    return Ragged(out, first[offsets])


def encode_units(units: Units, offsets: Offsets) -> Ragged:
    """Return each unit in one to three bytes of 7 bits, the low group first."""
    size = 1 + (units >= 0x80).astype(np.int8) + (units >= 0x4000)
    first = offsets_of(size)
    out = np.empty(int(first[-1]), np.uint8)
    for k in (0, 1, 2):
        rows = np.flatnonzero(size > k)
        group = (units[rows] >> np.uint32(7 * k)) & 0x7F
        out[first[rows] + k] = np.where(size[rows] > k + 1, group | 0x80, group)
    return Ragged(out, first[offsets])


def decode_units(data: Bytes, cursor: Cursor, counts: Cursor, limit: Cursor) -> tuple[Units, Cursor]:
    """Read ``counts[i]`` (> 0) units at ``cursor[i]``. Return all units, row after row, and the cursors after them.

    A unit ends with its first byte below 0x80, so the k-th such byte ends the k-th unit.
    Raise CorruptStateError (``bad-string``, ``truncated-value``)."""
    spans = gather(data, cursor, np.minimum(limit - cursor, 3 * counts))
    last = spans.data < 0x80
    before = offsets_of(last.view(np.uint8))[spans.offsets]
    complete = np.diff(before)
    overlong = (complete < counts) & (spans.lengths == 3 * counts)
    refuse(overlong, complete, "string", "characters of at most 3 bytes", "bad-string")
    refuse(complete < counts, complete, "string", "more characters", "truncated-value")
    ends = np.flatnonzero(last)[positions(before[:-1], counts)]
    begins = np.empty_like(ends)
    begins[1:] = ends[:-1] + 1
    rows = offsets_of(counts)
    begins[rows[:-1]] = spans.starts
    size = ends - begins + 1
    units = spans.data[begins].astype(np.uint32) & np.uint32(0x7F)
    for k in (1, 2):
        more = np.flatnonzero(size > k)
        units[more] |= (spans.data[begins[more] + k] & np.uint32(0x7F)) << np.uint32(7 * k)
    if len(size) and (int(size.max()) > 3 or int(units.max()) > 0xFFFF):
        raise CorruptStateError("string: expected characters of at most 16 bits, found a larger one", kind="bad-string")
    return units, cursor + ends[rows[1:] - 1] + 1 - spans.starts
