from typing import Any

import pytest

from statelib.definition.frame_columns import frame_columns
from statelib.definition.pipeline import Pipeline

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
