import pyarrow as pa
import pytest

from statelib.definition.pipeline import Pipeline
from statelib.errors import InvalidRequestError
from statelib.testing.local_run import LocalRun

COLUMNS = {"k": "string", "u": "string", "n": "long", "t": "long", "at": "instant"}


def run(states: dict[str, object], **more: object) -> LocalRun:
    source = {"path": "{start}-{end}", "columns": COLUMNS}
    base = {"name": "p", "source": source, "key": "k", "states": states, "backend": "heap"}
    return LocalRun(Pipeline.model_validate(base | more))


def events(*rows: tuple[object, ...]) -> pa.Table:
    arrays = [pa.array(c) for c in zip(*rows, strict=True)]
    table = pa.table([a if a.type != pa.null() else a.cast(pa.int64()) for a in arrays], names=list(COLUMNS)[:4])
    return table.append_column("at", pa.nulls(len(table), pa.timestamp("ms", "UTC")))


def timed_events(*rows: tuple[str, str | None, int]) -> pa.Table:
    table = events(*((key, user_key, 1, 1) for key, user_key, _ in rows))
    return table.set_column(4, "at", pa.array([at for _, _, at in rows]).cast(pa.timestamp("ms", "UTC")))


def test_a_row_is_written_for_every_key_with_an_event():
    fields = {"events": {"agg": "count"}, "values": {"agg": "count", "of": "n"}, "total": {"agg": "sum", "of": "n"}}
    local = run({"s": {"kind": "value", "fields": fields}})
    local.apply(events(("a", "x", None, 1), ("b", "x", 3, 1)))
    local.apply(events(("a", "x", None, 1), ("b", "x", 4, 1), ("c", "x", 5, 1)))
    assert local.state("s") == {
        "a": {"events": 2, "values": 0, "total": None},
        "b": {"events": 2, "values": 2, "total": 7},
        "c": {"events": 1, "values": 1, "total": 5},
    }


@pytest.mark.parametrize("kind", ["value", "reducing", "aggregating"])
def test_a_single_value_is_written_only_if_it_exists(kind):
    local = run({"s": {"kind": kind, "value": {"agg": "max", "of": "n"}}})
    local.apply(events(("a", "x", None, 1), ("b", "x", 3, 1)))
    assert local.state("s") == {"b": 3}
    local.apply(events(("a", "x", 1, 1), ("b", "x", None, 1)))
    local.apply(events(("a", "x", 0, 1)))
    assert local.state("s") == {"a": 1, "b": 3}


def test_a_map_has_one_entry_per_user_key():
    local = run({"s": {"kind": "map", "user_key": "u", "value": {"agg": "count"}}})
    local.apply(events(("a", "x", 1, 1), ("a", "y", 1, 1), ("b", "x", 1, 1), ("a", "x", 1, 1)))
    local.apply(events(("a", "y", 1, 1), ("b", "z", 1, 1)))
    assert local.state("s") == {"a": {"x": 2, "y": 2}, "b": {"x": 1, "z": 1}}


def test_the_values_of_a_map_may_be_rows():
    fields = {"n": {"agg": "sum", "of": "n"}, "last": {"agg": "last", "of": "n", "by": "t"}}
    local = run({"s": {"kind": "map", "user_key": "u", "fields": fields}})
    local.apply(events(("a", "x", 1, 9), ("a", "x", 2, 3)))
    local.apply(events(("a", "x", 4, 5), ("a", "y", None, 1)))
    assert local.state("s") == {
        "a": {"x": {"n": 7, "last": {"value": 1, "by_t": 9}}, "y": {"n": None, "last": None}},
    }


def test_an_event_without_a_user_key_changes_all_states_but_the_map():
    states = {
        "m": {"kind": "map", "user_key": "u", "value": {"agg": "count"}},
        "c": {"kind": "value", "value": {"agg": "count"}},
    }
    local = run(states, on_null_key="drop")
    local.apply(events(("a", "x", 1, 1), ("b", None, 1, 1), ("a", None, 1, 1)))
    assert (local.state("m"), local.state("c")) == ({"a": {"x": 1}}, {"a": 2, "b": 1})
    assert local.without_user_key == {"m": 2}
    local.apply(events(("a", "x", 1, 1), ("b", "y", 1, 1)).slice(0, 0))
    assert local.state("c") == {"a": 2, "b": 1}
    local.apply(events(("a", None, 1, 1)))
    assert local.without_user_key == {"m": 3}


def test_an_event_without_a_user_key_is_counted_once_and_not_if_it_is_late():
    window = {"time": "at", "sliding": {"size": "2h", "slide": "1h"}, "retain": "1d"}
    states = {"m": {"kind": "map", "user_key": "u", "value": {"agg": "count"}, "window": window}}
    local = run(states, on_null_key="drop")
    hour = 3_600_000
    local.apply(timed_events(("a", None, 0), ("a", "x", 0), ("b", None, 1)), end_ms=3 * hour)
    assert (local.late, local.without_user_key) == ({"m": 0}, {"m": 2})
    local.apply(timed_events(("a", None, 0), ("a", "x", 0), ("a", None, 3 * hour)), end_ms=6 * hour)
    assert (local.late, local.without_user_key) == ({"m": 2}, {"m": 3})


def test_an_event_without_a_user_key_is_refused_if_null_keys_are():
    local = run({"m": {"kind": "map", "user_key": "u", "value": {"agg": "count"}}})
    with pytest.raises(InvalidRequestError, match="state m: 1 of 2 events have no u") as caught:
        local.apply(events(("a", "x", 1, 1), ("b", None, 1, 1)))
    assert caught.value.kind == "null-user-key"


def test_a_list_grows_in_ascending_order():
    local = run(
        {
            "all": {"kind": "list", "value": {"agg": "collect", "of": "n"}},
            "each": {"kind": "list", "value": {"agg": "distinct", "of": "n"}},
        }
    )
    local.apply(events(("a", "x", 5, 1), ("a", "x", 1, 1), ("b", "x", None, 1)))
    local.apply(events(("a", "x", 5, 1), ("a", "x", 3, 1)))
    assert (local.state("all"), local.state("each")) == ({"a": [1, 3, 5, 5]}, {"a": [1, 3, 5]})


def test_a_key_may_have_several_columns():
    local = run({"s": {"kind": "value", "value": {"agg": "sum", "of": "n"}}}, key=["u", "t"])
    local.apply(events(("a", "x", 5, 1), ("a", "x", 1, 2), ("b", "x", 2, 1)))
    assert local.state("s") == {("x", 1): 7, ("x", 2): 1}


def test_events_without_a_key_are_counted():
    local = run({"s": {"kind": "value", "value": {"agg": "count"}}}, on_null_key="drop")
    assert local.apply(events((None, "x", 5, 1), ("a", "x", 1, 2), (None, "x", 5, 1))) == 2
    assert local.state("s") == {"a": 1}
