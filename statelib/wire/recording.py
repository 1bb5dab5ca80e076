"""A Reader that records each value that a parser reads: its offset, size, name and content.

Any parser of headers or metadata that gets such a reader thereby annotates its bytes, up to the first damaged one.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from statelib.errors import CorruptStateError
from statelib.wire.reader import Reader

T = TypeVar("T")
Value = int | float | bool | str | memoryview


@dataclass(frozen=True)
class ReadField:
    """One value that a parser read: ``size_bytes`` bytes at ``offset``.

    ``verb``: the encoding of the value (``i32``, ``utf``, ``bytes``, ...). ``name``: '' if the parser gives none.
    ``parts``: the parts that the value belongs to, the outermost first.
    """

    offset: int
    size_bytes: int
    verb: str
    name: str
    value: Value = field(repr=False)
    parts: tuple[str, ...] = ()


class RecordingReader(Reader):
    """A Reader that records in ``fields`` all values that are read, in order and without gaps.

    A failed read adds no field, and leaves the offset as it was.
    """

    def __init__(self, data: bytes | bytearray | memoryview, what: str) -> None:
        super().__init__(data, what)
        self.fields: list[ReadField] = []
        self._parts: tuple[str, ...] = ()
        self._within = False

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        outer = self._parts
        self._parts = (*outer, name)
        try:
            yield
        finally:
            self._parts = outer

    def _recorded(self, verb: str, name: str, read: Callable[[], T]) -> T:
        """Return the value that ``read`` reads, and record it as a field.

        Calls within ``read`` record nothing: a text is one field, not a length and its bytes.
        """
        if self._within:
            return read()
        start, self._within = self.offset, True
        try:
            value = read()
        except CorruptStateError:
            self.offset = start
            raise
        finally:
            self._within = False
        assert isinstance(value, int | float | str | memoryview)
        self.fields.append(ReadField(start, self.offset - start, verb, name, value, self._parts))
        return value

    def peek(self) -> int:
        outer, self._within = self._within, True
        try:
            return super().peek()
        finally:
            self._within = outer

    def typed(self, name: str, read: Callable[[Reader], Value]) -> Value:
        """Return the value of ``read``; all bytes that it reads are recorded as one field."""
        return self._recorded("typed", name, lambda: read(self))

    def take(self, size: int, name: str = "") -> memoryview:
        return self._recorded("bytes", name, lambda: super(RecordingReader, self).take(size))

    def count(self, size_bytes: int = 1, name: str = "") -> int:
        return self._recorded("i32", name or "count", lambda: super(RecordingReader, self).count(size_bytes))

    def u8(self, name: str = "") -> int:
        return self._recorded("u8", name, super().u8)

    def i8(self, name: str = "") -> int:
        return self._recorded("i8", name, super().i8)

    def i16(self, name: str = "") -> int:
        return self._recorded("i16", name, super().i16)

    def u16(self, name: str = "") -> int:
        return self._recorded("u16", name, super().u16)

    def i32(self, name: str = "") -> int:
        return self._recorded("i32", name, super().i32)

    def u32(self, name: str = "") -> int:
        return self._recorded("u32", name, super().u32)

    def i64(self, name: str = "") -> int:
        return self._recorded("i64", name, super().i64)

    def u64(self, name: str = "") -> int:
        return self._recorded("u64", name, super().u64)

    def f32(self, name: str = "") -> float:
        return self._recorded("f32", name, super().f32)

    def f64(self, name: str = "") -> float:
        return self._recorded("f64", name, super().f64)

    def bool(self, name: str = "") -> bool:
        return self._recorded("bool", name, super().bool)

    def utf(self, name: str = "") -> str:
        return self._recorded("utf", name, super().utf)
