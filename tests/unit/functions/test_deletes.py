"""The effect of a delete on the events of its interval, and the refusal of events whose place is unknown."""

from typing import Any

import pyarrow as pa
import pytest

from statelib.definition.pipeline import Pipeline
from statelib.errors import InvalidRequestError
from statelib.functions.change_logs.changes import APPLIED, CHANGE, DELETED, RETRACTED
from statelib.testing.local_run import LocalRun

SEEN: list[list[dict[str, Any]]] = []
"""The events and the states of each call of :func:`remember`."""


def remember(events: pa.Table, state: pa.Table) -> pa.Table:
    SEEN.append([*events.to_pylist(), *state.to_pylist()])
    return pa.table({"k": state["k"], "n": pa.array([7] * len(state), pa.int64())})


def new_run(**states: dict[str, Any]) -> LocalRun:
    document = {
        "name": "p", "key": "k", "order_by": ["at", "position"], "backend": "heap",
        "source": {
            "path": "{start}-{end}", "delete_when": "op = 'd'",
            "columns": {"k": "string", "at": "double", "position": "long"},
        },
        "states": states or {"count": {"kind": "value", "value": {"agg": "count"}}},
    }  # fmt: skip
    return LocalRun(Pipeline.model_validate(document))


def table(*rows: tuple[str, float | None, int, int | None]) -> pa.Table:
    types = (pa.string(), pa.float64(), pa.int64(), pa.int8())
    columns = [pa.array(column, type_) for column, type_ in zip(zip(*rows, strict=True), types, strict=True)]
    return pa.table(columns, names=["k", "at", "position", CHANGE])


def test_a_run_in_a_test_applies_events_without_the_column_of_changes() -> None:
    run = new_run()
    run.apply(table(("a", 1.0, 1, APPLIED), ("b", 1.0, 1, APPLIED)).drop_columns([CHANGE]))
    run.apply(table(("a", 2.0, 1, DELETED)))
    assert run.state("count") == {"b": 1}


def test_only_the_events_after_the_latest_delete_are_applied() -> None:
    run = new_run()
    run.apply(table(("a", 1, 0, APPLIED), ("b", 1, 0, None), ("c", 1, 0, APPLIED)))
    run.apply(
        table(
            ("a", 3, 0, APPLIED), ("a", 2, 1, APPLIED), ("a", 2, 0, DELETED), ("a", 1, 5, DELETED),
            ("a", 2, -1, APPLIED), ("b", 9, 0, DELETED), ("b", 8, 9, APPLIED), ("d", 1, 0, DELETED),
            ("d", 1, 0, DELETED), ("c", 0, 0, None),
        )
    )  # fmt: skip
    assert run.state("count") == {"a": 2, "c": 2}


def test_a_function_sees_a_key_without_state_and_only_its_later_events() -> None:
    run = new_run(seen={"kind": "value", "fields": {"n": "long"}, "function": f"{__name__}:remember"})
    run.apply(table(("a", 1, 0, APPLIED)))
    run.apply(table(("a", 1, 1, APPLIED), ("a", 2, 0, DELETED), ("a", 3, 0, APPLIED)))
    assert SEEN[-1] == [{"k": "a", "at": 3.0, "position": 0}, {"k": "a", "n": None}]
    run.apply(table(("a", 9, 0, DELETED)))
    assert run.state("seen") == {}


@pytest.mark.parametrize(
    ("rows", "kind", "message"),
    [
        ([("a", 2, 0, DELETED), ("a", 2, 0, APPLIED)], "delete-order", "1 event with the same at, position"),
        ([("a", None, 0, APPLIED)], "null-order", "1 of 1 event have no at"),
        ([("a", float("nan"), 0, DELETED)], "null-order", "have no at"),
    ],
)  # fmt: skip
def test_an_event_whose_place_is_unknown_is_refused_and_nothing_is_changed(
    rows: list[tuple[str, float | None, int, int | None]], kind: str, message: str
) -> None:
    run = new_run()
    run.apply(table(("a", 1, 0, APPLIED)))
    with pytest.raises(InvalidRequestError, match=message) as caught:
        run.apply(table(*rows))
    assert caught.value.kind == kind
    assert run.state("count") == {"a": 1}


def test_a_count_that_was_added_later_ends_no_entry_in_an_interval_that_only_applies() -> None:
    columns = {"k": "string", "at": "double", "position": "long"}
    sources = {
        "log": {"path": "log/{start}-{end}", "changes": "op", "columns": columns},
        "erased": {"path": "erased/{start}-{end}", "delete_when": "true", "columns": columns},
    }
    fields = {"sum": {"agg": "sum", "of": "position"}, "rows": {"agg": "count"}}
    document = {"name": "p", "key": "k", "order_by": ["at"], "backend": "heap", "sources": sources}
    run = LocalRun(Pipeline.model_validate(document | {"states": {"s": {"kind": "value", "fields": fields}}}))
    run.apply(table(("a", 1, 90, APPLIED), ("a", 2, 10, APPLIED)))
    before = run.backend.read("s", next(run.backend.scan("s")).keys)
    stored = [before.values.field("sum"), pa.nulls(1, pa.int64())]
    run.backend.write(before, "s", pa.StructArray.from_arrays(stored, fields=list(before.values.type)))
    run.apply(table(("a", 3, 5, APPLIED)))
    run.apply(table(("a", 4, 5, RETRACTED), ("b", 4, 1, APPLIED)))
    assert run.state("s") == {"a": {"sum": 100, "rows": None}, "b": {"sum": 1, "rows": 1}}
