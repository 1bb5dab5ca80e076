"""Several sources of one pipeline: their columns together, the places of an interval, and what is refused."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from statelib.definition.pipeline import Pipeline, load_pipeline
from statelib.definition.source.parts import source_parts
from statelib.definition.source.readiness import ready_rules
from statelib.errors import InvalidRequestError
from statelib.flows.checkpoint.readiness import missing
from statelib.model.checkpoint import DataInterval
from statelib.storage.source_listing import SourceListing

DAY_MS = 86_400_000
START_MS = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp() * 1000)


def new_source(name: str, **more: Any) -> dict[str, Any]:
    columns = {"customer": "string", "at": "instant"}
    return {"path": f"{{data}}/{name}/{{start:%Y-%m-%d}}", "columns": columns | more.pop("columns", {}), **more}


def content(**more: Any) -> dict[str, Any]:
    sources = {
        "orders": new_source("orders", columns={"amount": "double"}),
        "refunds": new_source("refunds", columns={"amount": "double", "reason": "string"}),
    }
    states = {"seen": {"kind": "value", "fields": {"n": {"agg": "count"}}}}
    return {
        "name": "customers", "schedule": {"cron": "@daily", "start": "2026-01-01"}, "sources": sources,
        "key": "customer", "backend": "heap", "states": states, **more,
    }  # fmt: skip


def loaded(tmp_path: Path, data: dict[str, Any]) -> Pipeline:
    path = tmp_path / "customers.yaml"
    path.write_text(yaml.safe_dump(data, sort_keys=False))
    return load_pipeline(path)


def problem_of(tmp_path: Path, data: dict[str, Any]) -> str:
    with pytest.raises(InvalidRequestError) as caught:
        loaded(tmp_path, data)
    return caught.value.message


def test_the_columns_are_those_of_all_sources(tmp_path: Path) -> None:
    pipeline = loaded(tmp_path, content())
    assert list(pipeline.column_types()) == ["customer", "at", "amount", "reason"]
    assert list(pipeline.inputs) == ["sources.orders", "sources.refunds"]
    parts = source_parts(pipeline, "/d", DataInterval(START_MS, START_MS + 2 * DAY_MS))
    days = ("2026-01-01", "2026-01-02")
    assert [part.path for part in parts] == [f"/d/{name}/{day}" for day in days for name in ("orders", "refunds")]
    assert parts[1].place == "refunds (/d/refunds/2026-01-01)"


@pytest.mark.parametrize(
    ("name", "source", "expected"),
    [
        ("refunds", new_source("r", columns={"amount": "long"}),
         "sources.refunds.columns.amount: expected double, as in sources.orders, found long"),
        ("refunds", {"path": "{start}-{end}", "columns": {"at": "instant"}},
         "sources.refunds.columns: has no column 'customer': it is the key"),
        ("refunds", {"path": "{data}/all", "columns": {"customer": "string"}},
         "sources.refunds.path: names neither {start} nor {end}"),
        ("refunds", new_source("r", ready={"next_interval": False}),
         "sources.refunds.ready: expected one of marker"),
        ("re.funds", new_source("r"), "expected a name without dots"),
        ("refunds", new_source("r", table="x"), "sources.refunds.table: a source is a path or a table"),
    ],
)  # fmt: skip
def test_the_problem_of_a_source_is_named(tmp_path: Path, name: str, source: dict[str, Any], expected: str) -> None:
    data = content()
    del data["sources"]["refunds"]
    data["sources"][name] = source
    assert expected in problem_of(tmp_path, data)


def test_a_file_has_one_source_or_several_by_name(tmp_path: Path) -> None:
    both = content(source=new_source("more"))
    assert "sources: expected source or sources, found both" in problem_of(tmp_path, both)
    neither = content()
    del neither["sources"]
    assert "source: is missing: expected source, or sources by name" in problem_of(tmp_path, neither)


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ({"kind": "value", "value": {"agg": "count"}, "window": {"time": "paid_at", "tumbling": "1d", "retain": "1d"}},
         "sources.refunds.columns: has no column 'paid_at': it is the time of the windows of state n"),
        ({"kind": "map", "user_key": "product", "value": {"agg": "count"}},
         "sources.refunds.columns: has no column 'product': it is the user key of state n"),
        ({"kind": "value", "value": {"agg": "last", "of": "product", "by": "at", "nulls": "keep"}},
         "states.n.value: events of sources.refunds, which has no product, would replace it by a null"),
        ({"kind": "value", "fields": {"p": {"agg": "last", "of": ["product", "amount"], "by": "at"}}},
         "states.n.fields.p: events of sources.refunds, which has no product, would replace it by a null"),
        ({"kind": "value", "value": {"agg": "latest", "by": "at"}},
         "states.n.value: events of sources.refunds, which has no product, would replace it by a null"),
    ],
)  # fmt: skip
def test_a_column_that_every_event_needs_is_in_every_source(
    tmp_path: Path, state: dict[str, Any], expected: str
) -> None:
    data = content(states={"n": state})
    data["sources"]["orders"]["columns"] |= {"product": "string", "paid_at": "instant"}
    assert expected in problem_of(tmp_path, data)


def test_a_field_ordered_by_a_column_of_its_own_source_keeps_its_nulls(tmp_path: Path) -> None:
    state = {"kind": "value", "value": {"agg": "last", "of": "product", "by": "paid_at", "nulls": "keep"}}
    data = content(states={"n": state})
    data["sources"]["orders"]["columns"] |= {"product": "string", "paid_at": "instant"}
    loaded(tmp_path, data)


def test_a_source_of_deletes_alone_needs_no_columns_of_the_newest_row(tmp_path: Path) -> None:
    data = content(states={"n": {"kind": "value", "value": {"agg": "latest", "by": "at"}}}, order_by="at")
    del data["sources"]["orders"]["columns"]["amount"]
    assert "sources.orders, which has no amount" in problem_of(tmp_path, data | {"order_by": ()})
    data["sources"]["orders"]["delete_when"] = "true"
    loaded(tmp_path, data)


def test_each_source_is_ready_by_its_own_conditions(tmp_path: Path) -> None:
    data = content()
    data["sources"]["orders"]["ready"] = {"marker": "_SUCCESS", "timeout": "1h"}
    data["sources"]["refunds"] |= {"ready": {"next_interval": True}, "on_missing": "empty"}
    rules = ready_rules(loaded(tmp_path, data), "/d", DataInterval(START_MS, START_MS + DAY_MS))
    assert [(rule.source, rule.timeout_ms, rule.may_be_missing) for rule in rules] == [
        ("orders", 3_600_000, False), ("refunds", 7 * DAY_MS, True),
    ]  # fmt: skip

    def look(path: str) -> SourceListing:
        return SourceListing(path == "/d/orders/2026-01-01", 1, 0)

    assert [gap for rule in rules for gap in missing(rule, look)] == [
        "orders: /d/orders/2026-01-01/_SUCCESS does not exist",
        "refunds: /d/refunds/2026-01-02, of the interval after it, does not exist",
    ]


def test_a_delete_needs_an_order_that_every_source_has(tmp_path: Path) -> None:
    data = content()
    data["sources"]["refunds"]["delete_when"] = "op = 'd'"
    assert "order_by: is missing: 'delete_when' needs the columns" in problem_of(tmp_path, data)
    assert "order_by.0: column 'tim' is not in source.columns" in problem_of(tmp_path, data | {"order_by": "tim"})
    expected = "sources.orders.columns: has no column 'reason': it is in order_by, which every source must have"
    assert expected in problem_of(tmp_path, data | {"order_by": ["at", "reason"]})
    assert loaded(tmp_path, data | {"order_by": "at"}).has_deletes
    data["sources"]["refunds"]["delete_when"] = " "
    assert "sources.refunds.delete_when: expected a condition" in problem_of(tmp_path, data | {"order_by": "at"})
    assert "order_by: has a meaning only with 'delete_when'" in problem_of(tmp_path, content(order_by="at"))


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ({"value": {"agg": "max", "of": "amount"}},
         "n.value.agg: sources.refunds has 'changes', which take back events: max cannot take one back; avg, count,"),
        ({"fields": {"reasons": {"agg": "distinct", "of": "reason"}}}, "n.fields.reasons.agg: sources.refunds has"),
        ({"value": {"agg": "latest", "by": "at"}}, "n.value.agg: sources.refunds has"),
        ({"value": {"agg": "decay", "by": "at", "half_life": "1d"}}, "n.value.agg: sources.refunds has"),
        ({"value": {"agg": "last", "of": "total", "by": "at", "nulls": "keep"}}, "n.value.agg: sources.refunds has"),
        ({"value": {"agg": "count"}, "ttl": "3d"}, "n.ttl: sources.refunds has 'changes'"),
        ({"value": {"agg": "count"}, "window": {"time": "at", "tumbling": "1h", "retain": "1h"}}, "n.window: "),
        ({"fields": {"n": "long"}, "function": "a.b:c"}, "n.function: sources.refunds has 'changes'"),
    ],
)  # fmt: skip
def test_a_state_that_takes_back_no_events_is_named(tmp_path: Path, state: dict[str, Any], expected: str) -> None:
    data = content(states={"n": {"kind": "value", **state}})
    data["sources"]["refunds"]["changes"] = "op"
    assert f"states.{expected}" in problem_of(tmp_path, data)


def test_an_aggregate_of_another_source_may_be_of_any_kind(tmp_path: Path) -> None:
    data = content(states={"n": {"kind": "value", "value": {"agg": "max", "of": "total"}}})
    data["sources"]["orders"]["columns"]["total"] = "double"
    data["sources"]["refunds"]["changes"] = {"op": "op", "before": "before", "after": "after"}
    assert loaded(tmp_path, data).has_changes
    data["sources"]["refunds"]["each"] = {"line": "after.lines"}
    assert "sources.refunds.each.line: takes a list in after: a change has" in problem_of(tmp_path, data)
    data["sources"]["refunds"]["each"] = {"op": "ops", "before": "map_values(log.before)"}
    assert loaded(tmp_path, data).has_changes, "lists of whole changes"
    for condition in ("after.reason = 'x'", "`after`.`reason` = 'x'", "after['reason'] = 'x'", 'after["reason"] = 1'):
        data["sources"]["refunds"]["where"] = f"op <> 't' AND {condition}"
        assert "sources.refunds.where: is a condition on a field of after: an update" in problem_of(tmp_path, data)
    data["sources"]["refunds"]["where"] = "after IS NOT NULL AND coalesce(after.reason, before.reason) = 'x'"
    assert loaded(tmp_path, data).has_changes
    del data["sources"]["refunds"]["changes"]["after"]
    assert "sources.refunds.changes: expected 'before' and 'after', or neither" in problem_of(tmp_path, data)
    data["sources"]["refunds"] |= {"changes": "op", "delete_when": "true"}
    assert "sources.refunds.changes: a source deletes keys or takes back" in problem_of(tmp_path, data)
