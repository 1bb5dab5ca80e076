"""Reader: bounded, big-endian reading of headers and metadata (cold bytes; hot bytes move as arrays).

Source: flink-formats.md, conventions (Java's ``DataInput``).
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

    Every verb moves ``offset`` past what it returns, and raises CorruptStateError (kind
    ``truncated``) without moving when the bytes end before that. The ``name`` of what is read, and
    :meth:`part`, are for :class:`~statelib.wire.recording.RecordingReader`; here they do nothing.
    """

    def __init__(self, data: bytes | bytearray | memoryview, what: str) -> None:
        self._data = memoryview(data).cast("B")
        self.what = what
        self.offset = 0

    @property
    def remaining(self) -> int:
        """Bytes not yet read."""
        return len(self._data) - self.offset

    def take(self, size: int, name: str = "") -> memoryview:  # noqa: ARG002
        """The next ``size`` bytes, not copied; a negative size is as corrupt as one too large."""
        if not 0 <= size <= self.remaining:
            raise CorruptStateError(
                f"{self.what}: expected {size} bytes at offset {self.offset}, found {self.remaining}", kind="truncated"
            )
        start = self.offset
        self.offset += size
        return self._data[start : self.offset]

    def part(self, name: str) -> AbstractContextManager[None]:  # noqa: ARG002
        """What is read within belongs to a part of that name."""
        return _NO_PART

    def since(self, start: int) -> memoryview:
        """The bytes from ``start`` up to here, once more."""
        return self._data[start : self.offset]

    def count(self, size_bytes: int = 1, name: str = "") -> int:  # noqa: ARG002
        """An i32 count of items of at least ``size_bytes`` each, checked against what is left,
        so that nobody allocates by a damaged count. Raises CorruptStateError (``bad-count``)."""
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
        """The next byte, which stays where it is."""
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
        """One byte; as in Java, anything but 0 is true."""
        return self.take(1)[0] != 0

    def utf(self, name: str = "") -> str:  # noqa: ARG002
        """u16 byte length, then modified UTF-8: a name, hence UnsupportedError (``half-surrogate``) where no file,
        no column and no terminal could hold it."""
        at = self.offset
        size = self.u16()
        text = modified_utf8.decode(bytes(self.take(size)), f"{self.what} at offset {at}")
        if not text.isascii() and any("\ud800" <= c <= "\udfff" for c in text):
            raise UnsupportedError(
                f"{self.what} at offset {at}: half a surrogate pair in the name {text[:200]!r}", kind="half-surrogate"
            )
        return text
