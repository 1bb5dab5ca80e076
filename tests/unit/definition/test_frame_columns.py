from typing import Any

import pyarrow as pa
import pytest

from statelib.definition.frame_columns import frame_columns
from statelib.definition.framed_state import framed
from statelib.definition.parts.publish import Publication
from statelib.definition.pipeline import Pipeline
from statelib.definition.published_columns import published_columns

COUNT: dict[str, Any] = {"value": {"agg": "count"}}


@pytest.mark.parametrize(
    ("key", "state", "names"),
    [
        ("user_key", {"kind": "map", "user_key": "item", **COUNT}, ["user_key", "state.user_key", "value"]),
        (
            "window_end",
            {"kind": "reducing", "window": {"time": "t", "tumbling": "1h", "retain": "1d"}, **COUNT},
            ["window_end", "window_start", "state.window_end", "value"],
        ),
    ],
)
def test_a_key_keeps_its_column_beside_a_map_or_window(key: str, state: dict[str, Any], names: list[str]) -> None:
    source = {"path": "{start}", "columns": {key: "string", "item": "string", "t": "instant"}}
    states = {"s": state}
    pipeline = Pipeline.model_validate({"name": "p", "source": source, "key": key, "states": states, "backend": "heap"})
    columns = frame_columns(pipeline.key, pipeline.key_type(), pipeline.schema().states[0])
    assert [column.name for column in columns] == names


def test_a_key_is_published_whose_name_begins_with_that_of_a_field() -> None:
    source = {"path": "{start}", "columns": {"user.id": "string", "score": "long"}}
    states = {"s": {"kind": "value", "fields": {"user": {"agg": "avg", "of": "score"}}}}
    given = {"name": "p", "source": source, "key": "user.id", "states": states, "backend": "heap"}
    columns = published_columns(Pipeline.model_validate(given), Publication(target="t", mode="changes"))
    assert [column.name for column in columns] == ["user.id", "user"]


def test_a_list_is_shown_without_the_times_of_its_elements() -> None:
    source = {"path": "{start}", "columns": {"user": "string", "item": "string"}}
    states = {"items": {"kind": "list", "value": {"agg": "collect", "of": "item"}, "ttl": "1d"}}
    given = {"name": "p", "source": source, "key": "user", "states": states, "backend": "heap"}
    pipeline = Pipeline.model_validate(given)
    columns = frame_columns(pipeline.key, pipeline.key_type(), pipeline.schema().states[0])
    lists: list[Any] = [["not", "shown"], ["a", None, "b"], None, [], ["c"]]
    stored = [
        items and [item and {"last_access_ms": n, "value": item} for n, item in enumerate(items)] for items in lists
    ]
    type_ = pa.list_(pa.struct([("last_access_ms", pa.int64()), ("value", pa.string())]))
    table = pa.table({"key": list("zabcd"), "value": pa.array(stored, type_)}).slice(1)
    for part in (table, pa.concat_tables([table.slice(0, 1), table.slice(1)]), table.slice(0, 0)):
        shown = framed(part, columns)
        assert shown.to_pydict() == {"user": part["key"].to_pylist(), "value": lists[1:][: len(part)]}
        assert shown["value"].type == pa.list_(pa.string())
