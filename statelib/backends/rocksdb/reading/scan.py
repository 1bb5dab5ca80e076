"""Reading a column family in key order, entry by entry. Damage raises an error and never shortens the result.

The library's ``items()`` ends without an error at a damaged block. A raw iterator has a status, which is checked here.
"""

from collections.abc import Callable
from typing import Self

from rocksdict import Rdict, RdictIter

from statelib.backends.entries import SCAN_BYTES, SCAN_ROWS
from statelib.backends.rocksdb.database import rocksdb_errors
from statelib.serializers.entries.rows import StateRows
from statelib.wire.ragged import from_list


class RocksDBScan:
    """A :class:`~statelib.backends.keyed.StateScan` of one column family at the moment when it is created.

    The keys are in [first, stop). ``release`` is called once, when the scan is closed or has reached its
    end. Raises CorruptStateError (``corrupt-rocksdb``)."""

    def __init__(
        self,
        family: Rdict,
        directory: str,
        release: Callable[[], None] = lambda: None,
        first: bytes = b"",
        stop: bytes | None = None,
    ) -> None:
        self._directory = directory
        self._release = release
        self._stop = stop
        with rocksdb_errors(directory, "starting a scan"):
            iterator = family.iter()
            iterator.seek(first) if first else iterator.seek_to_first()
        self._iterator: RdictIter | None = iterator

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> StateRows:
        if self._iterator is None:
            raise StopIteration
        with rocksdb_errors(self._directory, "scanning it"):
            keys, values = _take(self._iterator, self._stop)
            self._iterator.status()
        if not keys:
            self.close()
            raise StopIteration
        return StateRows(from_list(keys), from_list(values))

    def close(self) -> None:
        if self._iterator is not None:
            self._iterator = None
            self._release()


def _take(iterator: RdictIter, stop: bytes | None) -> tuple[list[bytes], list[bytes]]:
    """Return the keys and values of the next batch of entries; both are empty at the end."""
    keys: list[bytes] = []
    values: list[bytes] = []
    valid, key, value, step = iterator.valid, iterator.key, iterator.value, iterator.next
    left = SCAN_BYTES
    for _ in range(SCAN_ROWS):
        if left <= 0 or not valid():
            break
        key_bytes = key()
        if stop is not None and key_bytes >= stop:
            break
        value_bytes = value()
        keys.append(key_bytes)
        values.append(value_bytes)
        left -= len(key_bytes) + len(value_bytes)
        step()
    return keys, values
