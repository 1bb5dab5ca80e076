"""What is special about the heap backend: tables that never change, found from either side."""

import numpy as np
import pyarrow as pa
import pytest

from statelib.backends.heap.backend import HeapKeyedStateBackend
from statelib.backends.heap.table import empty_table
from statelib.model.key_groups import all_key_groups
from statelib.testing.keyed_samples import MEANS, fill, got, put, sample_schema, serialized
from statelib.wire.ragged import from_list


@pytest.mark.parametrize("asked", [1, 3, 10, 30])
def test_lookups_agree_whichever_side_is_larger(asked: int) -> None:
    keys = [f"{i:02d}".encode() for i in range(10)]
    table = empty_table(MEANS).appended([pa.array(keys, pa.large_binary())], [pa.array(np.arange(10.0))])
    wanted = [f"{(i * 7) % 30:02d}".encode() for i in range(asked)]
    expected = [keys.index(key) if key in keys else -1 for key in wanted]
    assert table.find(from_list(wanted)).tolist() == expected


def test_a_write_leaves_the_table_it_replaced_as_it_was() -> None:
    schema = sample_schema()
    backend = HeapKeyedStateBackend(schema, all_key_groups(schema.max_parallelism))
    put(backend, "means", ["a", "b"], [1.0, 2.0])
    old = backend.read("means", serialized(schema, "means", ["a", "b"]))
    put(backend, "means", ["a", "b"], [3.0, None])
    assert old.values.to_pylist() == [1.0, 2.0]
    assert got(backend, "means", ["a", "b"]) == [3.0, None]


def test_a_stale_scan_does_not_overwrite_newer_statistics() -> None:
    schema = sample_schema()
    backend = HeapKeyedStateBackend(schema, all_key_groups(schema.max_parallelism))
    fill(backend, 30)
    scan = backend.scan("means")
    put(backend, "means", ["another"], [1.0])
    assert sum(len(batch) for batch in scan) == 30
    assert backend.statistics()[1].total_entries == 31
