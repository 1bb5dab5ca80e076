"""The reader of RocksDB's MANIFEST file, the log of the changes to the set of tables of a database.

Source: docs/spec/formats.md#rocksdb-manifest; RocksDB's documentation of the MANIFEST.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from statelib.errors import CorruptStateError
from statelib.wire.checksum import crc32c

_BLOCK = 32768
_HEADER = 7
_FULL, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4
_TRAILING = 8
"""The size in bytes of what follows the user key of a bound: the kind of entry, and a sequence number."""
_COMPARATOR = 1
_NUMBERS = {2: 1, 3: 1, 4: 1, 9: 1, 10: 1, 203: 1, 300: 1}
"""The tags whose fields are only numbers, which this reader does not need -> the number of them."""
_IGNORABLE = 1 << 13
"""The bit of the tags whose field is a text that every reader may skip."""
_END_OF_FIELDS = 1


@dataclass(frozen=True)
class LiveTable:
    """A table of a database. ``file``: its name. ``smallest`` and ``largest``: the bounds of its user keys."""

    family: str
    file: str
    size_bytes: int
    smallest: bytes
    largest: bytes


def live_tables(data: bytes | memoryview, what: str) -> list[LiveTable]:
    """Return the tables that the database consists of after all changes in the MANIFEST ``data``.

    ``what`` names the file in errors. Raises CorruptStateError (``corrupt-rocksdb``)."""
    tables: dict[tuple[int, int], tuple[int, bytes, bytes]] = {}
    families = {0: "default"}
    try:
        for record in _records(memoryview(data).cast("B"), what):
            _apply(record, tables, families)
        return [
            LiveTable(families[family], f"{number:06d}.sst", *table)
            for (family, number), table in sorted(tables.items())
            if family in families
        ]
    except (IndexError, KeyError, UnicodeDecodeError) as error:
        raise _corrupt(what, f"a change cannot be decoded ({error})") from error


@dataclass
class _Change:
    """The content of one record: changes to one column family. ``added``: (size, smallest, largest key) by number."""

    family: int = 0
    name: str = ""
    dropped: bool = False
    added: dict[int, tuple[int, bytes, bytes]] = field(default_factory=dict)
    deleted: list[int] = field(default_factory=list)


def _apply(record: bytes, tables: dict[tuple[int, int], tuple[int, bytes, bytes]], families: dict[int, str]) -> None:
    """Apply one record. A table that moves to another level is deleted and added by the same record."""
    change, fields = _Change(), _Fields(record)
    while fields.left:
        _read_field(change, fields)
    if change.name:
        families[change.family] = change.name
    if change.dropped:
        del families[change.family]
    for number in change.deleted:
        del tables[change.family, number]
    tables.update({(change.family, number): table for number, table in change.added.items()})


def _read_field(change: _Change, fields: "_Fields") -> None:
    match fields.number():
        case 6:
            change.deleted.append(fields.numbers(2)[1])
        case 103:
            number, table = fields.table()
            change.added[number] = table
        case 200:
            change.family = fields.number()
        case 201:
            change.name = fields.text().decode()
        case 202:
            change.dropped = True
        case tag:
            fields.skip(tag)


class _Fields:
    """A cursor over the fields of a record. Raises IndexError where the record ends too early."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    @property
    def left(self) -> bool:
        return self._at < len(self._data)

    def number(self) -> int:
        value = shift = 0
        while True:
            byte = self._data[self._at]
            self._at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    def numbers(self, count: int) -> list[int]:
        return [self.number() for _ in range(count)]

    def text(self) -> bytes:
        size = self.number()
        self._at += size
        if self._at > len(self._data):
            raise IndexError(f"a text of {size} bytes")
        return self._data[self._at - size : self._at]

    def table(self) -> tuple[int, tuple[int, bytes, bytes]]:
        """Return the number of a new table, and its size and bounds."""
        _level, number, size = self.numbers(3)
        smallest, largest = self.text(), self.text()
        self.numbers(2)
        while self.number() != _END_OF_FIELDS:
            self.text()
        return number, (size, smallest[:-_TRAILING], largest[:-_TRAILING])

    def skip(self, tag: int) -> None:
        """Skip the field of a tag that does not change the set of tables. Raises KeyError for an unknown tag."""
        if tag == _COMPARATOR or tag & _IGNORABLE:
            self.text()
        else:
            self.numbers(_NUMBERS[tag])


def _records(data: memoryview, what: str) -> Iterator[bytes]:
    """Yield the records of the log. The zeros behind the last one are space that was reserved."""
    parts: list[bytes] = []
    for kind, part in _fragments(data, what):
        if (kind in (_FULL, _FIRST)) == bool(parts) or kind > _LAST:
            raise _corrupt(what, f"a piece of kind {kind} is out of order")
        parts.append(part)
        if kind in (_FULL, _LAST):
            yield b"".join(parts)
            parts = []
    if parts:
        raise _corrupt(what, "its last change is cut")


def _fragments(data: memoryview, what: str) -> Iterator[tuple[int, bytes]]:
    """Yield (kind, bytes) of each piece of a record. A record does not continue in a block without a new piece."""
    at = 0
    while at + _HEADER <= len(data):
        if _BLOCK - at % _BLOCK < _HEADER:
            at += _BLOCK - at % _BLOCK
            continue
        size, kind = int.from_bytes(data[at + 4 : at + 6], "little"), data[at + 6]
        if not kind and not size:
            return
        end = at + _HEADER + size
        if end > len(data) or int.from_bytes(data[at : at + 4], "little") != _masked(data[at + 6 : end]):
            raise _corrupt(what, f"the piece at byte {at} is damaged")
        yield kind, bytes(data[at + _HEADER : end])
        at = end


def _masked(data: memoryview) -> int:
    """Return the CRC-32C of a piece as RocksDB stores it."""
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def _corrupt(what: str, problem: str) -> CorruptStateError:
    return CorruptStateError(f"RocksDB's {what}: {problem}", kind="corrupt-rocksdb")
