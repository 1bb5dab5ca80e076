"""The bytes of one binary row or array, from which typed JSON is read slot by slot.

Source: docs/spec/formats.md#binary-rows.
"""

import struct

from statelib.errors import CorruptStateError
from statelib.serializers.sql.values.slots import SLOT_BYTES


class Region:
    """The bytes of a row, array or map. ``what`` names them in errors.

    The parts that slots refer to are distinct. Otherwise a short row could hold endlessly many values."""

    def __init__(self, data: memoryview, what: str) -> None:
        self.data = data
        self.what = what
        self._left = len(data)

    def bytes_at(self, start: int, size: int) -> memoryview:
        """Return ``size`` bytes from ``start`` on. Raise CorruptStateError (``bad-binary-row``)."""
        if start < 0 or size < 0 or start + size > len(self.data):
            raise CorruptStateError(
                f"{self.what}: expected {size} bytes at byte {start} of a binary row, found {len(self.data)} in all",
                kind="bad-binary-row",
            )
        return self.data[start : start + size]

    def number(self, start: int, size: int) -> int:
        """Return the little-endian number of ``size`` bytes."""
        return int.from_bytes(self.bytes_at(start, size), "little")

    def slot(self, at: int) -> tuple[bytes, int, int]:
        """Return the bytes of the slot at ``at``, and its lower and upper half as numbers."""
        slot = bytes(self.bytes_at(at, SLOT_BYTES))
        low, high = struct.unpack("<II", slot)
        return slot, low, high

    def part(self, start: int, size: int) -> memoryview:
        """Return the bytes that a slot refers to. Raise CorruptStateError (``bad-binary-row``)."""
        self._left -= size
        if self._left < 0:
            raise CorruptStateError(
                f"{self.what}: values of more than the {len(self.data)} bytes of their binary row",
                kind="bad-binary-row",
            )
        return self.bytes_at(start, size)
