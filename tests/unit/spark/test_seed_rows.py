"""The rows of a table, and the entries of a state store, become what events would have become, or are refused."""

import re
from datetime import datetime
from math import nan
from typing import Any

import pyarrow as pa
import pytest

from statelib.backends.heap.backend import HeapKeyedStateBackend
from statelib.backends.operator.state import OperatorStateBackend
from statelib.definition.pipeline import Pipeline
from statelib.errors import InvalidRequestError
from statelib.functions.state_function import Progress
from statelib.model.key_groups import all_key_groups
from statelib.serializers.entries.keys import encode_keys, key_groups
from statelib.serializers.entries.values import value_arrow_type
from statelib.spark.imports.seed_columns import STATE
from statelib.spark.imports.seed_rows import PutRows
from statelib.spark.imports.statestore import VALUE
from statelib.spark.imports.statestore_import import PutEntries

EMPTY_SKETCH = bytes([2, 1, 15, 1, 200, 0, 8, 0])
"""The value of ``kll_sketch_agg_double`` of a group of nulls."""
AT = pa.scalar(datetime(2012, 1, 1), pa.timestamp("ns")).as_py()


def pipeline_of(states: dict[str, Any]) -> Pipeline:
    columns = {"k": "string", "x": "double", "n": "long", "at": "datetime"}
    source = {"path": "{start}", "columns": columns}
    return Pipeline.model_validate({"name": "p", "source": source, "key": "k", "states": states, "backend": "heap"})


def backend_of(pipeline: Pipeline) -> HeapKeyedStateBackend:
    return HeapKeyedStateBackend(pipeline.schema(), all_key_groups(pipeline.max_parallelism))


def stored(aggregate: dict[str, Any], *given: Any) -> list[Any]:
    """Return what a field of one aggregate holds after a seed with these values, one per key. The import of a state
    store makes the same of them."""
    pipeline = pipeline_of({"s": {"kind": "value", "fields": {"f": aggregate}}})
    descriptor = pipeline.schema().state("s")
    keys = pa.array([f"k{i}" for i in range(len(given))])
    values = pa.array([{"f": value} for value in given], value_arrow_type(descriptor))
    results = []
    for change, column in ((PutRows(("s",)), f"{STATE}s"), (PutEntries("s"), VALUE)):
        backend = backend_of(pipeline)
        change(pipeline, backend, pa.table({"k": keys, column: values}), Progress(0, 0), OperatorStateBackend())
        encoded = encode_keys(backend.schema, descriptor, keys, key_groups(backend.schema, keys))
        results.append(backend.read("s", encoded).values.to_pylist())
    assert str(results[0]) == str(results[1])
    return [row["f"] for row in results[0]]


def test_a_row_without_values_has_no_entry_in_a_state_of_one_aggregate() -> None:
    aggregates = {"mean": "avg", "ranks": "approx_quantiles"}
    states = {name: {"kind": "aggregating", "value": {"agg": agg, "of": "x"}} for name, agg in aggregates.items()}
    pipeline = pipeline_of(states)
    means = pa.array([{"sum": 3.0, "count": 2}, {"sum": None, "count": 0}])
    sketches = pa.array([None, EMPTY_SKETCH], pa.binary())
    rows = pa.table({"k": ["a", "b"], f"{STATE}mean": means, f"{STATE}ranks": sketches})
    backend = backend_of(pipeline)
    PutRows(("mean", "ranks"))(pipeline, backend, rows, Progress(0, 0), OperatorStateBackend())
    assert [statistics.total_entries for statistics in backend.statistics()] == [1, 0]


HISTOGRAM = {"agg": "histogram", "of": "x", "bounds": [1]}
AVERAGE, VARIANCE = {"agg": "avg", "of": "x"}, {"agg": "variance", "of": "x"}
LAST = {"agg": "last", "of": "x", "by": "n"}
WHOLE_LAST = {"agg": "last", "of": ["x", "at"], "by": "n"}
TOP = {"agg": "top", "of": "x", "by": "n", "n": 9}
DECAY = {"agg": "decay", "of": "x", "by": "at", "half_life": "1d"}


@pytest.mark.parametrize(
    ("aggregate", "given", "message"),
    [
        (HISTOGRAM, [1, None], "s.f is a list with a null or negative count"),
        (HISTOGRAM, [1, -2], "s.f is a list with a null or negative count"),
        (HISTOGRAM, [1, 2, 3], "s.f: histogram of x: the state holds 3 counts, its 1 bounds make 2"),
        (AVERAGE, {"sum": 1.0, "count": -1}, "s.f.count is null or negative"),
        (AVERAGE, {"sum": None, "count": 1}, "s.f.sum is null"),
        (AVERAGE, {"sum": nan, "count": 1}, "s.f.sum is NaN"),
        (VARIANCE, {"mean": 1.0, "squares": -5.0, "count": 2}, "s.f.squares is null or negative"),
        (VARIANCE, {"mean": 1.0, "squares": nan, "count": 2}, "s.f.squares is NaN"),
        (LAST, {"value": 1.0, "by_n": None}, "s.f.by_n is null beside a value"),
        (LAST | {"nulls": "keep"}, {"value": None, "by_n": None}, "s.f.by_n is null beside a value"),
        (WHOLE_LAST, {"value": {"x": 1.0, "at": None}, "by_n": None}, "s.f.by_n is null beside a value"),
        ({"agg": "first", "of": "n", "by": "x"}, {"value": 1, "by_x": nan}, "s.f.by_x is null beside a value"),
        (DECAY, {"value": 1.0, "by_at": None}, "s.f.by_at is null beside a value"),
        (DECAY, {"value": nan, "by_at": AT}, "s.f.value is NaN"),
        ({"agg": "sum", "of": "x"}, nan, "s.f is NaN"),
        ({"agg": "min", "of": "x"}, nan, "s.f is NaN"),
    ],
)
def test_a_value_that_no_events_make_is_refused(aggregate: dict[str, Any], given: object, message: str) -> None:
    with pytest.raises(InvalidRequestError, match=re.escape(message)) as caught:
        stored(aggregate, None, given)
    assert caught.value.kind == "bad-accumulator"
    assert ":" in message or "in 1 row, such as that of key k1" in caught.value.message


@pytest.mark.parametrize(
    ("aggregate", "given", "expected"),
    [
        (HISTOGRAM, [0, 0], None),
        (AVERAGE, {"sum": nan, "count": 0}, None),
        (AVERAGE, {"sum": -0.0, "count": 1}, {"sum": 0.0, "count": 1}),
        ({"agg": "sum", "of": "x"}, -0.0, 0.0),
        ({"agg": "max", "of": "x"}, -0.0, 0.0),
        (LAST, {"value": nan, "by_n": 5}, None),
        (LAST, {"value": None, "by_n": None}, None),
        (LAST | {"nulls": "keep"}, {"value": nan, "by_n": 5}, {"value": None, "by_n": 5}),
        (WHOLE_LAST, {"value": None, "by_n": 5}, {"value": {"x": None, "at": None}, "by_n": 5}),
        (WHOLE_LAST, {"value": {"x": -0.0, "at": AT}, "by_n": 5}, {"value": {"x": 0.0, "at": AT}, "by_n": 5}),
        (DECAY, {"value": None, "by_at": AT}, None),
        (DECAY, {"value": -0.0, "by_at": AT}, {"value": 0.0, "by_at": AT}),
        ({"agg": "distinct", "of": "n"}, [1, None, 1], [1]),
        ({"agg": "distinct", "of": "x"}, [nan, 0.0, -0.0, 1.0], [0.0, 1.0]),
        ({"agg": "collect", "of": "x"}, [3.0, None, nan, -0.0], [0.0, 3.0]),
        ({"agg": "collect", "of": "n"}, [None], None),
        (TOP, [{"value": 1.0, "by_n": None}, None, {"value": nan, "by_n": 1}], None),
        (TOP, [{"value": -0.0, "by_n": 1}, {"value": 3.0, "by_n": 2}],
         [{"value": 3.0, "by_n": 2}, {"value": 0.0, "by_n": 1}]),
    ],
)  # fmt: skip
def test_nulls_and_nan_count_as_in_events(aggregate: dict[str, Any], given: object, expected: object) -> None:
    assert repr(stored(aggregate, None, given)) == repr([None, expected])  # -0.0 equals 0.0


def test_a_key_is_in_one_row_of_the_table_also_if_the_rows_fill_other_states() -> None:
    counted = {"kind": "map", "user_key": "n", "value": {"agg": "count"}}
    pipeline = pipeline_of({"a": {"kind": "reducing", "value": {"agg": "count"}}, "b": counted})
    counts = pa.array([1, None, 1, None])
    maps = pa.array([None, [(1, 1)], None, [(1, 1), (2, 1)]], pa.map_(pa.int64(), pa.int64()))

    def put(keys: list[str], maps: pa.Array) -> None:
        rows = pa.table({"k": keys, f"{STATE}a": counts, f"{STATE}b": maps})
        PutRows(("a", "b"))(pipeline, backend_of(pipeline), rows, Progress(0, 0), OperatorStateBackend())

    with pytest.raises(InvalidRequestError, match="2 rows of the table repeat the key of another row, such as x, y"):
        put(["x", "x", "y", "y"], maps)
    put(["x", "z", "y", "u"], maps)
    twice = pa.array([None, [(1, 1), (1, 2)], None, None], maps.type)
    with pytest.raises(InvalidRequestError, match=r"state 'b': a map has 1 user key more than once, .* of key z"):
        put(["x", "z", "y", "u"], twice)
