"""Both backends keep the contract of the port."""

from pathlib import Path

from statelib.backends.heap.backend import HeapKeyedStateBackend
from statelib.backends.keyed import KeyedStateBackend
from statelib.backends.rocksdb.backend import RocksDBKeyedStateBackend
from statelib.model.key_groups import KeyGroupRange
from statelib.model.state import KeyedStateSchema
from statelib.testing.backend_suite import KeyedStateBackendSuite


class TestHeap(KeyedStateBackendSuite):
    def make(self, schema: KeyedStateSchema, key_group_range: KeyGroupRange, directory: Path) -> KeyedStateBackend:
        return HeapKeyedStateBackend(schema, key_group_range)


class TestRocksDB(KeyedStateBackendSuite):
    def make(self, schema: KeyedStateSchema, key_group_range: KeyGroupRange, directory: Path) -> KeyedStateBackend:
        return RocksDBKeyedStateBackend(schema, key_group_range, str(directory), "5a7b0000-0000-0000-0000-000000000000")
