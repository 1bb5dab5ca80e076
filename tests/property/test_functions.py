"""Declared states are compared with the simplest computation: a loop over all events of each key."""

import math
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from statelib.definition.pipeline import Pipeline
from statelib.testing.local_run import LocalRun
from tests.support.extent import examples

SCHEMA = pa.schema(
    [
        ("k", pa.string()),
        ("u", pa.int64()),
        ("n", pa.int64()),
        ("x", pa.float64()),
        ("s", pa.string()),
        ("t", pa.int64()),
        ("b", pa.bool_()),
        ("at", pa.timestamp("ns", "UTC")),
    ]
)
BOUNDS = [-1.0, 0.0, 2.5]
FIELDS: dict[str, dict[str, object]] = {
    "events": {"agg": "count"},
    "numbers": {"agg": "count", "of": "x"},
    "total": {"agg": "sum", "of": "n"},
    "sum_x": {"agg": "sum", "of": "x"},
    "least": {"agg": "min", "of": "x"},
    "most": {"agg": "max", "of": "s"},
    "mean": {"agg": "avg", "of": "x"},
    "first": {"agg": "first", "of": "s", "by": ["t", "n"]},
    "last": {"agg": "last", "of": "s", "by": ["t"]},
    "all": {"agg": "collect", "of": "x"},
    "each": {"agg": "distinct", "of": "s"},
    "spread": {"agg": "histogram", "of": "x", "bounds": BOUNDS},
    "every": {"agg": "bool_and", "of": "b"},
    "any": {"agg": "bool_or", "of": "b"},
    "some": {"agg": "count", "where": "b"},
    "some_n": {"agg": "sum", "of": "n", "where": "b"},
    "newest": {"agg": "latest", "by": ["t"]},
    "best": {"agg": "top", "of": "s", "by": ["t"], "n": 2},
    "worst": {"agg": "bottom", "of": ["s", "n"], "by": ["t", "x"], "n": 3},
    "few": {"agg": "collect", "of": "x", "limit": 2},
    "few_each": {"agg": "distinct", "of": "s", "limit": 1},
    "last_some": {"agg": "last", "of": "s", "by": ["t"], "where": "b"},
}
ROUNDED = "rounded"
"""The state whose last bits depend on the order in which events are added."""
STATES: dict[str, dict[str, object]] = {
    "row": {"kind": "value", "fields": FIELDS},
    ROUNDED: {
        "kind": "value",
        "fields": {
            "variance": {"agg": "variance", "of": "x"},
            "stddev": {"agg": "stddev", "of": "n"},
            "heat": {"agg": "decay", "of": "n", "by": "at", "half_life": "1h"},
            "pulse": {"agg": "decay", "by": "at", "half_life": "2h"},
        },
    },
    "map": {"kind": "map", "user_key": "u", "fields": {"events": FIELDS["events"], "last": FIELDS["last"]}},
    "counts": {"kind": "map", "user_key": "u", "value": {"agg": "sum", "of": "n"}},
    "least": {"kind": "reducing", "value": {"agg": "min", "of": "s"}},
    "spread": {"kind": "aggregating", "value": FIELDS["spread"]},
    "list": {"kind": "list", "value": {"agg": "collect", "of": "n"}},
    "ranking": {"kind": "list", "value": FIELDS["best"]},
}

MIDNIGHT = datetime(2026, 1, 1, tzinfo=UTC)
Event = dict[str, object]
small = st.integers(-3, 3)
EVENT = st.fixed_dictionaries(
    {
        "k": st.sampled_from(["a", "b", "ä", ""]),
        "u": st.none() | st.integers(0, 2),
        "n": st.none() | small,
        "x": st.none() | st.sampled_from([-2.0, -1.0, -0.0, 0.0, 2.5, 3.0, math.nan]),
        "s": st.none() | st.sampled_from(["", "p", "q", "\N{SNOWMAN}"]),
        "t": st.none() | st.integers(0, 3),
        "b": st.none() | st.booleans(),
        "at": st.none() | st.integers(0, 12).map(lambda n: MIDNIGHT + timedelta(minutes=20 * n)),
    }
)


def pipeline(key: list[str]) -> Pipeline:
    columns = {"k": "string", "u": "long", "n": "long", "x": "double", "s": "string", "t": "long", "b": "boolean"}
    columns["at"] = "instant"
    source = {"path": "{start}-{end}", "columns": columns}
    return Pipeline.model_validate(
        {"name": "p", "source": source, "key": key, "on_null_key": "drop", "states": STATES, "backend": "heap"}
    )


def of(events: list[Event], column: object) -> list[object]:
    """Return the values of a column; NaN is no value and -0.0 is 0.0."""
    values = [e[str(column)] for e in events]
    return [v + 0.0 if isinstance(v, float) else v for v in values if v is not None and v == v]


def picked(events: list[Event], spec: dict[str, object], choose: Callable[..., object]) -> object:
    columns = [*spec["by"], spec["of"]]
    rows = [tuple(e[c] for c in columns) for e in events if all(e[c] is not None for c in columns)]
    if not rows:
        return None
    *order, value = choose(rows)
    return {"value": value, **{f"by_{c}": v for c, v in zip(columns, order, strict=False)}}


def clean(value: object) -> object:
    """Return a value as it is stored with others of its event: NaN is null, and -0.0 is 0.0."""
    return None if value != value else value + 0.0 if isinstance(value, float) else value


def ordered(event: Event, names: list[str]) -> list[tuple[bool, object]]:
    """Return values that compare like stored values: null is less than all others."""
    return [(clean(event[name]) is not None, clean(event[name])) for name in names]


def ranked(events: list[Event], spec: dict[str, Any]) -> object:
    values = spec["of"] if isinstance(spec["of"], list) else [spec["of"]]
    needed = spec["by"] if isinstance(spec["of"], list) else [*spec["by"], *values]
    present = [e for e in events if all(clean(e[name]) is not None for name in needed)]
    best = sorted(present, key=lambda e: ordered(e, [*spec["by"], *values]), reverse=spec["agg"] == "top")[: spec["n"]]
    return [
        {
            "value": {v: clean(e[v]) for v in values} if isinstance(spec["of"], list) else clean(e[spec["of"]]),
            **{f"by_{name}": clean(e[name]) for name in spec["by"]},
        }
        for e in best
    ] or None


def decayed(events: list[Event], spec: dict[str, Any]) -> object:
    pairs = [(e["at"], e[spec["of"]] if "of" in spec else 1) for e in events]
    present = [(at, value) for at, value in pairs if at is not None and value is not None]
    if not present:
        return None
    last, hours = max(at for at, _ in present), float(spec["half_life"].rstrip("h"))
    total = math.fsum(value * 0.5 ** ((last - at).total_seconds() / 3600 / hours) for at, value in present)
    return {"value": pytest.approx(total, rel=1e-9, abs=1e-9), "by_at": last}


BY_EVENTS: dict[str, Callable[[list[Event], dict[str, Any]], object]] = {
    "top": ranked,
    "bottom": ranked,
    "decay": decayed,
}
"""The aggregates of whole events."""


def deviations(values: list[float]) -> object:
    mean = math.fsum(values) / len(values)
    squares = math.fsum((value - mean) ** 2 for value in values)
    near = {"rel": 1e-9, "abs": 1e-9}
    return {"mean": pytest.approx(mean, **near), "squares": pytest.approx(squares, **near), "count": len(values)}


def aggregate(events: list[Event], spec: dict[str, Any], key: list[str]) -> Any:
    agg = spec["agg"]
    if "where" in spec:
        events = [event for event in events if event[str(spec["where"])]]
    if agg == "count":
        return len(of(events, spec["of"])) if "of" in spec else len(events)
    if agg in BY_EVENTS:
        return BY_EVENTS[agg](events, spec)
    if agg == "latest":
        columns = [name for name in SCHEMA.names if name not in (*key, *spec["by"])]
        one = ranked(events, {"agg": "top", "of": columns, "by": spec["by"], "n": 1})
        return one[0] if isinstance(one, list) else None
    if agg in ("first", "last"):
        return picked(events, spec, min if agg == "first" else max)
    values = of(events, spec["of"])
    if not values:
        return None
    if agg == "histogram":
        bounds = [-math.inf, *BOUNDS, math.inf]
        return [sum(low < v <= high for v in values) for low, high in pairwise(bounds)]
    result = {
        "sum": sum,
        "min": min,
        "max": max,
        "avg": lambda v: {"sum": sum(v), "count": len(v)},
        "variance": deviations,
        "stddev": deviations,
        "bool_and": all,
        "bool_or": any,
        "collect": sorted,
        "distinct": lambda v: sorted(set(v)),
    }[agg](values)
    return result[: spec["limit"]] if "limit" in spec else result


def groups(events: list[Event], columns: list[str]) -> dict[object, list[Event]]:
    grouped: dict[object, list[Event]] = {}
    for event in events:
        key = tuple(event[c] for c in columns)
        if None not in key:
            grouped.setdefault(key if len(key) > 1 else key[0], []).append(event)
    return grouped


def expected(events: list[Event], state: dict[str, Any], key: list[str]) -> object:
    """Return the value of a state after the events of one key, or None if the state has no entry."""
    if "user_key" in state:
        inner = {k: v for k, v in state.items() if k != "user_key"}
        entries = {u: expected(e, inner, key) for u, e in groups(events, [state["user_key"]]).items()}
        return {u: e for u, e in entries.items() if e is not None} or None
    if "value" in state:
        return aggregate(events, state["value"], key)
    return {name: aggregate(events, spec, key) for name, spec in state["fields"].items()}


@settings(max_examples=examples(150), deadline=None)
@given(st.lists(EVENT, max_size=40), st.randoms(use_true_random=False), st.sampled_from([["k"], ["k", "u"], ["u"]]))
def test_declared_states_equal_a_loop_over_the_events(events, random, key):
    """The events are in any order and in batches of any size."""
    run = LocalRun(pipeline(key))
    delivered = random.sample(events, len(events))
    while delivered:
        size = random.randint(1, len(delivered))
        batch, delivered = delivered[:size], delivered[size:]
        run.apply(pa.Table.from_pylist(batch, SCHEMA))
    for name, state in STATES.items():
        of_each = {k: expected(e, state, key) for k, e in groups(events, key).items()}
        assert run.state(name) == {k: v for k, v in of_each.items() if v is not None}, name


@settings(max_examples=examples(50), deadline=None)
@given(st.lists(EVENT, max_size=30), st.randoms(use_true_random=False))
def test_the_same_events_give_the_same_bytes(events, random):
    """The digests of the state do not depend on order and batches either."""
    whole, cut = LocalRun(pipeline(["k"])), LocalRun(pipeline(["k"]))
    whole.apply(pa.Table.from_pylist(events, SCHEMA))
    shuffled = random.sample(events, len(events))
    at = random.randint(0, len(events))
    for batch in (shuffled[:at], shuffled[at:]):
        cut.apply(pa.Table.from_pylist(batch, SCHEMA))
    for name, a, b in zip(STATES, whole.backend.statistics(), cut.backend.statistics(), strict=True):
        assert name == ROUNDED or a.same_content(b), name
