"""Every backend keeps the contract of the port."""

from pathlib import Path

import pytest

from statelib.backends.heap.backend import HeapKeyedStateBackend
from statelib.backends.keyed import KeyedStateBackend
from statelib.backends.rocksdb.backend import RocksDBKeyedStateBackend
from statelib.backends.rocksdb.writing import new_tables
from statelib.backends.wrappers.changelog import ChangelogKeyedStateBackend
from statelib.model.key_groups import KeyGroupRange, all_key_groups
from statelib.model.state import KeyedStateSchema
from statelib.serializers.entries.rows import StateRows
from statelib.testing.keyed_samples import all_entries, put_and_reuse, sample_schema, serialized
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

    def test_the_log_has_what_was_written_whatever_its_caller_does_then(self, tmp_path: Path) -> None:
        schema = sample_schema()
        backend = self.make(schema, all_key_groups(schema.max_parallelism), tmp_path / "backend")
        put_and_reuse(backend, "totals", ["a", "b"], [{"count": 7, "last": "seven"}, {"count": 8, "last": None}])
        put_and_reuse(backend, "visits", ["a", "b"], [[1, 2], [3]])
        put_and_reuse(backend, "visits", ["b", "c"], [None, [4]])
        assert isinstance(backend, ChangelogKeyedStateBackend)
        changes = backend.changes_since(0)
        if changes is None:
            assert self.limit_bytes == 0
        else:
            put = {state.name: _entries(change.updated) for state, change in zip(schema.states, changes, strict=True)}
            assert put == all_entries(backend)
            removed = [change.removed.to_list() for change in changes]
            assert removed == [[], [], serialized(schema, "visits", ["b"]).to_list(), []]
        backend.close()


def _entries(rows: StateRows) -> dict[bytes, bytes]:
    return dict(zip(rows.keys.to_list(), rows.values.to_list(), strict=True))


class TestHeapWithLog(_Logging, TestHeap):
    pass


class TestRocksDBWithLog(_Logging, TestRocksDB):
    pass


class TestRocksDBWrittenAnewWithLog(_WrittenAnew, TestRocksDBWithLog):
    pass


class TestRocksDBWithoutLog(_Logging, TestRocksDB):
    limit_bytes = 0
