import pyarrow as pa

from statelib.backends.heap.backend import HeapKeyedStateBackend
from statelib.backends.operator.state import OperatorStateBackend
from statelib.definition.pipeline import Pipeline
from statelib.functions.state_function import Progress
from statelib.model.key_groups import all_key_groups
from statelib.spark.imports.seed_columns import STATE
from statelib.spark.imports.seed_rows import PutRows

EMPTY_SKETCH = bytes([2, 1, 15, 1, 200, 0, 8, 0])
"""The value of ``kll_sketch_agg_double`` of a group of nulls."""


def test_a_row_without_values_has_no_entry_in_a_state_of_one_aggregate() -> None:
    aggregates = {"mean": "avg", "ranks": "approx_quantiles"}
    states = {name: {"kind": "aggregating", "value": {"agg": agg, "of": "x"}} for name, agg in aggregates.items()}
    source = {"path": "{start}", "columns": {"k": "string", "x": "double"}}
    pipeline = Pipeline.model_validate({"name": "p", "source": source, "key": "k", "states": states, "backend": "heap"})
    means = pa.array([{"sum": 3.0, "count": 2}, {"sum": None, "count": 0}])
    sketches = pa.array([None, EMPTY_SKETCH], pa.binary())
    rows = pa.table({"k": ["a", "b"], f"{STATE}mean": means, f"{STATE}ranks": sketches})
    backend = HeapKeyedStateBackend(pipeline.schema(), all_key_groups(pipeline.max_parallelism))
    PutRows(("mean", "ranks"))(pipeline, backend, rows, Progress(0, 0), OperatorStateBackend())
    assert [statistics.total_entries for statistics in backend.statistics()] == [1, 0]
