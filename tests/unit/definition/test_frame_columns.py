from typing import Any

import pytest

from statelib.definition.frame_columns import frame_columns
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
