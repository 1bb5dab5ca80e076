"""The writer of big-endian headers and metadata, the counterpart of :class:`statelib.wire.reader.Reader`.

Source: docs/spec/formats.md#conventions (Java's ``DataOutput``).
"""

import struct

from statelib.errors import InvalidRequestError
from statelib.wire import modified_utf8

_I16, _U16, _I32, _U32, _I64, _U64 = (struct.Struct(f) for f in (">h", ">H", ">i", ">I", ">q", ">Q"))
_F32, _F64, _I8, _U8 = struct.Struct(">f"), struct.Struct(">d"), struct.Struct(">b"), struct.Struct(">B")


class Writer:
    """A growing buffer of big-endian bytes. Methods named after a type (``u8``, ``i32``, ``f64``, ...) append one
    number of that type.

    A number that is out of its range raises InvalidRequestError (``out-of-range``).
    """

    def __init__(self) -> None:
        self._data = bytearray()

    @property
    def offset(self) -> int:
        """The number of bytes written so far."""
        return len(self._data)

    def getvalue(self) -> bytes:
        """Return all bytes written so far."""
        return bytes(self._data)

    def put(self, data: bytes | bytearray | memoryview) -> None:
        """Append bytes without a length."""
        self._data += data

    def u8(self, value: int) -> None:
        self._pack(_U8, value)

    def i8(self, value: int) -> None:
        self._pack(_I8, value)

    def i16(self, value: int) -> None:
        self._pack(_I16, value)

    def u16(self, value: int) -> None:
        self._pack(_U16, value)

    def i32(self, value: int) -> None:
        self._pack(_I32, value)

    def u32(self, value: int) -> None:
        self._pack(_U32, value)

    def i64(self, value: int) -> None:
        self._pack(_I64, value)

    def u64(self, value: int) -> None:
        self._pack(_U64, value)

    def f32(self, value: float) -> None:
        self._data += _F32.pack(value)

    def f64(self, value: float) -> None:
        self._data += _F64.pack(value)

    def bool(self, value: bool) -> None:
        """Append one byte: 1 for true, 0 for false."""
        self._data.append(1 if value else 0)

    def utf(self, text: str) -> None:
        """Append a text: a u16 length in bytes, then modified UTF-8.

        Raise InvalidRequestError (``text-too-long``) if it takes more than 65535 bytes.
        """
        data = modified_utf8.encode(text)
        if len(data) > 0xFFFF:
            raise InvalidRequestError(
                f"text {text[:40]!r}...: expected at most 65535 bytes of modified UTF-8, found {len(data)}",
                kind="text-too-long",
            )
        self.u16(len(data))
        self._data += data

    def _pack(self, layout: struct.Struct, value: int) -> None:
        try:
            self._data += layout.pack(value)
        except struct.error as error:
            raise InvalidRequestError(
                f"number {value} at offset {self.offset}: expected one that fits {layout.size} bytes",
                kind="out-of-range",
            ) from error
