"""The value of an aggregate that the checks of the gate read in a column of the state's flat table."""

from decimal import Decimal

import pyarrow as pa
import pytest

from statelib.aggregates.finished import finished
from statelib.definition.frame_columns import frame_columns
from statelib.definition.pipeline import Pipeline
from statelib.errors import InvalidRequestError


@pytest.mark.parametrize(
    ("agg", "accumulator", "value"),
    [
        ("avg", {"sum": 6.0, "count": 4}, 1.5),
        ("variance", {"mean": 5.0, "squares": 18.0, "count": 3}, 9.0),
        ("stddev", {"mean": 5.0, "squares": 18.0, "count": 3}, 3.0),
    ],
)
def test_a_computed_column_has_the_name_of_its_field(agg: str, accumulator: dict[str, float], value: float) -> None:
    source = {"path": "{start}", "columns": {"k": "string", "x": "double"}}
    states = {
        "row": {"kind": "value", "fields": {"f": {"agg": agg, "of": "x"}}},
        "bare": {"kind": "aggregating", "value": {"agg": agg, "of": "x"}},
    }
    pipeline = Pipeline.model_validate({"name": "p", "source": source, "key": "k", "states": states, "backend": "heap"})
    for state, name in zip(pipeline.schema().states, ("f", "value"), strict=True):
        columns = frame_columns(pipeline.key, pipeline.key_type(), state)
        assert [column.name for column in columns] == ["k", name, *(f"{name}.{part}" for part in accumulator)]
        assert columns[1].computed == agg
    assert finished(agg, pa.chunked_array([[accumulator, None]])).to_pylist() == [value, None]


def test_an_average_with_too_many_digits_is_refused() -> None:
    accumulators = pa.StructArray.from_arrays(
        [pa.array([Decimal(10**37), Decimal(10**37)], pa.decimal128(38, 0)), pa.array([10**6, 3])], ["sum", "count"]
    )
    assert finished("avg", pa.chunked_array([accumulators[:1]])).to_pylist() == [Decimal(10**31)]
    with pytest.raises(InvalidRequestError, match="average of decimals: expected at most 38 digits, 6 of them"):
        finished("avg", pa.chunked_array([accumulators]))
