"""The contract of a keyed state backend as tests.

The test class of an implementation subclasses :class:`KeyedStateBackendSuite` and overrides ``make``, nothing else.
"""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from statelib.backends.keyed import KeyedStateBackend
from statelib.errors import CorruptStateError, InvalidRequestError
from statelib.model.key_groups import KeyGroupRange, all_key_groups, prefix_width
from statelib.model.state import KeyedStateSchema
from statelib.serializers.entries.rows import StateRows, statistics_of
from statelib.serializers.entries.values import value_arrow_type
from statelib.testing.keyed_samples import (
    TOTALS,
    all_entries,
    entries,
    fill,
    got,
    owned,
    put,
    put_and_reuse,
    sample_schema,
    scanned,
    serialized,
)
from statelib.wire.ragged import concat, from_list


class KeyedStateBackendSuite:
    """The tests that every implementation of :class:`~statelib.backends.keyed.KeyedStateBackend` passes."""

    def make(self, schema: KeyedStateSchema, key_group_range: KeyGroupRange, directory: Path) -> KeyedStateBackend:
        """Return a new, empty backend. ``directory`` does not exist yet, and only this backend uses it."""
        raise NotImplementedError

    @pytest.fixture
    def backend(self, tmp_path: Path) -> Iterator[KeyedStateBackend]:
        schema = sample_schema()
        backend = self.make(schema, all_key_groups(schema.max_parallelism), tmp_path / "backend")
        yield backend
        backend.close()

    def test_a_key_that_was_never_written_is_absent(self, backend: KeyedStateBackend) -> None:
        read = backend.read("means", serialized(backend.schema, "means", ["a", "b"]))
        assert read.present.to_pylist() == [False, False]
        assert read.values.to_pylist() == [None, None]
        assert read.values.type == pa.float64()

    def test_values_are_read_in_the_requested_order(self, backend: KeyedStateBackend) -> None:
        put(backend, "totals", ["b", "a", "c"], [{"count": i, "last": str(i)} for i in (2, 1, 3)])
        expected = [{"count": 3, "last": "3"}, None, {"count": 1, "last": "1"}, {"count": 2, "last": "2"}]
        assert got(backend, "totals", ["c", "x", "a", "b"]) == expected

    def test_a_write_replaces_inserts_and_removes_in_one_call(self, backend: KeyedStateBackend) -> None:
        put(backend, "means", ["a", "b", "c"], [1.0, 2.0, 3.0])
        put(backend, "means", ["d", "c", "a", "x"], [4.0, None, 1.5, None])
        assert got(backend, "means", ["a", "b", "c", "d", "x"]) == [1.5, 2.0, None, 4.0, None]
        assert len(entries(backend, "means")) == 3

    def test_a_removed_key_can_be_written_again(self, backend: KeyedStateBackend) -> None:
        for value in (1.0, None, 2.0):
            put(backend, "means", ["a"], [value])
        assert got(backend, "means", ["a"]) == [2.0]

    def test_nothing_is_left_when_all_keys_are_removed(self, backend: KeyedStateBackend) -> None:
        keys = [f"k{i}" for i in range(100)]
        put(backend, "means", keys, [float(i) for i in range(100)])
        put(backend, "means", keys[::-1], [None] * 100)
        assert entries(backend, "means") == {}
        statistics = backend.statistics()[1]
        assert statistics.total_entries == 0
        assert not statistics.digests.any()

    def test_states_do_not_affect_each_other(self, backend: KeyedStateBackend) -> None:
        put(backend, "means", ["a"], [1.0])
        put(backend, "visits", ["a"], [[1, 2]])
        put(backend, "means", ["a"], [None])
        assert got(backend, "visits", ["a"]) == [[1, 2]]

    def test_an_empty_list_is_stored_as_no_entry(self, backend: KeyedStateBackend) -> None:
        put(backend, "visits", ["a", "b"], [[1], []])
        put(backend, "visits", ["a"], [[]])
        assert got(backend, "visits", ["a", "b"]) == [None, None]
        assert entries(backend, "visits") == {}

    def test_map_entries_are_distinguished_by_their_user_key(self, backend: KeyedStateBackend) -> None:
        put(backend, "per_place", ["a", "a", "b"], [1, 2, 3], ["ATL", "JFK", "ATL"])
        assert got(backend, "per_place", ["a", "b", "a", "b"], ["JFK", "ATL", "ATL", "JFK"]) == [2, 3, 1, None]

    def test_a_null_map_value_is_an_entry(self, backend: KeyedStateBackend) -> None:
        keys = serialized(backend.schema, "per_place", ["a", "b"], ["ATL", "ATL"])
        backend.write(backend.read("per_place", keys), "per_place", pa.array([None, 1], pa.int64()))
        read = backend.read("per_place", keys)
        assert read.present.to_pylist() == [True, True]
        assert read.values.to_pylist() == [None, 1]

    def test_reading_or_writing_no_keys_changes_nothing(self, backend: KeyedStateBackend) -> None:
        fill(backend, 10)
        before = all_entries(backend)
        for descriptor in backend.schema.states:
            read = backend.read(descriptor.name, from_list([]))
            assert len(read.present) == 0
            backend.write(read, descriptor.name, pa.array([], value_arrow_type(descriptor)))
        assert all_entries(backend) == before

    def test_a_read_stays_valid_while_other_keys_are_written(self, backend: KeyedStateBackend) -> None:
        put(backend, "means", ["a", "b", "c"], [1.0, 2.0, 3.0])
        keys = serialized(backend.schema, "means", ["c", "new"])
        read = backend.read("means", keys)
        put(backend, "means", ["a", "b", "z"], [None, 2.5, 9.0])
        backend.write(read, "means", pa.array([3.5, 4.0]))
        assert got(backend, "means", ["a", "b", "c", "new", "z"]) == [None, 2.5, 3.5, 4.0, 9.0]
        _check_statistics(backend)

    def test_a_write_leaves_the_columns_to_the_caller(self, backend: KeyedStateBackend) -> None:
        totals = [{"count": 7, "last": "seven"}, {"count": 8, "last": None}]
        put(backend, "means", ["c"], [9.0])
        lent = [
            *put_and_reuse(backend, "totals", ["a", "b"], totals),
            *put_and_reuse(backend, "means", ["a", "b", "c"], [1.5, 2.5, None]),
            *put_and_reuse(backend, "visits", ["a", "b"], [[1, 2], [3]]),
            *put_and_reuse(backend, "per_place", ["a", "a"], [4, 5], ["ATL", "JFK"]),
        ]
        assert got(backend, "totals", ["a", "b"]) == totals
        assert got(backend, "means", ["a", "b", "c"]) == [1.5, 2.5, None]
        assert got(backend, "visits", ["a", "b"]) == [[1, 2], [3]]
        assert got(backend, "per_place", ["a", "a"], ["ATL", "JFK"]) == [4, 5]
        _check_statistics(backend)
        assert all(memory() is None for memory in lent), "the backend refers to memory of its caller"

    def test_a_null_that_removes_nothing_is_refused(self, backend: KeyedStateBackend) -> None:
        keys = serialized(backend.schema, "means", ["a", "b"])
        with pytest.raises(InvalidRequestError, match=r"means.*row 1") as caught:
            backend.write(backend.read("means", keys), "means", pa.array([1.0, None]))
        assert caught.value.kind == "null-value"
        assert entries(backend, "means") == {}

    def test_values_of_another_type_are_refused(self, backend: KeyedStateBackend) -> None:
        read = backend.read("means", serialized(backend.schema, "means", ["a"]))
        with pytest.raises(InvalidRequestError, match="double") as caught:
            backend.write(read, "means", pa.array([1], pa.int64()))
        assert caught.value.kind == "wrong-value-type"

    def test_another_number_of_values_than_keys_is_refused(self, backend: KeyedStateBackend) -> None:
        read = backend.read("means", serialized(backend.schema, "means", ["a"]))
        with pytest.raises(InvalidRequestError) as caught:
            backend.write(read, "means", pa.array([1.0, 2.0]))
        assert caught.value.kind == "bad-write"

    def test_the_error_names_an_unknown_state(self, backend: KeyedStateBackend) -> None:
        with pytest.raises(InvalidRequestError, match=r"nope.*totals") as caught:
            backend.read("nope", from_list([]))
        assert caught.value.kind == "unknown-state"

    def test_a_scan_is_sorted_and_complete(self, backend: KeyedStateBackend) -> None:
        keys = ["", "a", "a\x00", "a\x00\x00", "ab", "b" * 80, "b" * 200, "ÿ", "z"] + [f"k{i}" for i in range(500)]
        put(backend, "means", keys[::2] + keys[1::2], [0.5] * len(keys))
        rows = scanned(backend, "means").keys.to_list()
        assert rows == sorted(rows)
        assert set(rows) == set(serialized(backend.schema, "means", keys).to_list())

    def test_a_scan_shows_the_state_at_the_time_of_its_creation(self, backend: KeyedStateBackend) -> None:
        fill(backend, 50)
        before = all_entries(backend)
        scans = {d.name: backend.scan(d.name) for d in backend.schema.states}
        put(backend, "means", ["key-1", "key-2", "later"], [99.0, None, 1.0])
        put(backend, "totals", ["key-1"], [None])
        for name, scan in scans.items():
            batches = list(scan)
            columns = concat([b.keys for b in batches]).to_list(), concat([b.values for b in batches]).to_list()
            assert dict(zip(*columns, strict=True)) == before[name]
        assert entries(backend, "means") != before["means"]

    def test_a_scan_can_be_closed_before_its_end_and_twice(self, backend: KeyedStateBackend) -> None:
        fill(backend, 50)
        scan = backend.scan("totals")
        assert len(next(scan)) == 50
        scan.close()
        scan.close()
        assert list(scan) == []

    def test_a_scan_can_be_read_after_the_backend_was_closed(self, backend: KeyedStateBackend) -> None:
        fill(backend, 50)
        before = entries(backend, "means")
        scan = backend.scan("means")
        backend.close()
        assert {k for batch in scan for k in batch.keys.to_list()} == set(before)

    def test_statistics_describe_the_entries_of_a_scan(self, backend: KeyedStateBackend) -> None:
        _check_statistics(backend)
        fill(backend)
        _check_statistics(backend)
        put(backend, "means", ["key-3", "key-4", "key-5", "new"], [None, 0.25, None, 1.0])
        put(backend, "visits", ["key-7"], [[]])
        _check_statistics(backend)

    def test_equal_content_has_equal_statistics(self, backend: KeyedStateBackend, tmp_path: Path) -> None:
        fill(backend, 40)
        other = self.make(backend.schema, backend.key_group_range, tmp_path / "other")
        put(other, "means", ["key-1", "gone"], [5.0, 6.0])
        fill(other, 40)
        put(other, "means", ["gone"], [None])
        same = [a.same_content(b) for a, b in zip(backend.statistics(), other.statistics(), strict=True)]
        other.close()
        assert same == [True] * 4

    def test_loaded_entries_can_be_read_written_and_scanned(self, backend: KeyedStateBackend, tmp_path: Path) -> None:
        fill(backend)
        other = self.make(backend.schema, backend.key_group_range, tmp_path / "other")
        for descriptor in backend.schema.states:
            rows = scanned(backend, descriptor.name)
            half = len(rows) // 2
            for part in (rows.keys.slice(half, len(rows)), rows.keys.slice(0, half)):
                start = half if part.offsets[0] else 0
                other.load(descriptor.name, StateRows(part, rows.values.slice(start, start + len(part))))
        assert all_entries(other) == all_entries(backend)
        _check_statistics(other)
        put(other, "means", ["key-1"], [42.0])
        assert got(other, "means", ["key-1", "key-2"]) == [42.0, 2 / 7]
        other.close()

    def test_a_stored_entry_of_another_key_group_is_corrupt(self, tmp_path: Path) -> None:
        schema = sample_schema()
        backend = self.make(schema, KeyGroupRange(10, 20), tmp_path / "backend")
        value = from_list([b"\x00" * 8])
        for group in (9, 21):
            rows = StateRows(from_list([bytes([group]) + b"\x02a\x00"]), value)
            with pytest.raises(CorruptStateError, match=f"means.*{group}.*10-20") as caught:
                backend.load("means", rows)
            assert caught.value.kind == "foreign-key-group"
        backend.load("means", StateRows(from_list([b"\x0a\x02a\x00", b"\x14\x02a\x00"]), concat([value, value])))
        assert backend.statistics()[1].entries.tolist() == [1, *[0] * 9, 1]
        backend.close()

    def test_a_key_of_another_key_group_cannot_be_read(self, tmp_path: Path) -> None:
        backend = self.make(sample_schema(), KeyGroupRange(10, 20), tmp_path / "backend")
        with pytest.raises(InvalidRequestError) as caught:
            backend.read("means", from_list([b"\x15\x02a\x00"]))
        assert caught.value.kind == "foreign-key-group"
        backend.close()

    def test_key_groups_of_two_bytes_are_read_and_written(self, tmp_path: Path) -> None:
        schema = sample_schema(1000)
        key_groups = KeyGroupRange(200, 700)
        keys = owned(schema, [f"k{i}" for i in range(400)], key_groups)
        backend = self.make(schema, key_groups, tmp_path / "backend")
        put(backend, "means", keys, [float(i) for i in range(len(keys))])
        assert got(backend, "means", keys[::-1]) == [float(i) for i in range(len(keys))][::-1]
        _check_statistics(backend)
        backend.close()

    def test_closing_removes_the_directory_and_ends_all_use(self, backend: KeyedStateBackend, tmp_path: Path) -> None:
        fill(backend, 20)
        backend.close()
        backend.close()
        assert list(tmp_path.iterdir()) == []
        with pytest.raises(InvalidRequestError) as caught:
            backend.read("means", serialized(backend.schema, "means", ["a"]))
        assert caught.value.kind == "backend-closed"

    def test_a_backend_without_states_has_no_statistics(self, tmp_path: Path) -> None:
        schema = KeyedStateSchema(TOTALS.value_type, 128, ())
        backend = self.make(schema, all_key_groups(schema.max_parallelism), tmp_path / "backend")
        assert backend.statistics() == ()
        backend.close()


def _check_statistics(backend: KeyedStateBackend) -> None:
    width = prefix_width(backend.schema.max_parallelism)
    for descriptor, statistics in zip(backend.schema.states, backend.statistics(), strict=True):
        counted = statistics_of(scanned(backend, descriptor.name), width, backend.key_group_range)
        assert statistics.same_content(counted), descriptor.name
