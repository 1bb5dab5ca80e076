"""User functions that emit rows: the accepted forms of a result, and the errors of wrong ones."""

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
import yaml

from statelib.definition.pipeline import Pipeline
from statelib.errors import InvalidRequestError
from statelib.testing.local_run import LocalRun
from tests.support import emitting
from tests.support.emitting import COUNTS, HOUR_MS, events_of, expected_alerts, found_alerts

EVENTS = events_of([(1, 3), (2, 10), (1, 12)], 0)


def run(**changes: Any) -> LocalRun:
    text = COUNTS.replace("BACKEND", "heap").replace("STRATEGY", "canonical")
    return LocalRun(Pipeline.model_validate(yaml.safe_load(text) | changes))


def test_rows_are_emitted_for_events_and_for_timers() -> None:
    local = run()
    local.apply(EVENTS, HOUR_MS)
    assert found_alerts(local.output("alerts")) == expected_alerts([(2, 10), (1, 12)])
    assert local.output("closed").num_rows == 0
    local.apply(EVENTS.slice(0, 0), 2 * HOUR_MS)
    assert sorted(local.output("closed").to_pylist(), key=str) == [{"k": 1, "total": 15}, {"k": 2, "total": 10}]
    assert local.state("open") == {}


def test_the_last_part_of_a_result_may_be_outputs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A function without timers returns (rows, outputs), and None in place of timers is allowed."""
    row = pa.table({"k": [1], "n": [1], "text": ["a"], "price": pa.nulls(1)})
    forms: list[Callable[[pa.Table], object]] = [
        lambda state: state,
        lambda state: (state,),
        lambda state: (state, {"alerts": row}),
        lambda state: (state, None, {"alerts": row}),
        lambda state: (state, {}),
        lambda state: (state, None),
    ]
    state = {"kind": "value", "fields": {"total": "long"}, "function": "tests.support.emitting:update"}
    for form, count in zip(forms, (0, 0, 1, 1, 0, 0), strict=True):
        monkeypatch.setattr(emitting, "update", lambda _, state, form=form: form(state))
        local = run(states={"open": state})
        local.apply(EVENTS, HOUR_MS)
        assert local.output("alerts").num_rows == count


GOOD = {"k": [1], "n": [2], "text": ["a"], "price": [None]}
WRONG: dict[str, tuple[object, str]] = {
    "unknown output": ({"alert": GOOD}, "declares alerts, closed, found output 'alert', did you mean 'alerts'"),
    "no name": ({3: GOOD}, "found output 3"),
    "no table": ({"alerts": "x"}, "output alerts: expected a pyarrow.Table, found str"),
    "missing column": ({"alerts": {"k": [1]}}, r"output alerts: expected the columns \['k', 'n', 'text', 'price'\]"),
    "further column": ({"alerts": GOOD | {"m": [1]}}, r"found \['k', 'n', 'text', 'price', 'm'\]"),
    "wrong type": ({"alerts": GOOD | {"n": ["soon"]}}, "output alerts: expected the types k: int64"),
    "too large": ({"alerts": GOOD | {"price": [10**17]}}, "output alerts: expected the types .*decimal"),
    "a list": ([{"alerts": GOOD}], "expected a pyarrow.Table, found list"),
}


@pytest.mark.parametrize("wrong", list(WRONG))
def test_wrong_outputs_are_refused_by_name(wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    returned, message = WRONG[wrong]
    tables = returned
    if isinstance(returned, dict):
        tables = {name: pa.table(rows) if isinstance(rows, dict) else rows for name, rows in returned.items()}
    monkeypatch.setattr(emitting, "update", lambda _, state: (state, tables))
    local = run()
    with pytest.raises(InvalidRequestError, match=message) as refusal:
        local.apply(EVENTS, HOUR_MS)
    assert refusal.value.kind == "bad-function-result"
    assert "for state open" in refusal.value.message
    assert local.state("open") == {}, "nothing is written"


def test_a_function_cannot_emit_closed_sessions() -> None:
    window = {"time": "at", "session": "1h", "retain": "1h"}
    visits = {"kind": "value", "value": {"agg": "count"}, "window": window}
    states = yaml.safe_load(COUNTS.replace("BACKEND", "heap"))["states"]
    local = run(states=states | {"visits": visits}, outputs={"alerts": {"closed": "visits"}})
    with pytest.raises(InvalidRequestError, match="declares none, found output 'alerts'"):
        local.apply(EVENTS, HOUR_MS)


def test_closed_sessions_are_shown_as_columns_of_their_state() -> None:
    window = {"time": "at", "session": "1h", "retain": "0s"}
    visits = {"kind": "value", "value": {"agg": "avg", "of": "n"}, "window": window}
    local = run(states={"visits": visits}, outputs={"ended": {"closed": "visits"}})
    local.apply(EVENTS, HOUR_MS)
    local.apply(EVENTS.slice(0, 0), 2 * HOUR_MS)
    rows = [(row["k"], row["value"]) for row in local.output("ended").sort_by("k").to_pylist()]
    assert rows == [(1, 7.5), (2, 10.0)]
    assert local.output("ended").column_names == ["k", "window_start", "window_end", "value"]


def test_emitting_without_declared_outputs_is_refused() -> None:
    with pytest.raises(
        InvalidRequestError, match="'outputs' in the pipeline file declares none, found output 'alerts'"
    ):
        run(outputs={}).apply(EVENTS, HOUR_MS)
