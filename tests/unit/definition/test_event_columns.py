import pyarrow as pa
import pytest

from statelib.definition.columns import event_schema, key_array, keyed_events
from statelib.definition.pipeline import Pipeline
from statelib.errors import InvalidRequestError

EVENTS = pa.table({"k": ["a", None, "c", "d"], "n": [1, 2, None, 4], "x": [None, 1.0, 2.0, 3.0]})


def pipeline(key: list[str], on_null_key: str = "drop") -> Pipeline:
    return Pipeline.model_validate(
        {
            "name": "p",
            "source": {"path": "{start}-{end}", "columns": {"n": "long", "k": "string", "x": "double", "t": "instant"}},
            "key": key,
            "on_null_key": on_null_key,
            "states": {"s": {"kind": "value", "value": {"agg": "count"}}},
            "backend": "heap",
        }
    )


def test_event_schema_has_the_declared_order_and_types():
    assert event_schema(pipeline(["k"])) == pa.schema(
        [("n", pa.int64()), ("k", pa.string()), ("x", pa.float64()), ("t", pa.timestamp("ns", "UTC"))]
    )


def test_a_key_of_one_column_is_that_column():
    events, dropped = keyed_events(pipeline(["k"]), EVENTS)
    assert dropped == 1
    assert key_array(pipeline(["k"]), events).equals(pa.array(["a", "c", "d"]))
    assert events["x"].to_pylist() == [None, 2.0, 3.0]


def test_a_key_of_several_columns_is_a_struct_in_the_order_of_the_key():
    two = pipeline(["n", "k"])
    events, dropped = keyed_events(two, EVENTS)
    assert dropped == 2
    assert key_array(two, events).to_pylist() == [{"f0": 1, "f1": "a"}, {"f0": 4, "f1": "d"}]


def test_no_event_is_dropped_without_null_keys():
    events, dropped = keyed_events(pipeline(["k"], "fail"), EVENTS.filter([True, False, True, True]))
    assert (len(events), dropped) == (3, 0)


def test_null_keys_are_refused_unless_the_pipeline_drops_them():
    for call in (lambda: keyed_events(pipeline(["k"], "fail"), EVENTS), lambda: key_array(pipeline(["k"]), EVENTS)):
        with pytest.raises(InvalidRequestError, match="p: key column k is null in 1 event") as caught:
            call()
        assert caught.value.kind == "null-key"
