"""The bounded, big-endian reader of headers and metadata. Bulk data is read as arrays instead.

Source: docs/spec/formats.md#conventions (Java's ``DataInput``).
"""

import struct
from contextlib import AbstractContextManager, nullcontext

from statelib.errors import CorruptStateError, UnsupportedError
from statelib.wire import modified_utf8

_I16, _U16, _I32, _U32, _I64, _U64 = (struct.Struct(f) for f in (">h", ">H", ">i", ">I", ">q", ">Q"))
_F32, _F64, _I8 = struct.Struct(">f"), struct.Struct(">d"), struct.Struct(">b")

_NO_PART = nullcontext()


class Reader:
    """A cursor over ``data``. ``what`` names the bytes in errors (a path, or ``keyed header``).

    Methods named after a type (``u8``, ``i32``, ``f64``, ...) return one number of that type. Each reading method moves
    ``offset`` past the value that it returns. If the bytes end first, it raises CorruptStateError (``truncated``) and
    does not move. The ``name`` of a value, and :meth:`part`, are for :class:`~statelib.wire.recording.RecordingReader`;
    this class ignores them.
    """

    def __init__(self, data: bytes | bytearray | memoryview, what: str) -> None:
        self._data = memoryview(data).cast("B")
        self.what = what
        self.offset = 0

    @property
    def remaining(self) -> int:
        """The number of bytes that have not been read."""
        return len(self._data) - self.offset

    def take(self, size: int, name: str = "") -> memoryview:  # noqa: ARG002
        """Return the next ``size`` bytes without a copy. A negative size is an error too."""
        if not 0 <= size <= self.remaining:
            raise CorruptStateError(
                f"{self.what}: expected {size} bytes at offset {self.offset}, found {self.remaining}", kind="truncated"
            )
        start = self.offset
        self.offset += size
        return self._data[start : self.offset]

    def part(self, name: str) -> AbstractContextManager[None]:  # noqa: ARG002
        """Return a context: all values that are read in it belong to the part with that name."""
        return _NO_PART

    def since(self, start: int) -> memoryview:
        """Return the bytes from ``start`` to the current offset, which were read before."""
        return self._data[start : self.offset]

    def count(self, size_bytes: int = 1, name: str = "") -> int:  # noqa: ARG002
        """Return an i32 count of items that take at least ``size_bytes`` each.

        It is checked against the remaining bytes, so that no memory is reserved for a damaged count. Raise
        CorruptStateError (``bad-count``).
        """
        at = self.offset
        value = self.i32()
        if not 0 <= value * size_bytes <= self.remaining:
            self.offset = at
            raise CorruptStateError(
                f"{self.what}: count {value} at offset {at}, expected 0 to {self.remaining // max(size_bytes, 1)}",
                kind="bad-count",
            )
        return value

    def peek(self) -> int:
        """Return the next byte without moving past it."""
        tag = self.u8()
        self.offset -= 1
        return tag

    def u8(self, name: str = "") -> int:  # noqa: ARG002
        return self.take(1)[0]

    def i8(self, name: str = "") -> int:  # noqa: ARG002
        return int(_I8.unpack(self.take(1))[0])

    def i16(self, name: str = "") -> int:  # noqa: ARG002
        return int(_I16.unpack(self.take(2))[0])

    def u16(self, name: str = "") -> int:  # noqa: ARG002
        return int(_U16.unpack(self.take(2))[0])

    def i32(self, name: str = "") -> int:  # noqa: ARG002
        return int(_I32.unpack(self.take(4))[0])

    def u32(self, name: str = "") -> int:  # noqa: ARG002
        return int(_U32.unpack(self.take(4))[0])

    def i64(self, name: str = "") -> int:  # noqa: ARG002
        return int(_I64.unpack(self.take(8))[0])

    def u64(self, name: str = "") -> int:  # noqa: ARG002
        return int(_U64.unpack(self.take(8))[0])

    def f32(self, name: str = "") -> float:  # noqa: ARG002
        return float(_F32.unpack(self.take(4))[0])

    def f64(self, name: str = "") -> float:  # noqa: ARG002
        return float(_F64.unpack(self.take(8))[0])

    def bool(self, name: str = "") -> bool:  # noqa: ARG002
        """Return one byte as a boolean; as in Java, any value but 0 is true."""
        return self.take(1)[0] != 0

    def utf(self, name: str = "") -> str:  # noqa: ARG002
        """Return a text: a u16 length in bytes, then modified UTF-8.

        Texts are names here. Raise UnsupportedError (``half-surrogate``) for a lone surrogate, because no file, column
        or terminal can hold it, and CorruptStateError (``bad-utf``).
        """
        at = self.offset
        size = self.u16()
        text = modified_utf8.decode(bytes(self.take(size)), f"{self.what} at offset {at}")
        if not text.isascii() and any("\ud800" <= c <= "\udfff" for c in text):
            raise UnsupportedError(
                f"{self.what} at offset {at}: half a surrogate pair in the name {text[:200]!r}", kind="half-surrogate"
            )
        return text
