"""NaN keys as Flink has them: one key, however its bits are; 0.0 and -0.0 are two."""

import math
import struct
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from statelib.backends.heap.backend import HeapKeyedStateBackend
from statelib.backends.keyed import KeyedStateBackend
from statelib.backends.rocksdb.backend import RocksDBKeyedStateBackend
from statelib.definition.pipeline import Pipeline
from statelib.model.key_groups import all_key_groups
from statelib.serializers.columns.arrow import one_nan
from statelib.testing.local_run import LocalRun

UID = "5a7b0000-0000-0000-0000-000000000000"
MODULE = "statelib_test_nan_keys"
BITS = {
    "double": [0x7FF8000000000000, 0xFFF8000000000000, 0x7FF0000000000001, 0x7FFFFFFFFFFFFFFF],
    "float": [0x7FC00000, 0xFFC00000, 0x7F800001, 0x7FFFFFFF],
}
LAYOUT = {"double": ("u8", "f8", 0x8000000000000000), "float": ("u4", "f4", 0x80000000)}


def numbers(kind: str) -> pa.Array:
    """Return four NaNs, 0.0 and -0.0."""
    whole, real, minus_zero = LAYOUT[kind]
    return pa.array(np.array([*BITS[kind], 0, minus_zero], whole).view(real))


def local(pipeline: Pipeline, backend: str, path: Path) -> LocalRun:
    schema, groups = pipeline.schema(), all_key_groups(128)
    live: KeyedStateBackend = HeapKeyedStateBackend(schema, groups)
    if backend == "rocksdb":
        live = RocksDBKeyedStateBackend(schema, groups, str(path / "db"), UID)
    return LocalRun(pipeline, live)


def update(events: pa.Table, state: pa.Table) -> pa.Table:
    before = state["seen"].fill_null(0).to_pylist()
    return state.set_column(state.column_names.index("seen"), "seen", pa.array([n + 1 for n in before]))


@pytest.mark.parametrize("backend", ["heap", "rocksdb"])
@pytest.mark.parametrize("kind", ["double", "float"])
@pytest.mark.parametrize("key", [["x"], ["x", "k"]])
def test_all_nans_are_one_key(
    kind: str, backend: str, key: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = ModuleType(MODULE)
    module.update = update  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, MODULE, module)
    states = {
        "n": {"kind": "value", "value": {"agg": "count"}},
        "m": {"kind": "map", "user_key": "x", "value": {"agg": "count"}},
        "f": {"kind": "value", "fields": {"seen": "long"}, "function": f"{MODULE}:update"},
    }
    source = {"path": "{start}", "columns": {"x": kind, "k": "string"}}
    run = local(
        Pipeline.model_validate({"name": "p", "source": source, "key": key, "states": states, "backend": backend}),
        backend,
        tmp_path,
    )
    values = numbers(kind)
    for at in (slice(0, 6), slice(2, 4), slice(5, 6)):
        run.apply(pa.table({"x": values[at], "k": pa.array(["a"] * len(values[at]))}))
    assert {s.total_entries for s in run.backend.statistics()} == {3}, "0.0, -0.0 and NaN, in every state"
    (nan,) = [count for key, count in run.state("n").items() if _is_nan(key)]
    (seen,) = [row for key, row in run.state("f").items() if _is_nan(key)]
    inner: Any
    (inner,) = [entries for key, entries in run.state("m").items() if _is_nan(key)]
    assert (nan, seen, list(inner.values())) == (6, {"seen": 2}, [6])
    run.backend.close()


def _is_nan(key: object) -> bool:
    return math.isnan(key[0] if isinstance(key, tuple) else key)


def test_nan_keys_have_the_bytes_that_java_writes() -> None:
    for kind, pattern in (("double", ">d"), ("float", ">f")):
        whole = LAYOUT[kind][0]
        column = one_nan(numbers(kind))
        assert np.asarray(column).view(whole).tolist()[:4] == [BITS[kind][0]] * 4
        assert struct.pack(pattern, column[5].as_py())[0] == 0x80, "the sign of zero stays"
