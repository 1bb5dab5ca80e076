"""Every backend keeps the contract of the port."""

from pathlib import Path

import pytest

from statelib.backends.heap.backend import HeapKeyedStateBackend
from statelib.backends.keyed import KeyedStateBackend
from statelib.backends.rocksdb.backend import RocksDBKeyedStateBackend
from statelib.backends.rocksdb.writing import new_tables
from statelib.backends.wrappers.changelog import ChangelogKeyedStateBackend
from statelib.model.key_groups import KeyGroupRange
from statelib.model.state import KeyedStateSchema
from statelib.testing.suites.backend import KeyedStateBackendSuite


class TestHeap(KeyedStateBackendSuite):
    def make(self, schema: KeyedStateSchema, key_group_range: KeyGroupRange, directory: Path) -> KeyedStateBackend:
        return HeapKeyedStateBackend(schema, key_group_range)


class TestRocksDB(KeyedStateBackendSuite):
    def make(self, schema: KeyedStateSchema, key_group_range: KeyGroupRange, directory: Path) -> KeyedStateBackend:
        return RocksDBKeyedStateBackend(schema, key_group_range, str(directory), "5a7b0000-0000-0000-0000-000000000000")


class _WrittenAnew:
    """A state is written anew by each change of half of its entries, however few they are."""

    @pytest.fixture(autouse=True)
    def few_keys(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(new_tables, "FEWEST_ENTRIES", 1)


class TestRocksDBWrittenAnew(_WrittenAnew, TestRocksDB):
    pass


class _Logging:
    """A backend with a log of its changes. With ``limit_bytes`` 0 it keeps no log, as if no snapshot could be
    continued."""

    limit_bytes = 1 << 20

    def make(self, schema: KeyedStateSchema, key_group_range: KeyGroupRange, directory: Path) -> KeyedStateBackend:
        inner = super().make(schema, key_group_range, directory)
        return ChangelogKeyedStateBackend(inner, self.limit_bytes)


class TestHeapWithLog(_Logging, TestHeap):
    pass


class TestRocksDBWithLog(_Logging, TestRocksDB):
    pass


class TestRocksDBWrittenAnewWithLog(_WrittenAnew, TestRocksDBWithLog):
    pass


class TestRocksDBWithoutLog(_Logging, TestRocksDB):
    limit_bytes = 0
