"""A Reader that remembers what a parser read: where, how long, what it is called, and its value.

Any parser of headers or metadata that is handed one annotates its bytes, as far as it comes.
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
    """One value that a parser read: ``size_bytes`` at ``offset``. ``verb``: how it is stored (``i32``, ``utf``,
    ``bytes``, ...); ``parts``: what it belongs to, outermost first; ``name`` is '' where the parser gives none."""

    offset: int
    size_bytes: int
    verb: str
    name: str
    value: Value = field(repr=False)
    parts: tuple[str, ...] = ()


class RecordingReader(Reader):
    """``fields``: in the order of reading, without gaps; a read that fails leaves none,
    and the reader where it began."""

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

    def _kept(self, verb: str, name: str, read: Callable[[], T]) -> T:
        """Only the outermost verb counts: a text is one field, not a length and its bytes."""
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
        """One field of all that ``read`` reads, with the value that it returns."""
        return self._kept("typed", name, lambda: read(self))

    def take(self, size: int, name: str = "") -> memoryview:
        return self._kept("bytes", name, lambda: super(RecordingReader, self).take(size))

    def count(self, size_bytes: int = 1, name: str = "") -> int:
        return self._kept("i32", name or "count", lambda: super(RecordingReader, self).count(size_bytes))

    def u8(self, name: str = "") -> int:
        return self._kept("u8", name, super().u8)

    def i8(self, name: str = "") -> int:
        return self._kept("i8", name, super().i8)

    def i16(self, name: str = "") -> int:
        return self._kept("i16", name, super().i16)

    def u16(self, name: str = "") -> int:
        return self._kept("u16", name, super().u16)

    def i32(self, name: str = "") -> int:
        return self._kept("i32", name, super().i32)

    def u32(self, name: str = "") -> int:
        return self._kept("u32", name, super().u32)

    def i64(self, name: str = "") -> int:
        return self._kept("i64", name, super().i64)

    def u64(self, name: str = "") -> int:
        return self._kept("u64", name, super().u64)

    def f32(self, name: str = "") -> float:
        return self._kept("f32", name, super().f32)

    def f64(self, name: str = "") -> float:
        return self._kept("f64", name, super().f64)

    def bool(self, name: str = "") -> bool:
        return self._kept("bool", name, super().bool)

    def utf(self, name: str = "") -> str:
        return self._kept("utf", name, super().utf)
