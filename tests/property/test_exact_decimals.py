"""Decimals are exact in every aggregate, as keys and in maps: compared with Python's own decimals."""

import decimal
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from statelib.aggregates.decimal_sums import sum_decimals
from statelib.aggregates.finished import finished
from statelib.definition.pipeline import Pipeline
from statelib.errors import InvalidRequestError
from statelib.testing.local_run import LocalRun
from tests.support.extent import examples

EXACT = decimal.Context(prec=100, rounding=decimal.ROUND_HALF_UP)
SMALL, LARGE = "decimal(12, 2)", "sql<DECIMAL(30, 4)>"
COLUMNS = {"k": "decimal(9, 3)", "small": SMALL, "large": LARGE, "t": "long"}
SCHEMA = pa.schema(
    [("k", pa.decimal128(9, 3)), ("small", pa.decimal128(12, 2)), ("large", pa.decimal128(30, 4)), ("t", pa.int64())]
)
AGGREGATES = ("sum", "min", "max", "avg", "collect", "distinct")
FIELDS: dict[str, dict[str, Any]] = {
    **{f"{agg}_{of}": {"agg": agg, "of": of} for agg in AGGREGATES for of in ("small", "large")},
    "last": {"agg": "last", "of": "small", "by": ["large"]},
    "spread": {"agg": "histogram", "of": "small", "bounds": [0.0, 10.5]},
}
STATES: dict[str, Any] = {
    "row": {"kind": "value", "fields": FIELDS},
    "map": {"kind": "map", "user_key": "small", "value": {"agg": "sum", "of": "large"}},
    "total": {"kind": "reducing", "value": {"agg": "sum", "of": "large"}},
    "list": {"kind": "list", "value": {"agg": "distinct", "of": "small"}},
}


def scaled(digits: int, scale: int) -> st.SearchStrategy[Decimal]:
    most = 10**digits - 1
    unscaled = st.one_of(st.integers(-12, 12), st.integers(-most, most), st.sampled_from([most, -most]))
    return unscaled.map(lambda number: Decimal(number).scaleb(-scale, EXACT))


EVENT = st.fixed_dictionaries(
    {
        "k": st.sampled_from([Decimal("0.000"), Decimal("0.001"), Decimal("-1.500"), Decimal("999999.999")]),
        "small": st.none() | scaled(12, 2),
        "large": st.none() | scaled(30, 4),
        "t": st.integers(0, 3),
    }
)


def pipeline(states: dict[str, Any], columns: dict[str, str] | None = None) -> Pipeline:
    source = {"path": "{start}-{end}", "columns": columns or COLUMNS}
    content = {"name": "p", "source": source, "key": ["k"], "on_null_key": "drop", "states": states, "backend": "heap"}
    return Pipeline.model_validate(content)


def expected(events: list[dict[str, Any]], spec: dict[str, Any]) -> object:
    if spec["agg"] == "last":
        pairs = [(e["large"], e["small"]) for e in events if None not in (e["large"], e["small"])]
        return {"value": max(pairs)[1], "by_large": max(pairs)[0]} if pairs else None
    values = [e[spec["of"]] for e in events if e[spec["of"]] is not None]
    if not values:
        return None
    if spec["agg"] == "histogram":
        low, high = (sum(v <= bound for v in values) for bound in (0, Decimal("10.5")))
        return [low, high - low, len(values) - high]
    total = sum(values, Decimal(0))
    return {
        "sum": total, "min": min(values), "max": max(values), "avg": {"sum": total, "count": len(values)},
        "collect": sorted(values), "distinct": sorted(set(values)),
    }[spec["agg"]]  # fmt: skip


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(EVENT, max_size=30), st.randoms(use_true_random=False))
def test_every_aggregate_of_decimals_is_exact(events, random):
    run, delivered = LocalRun(pipeline(STATES)), random.sample(events, len(events))
    while delivered:
        size = random.randint(1, len(delivered))
        batch, delivered = delivered[:size], delivered[size:]
        run.apply(pa.Table.from_pylist(batch, SCHEMA))
    with decimal.localcontext(EXACT):
        keys = {event["k"]: [e for e in events if e["k"] == event["k"]] for event in events}
        rows = {k: {name: expected(e, spec) for name, spec in FIELDS.items()} for k, e in keys.items()}
    assert run.state("row") == rows
    assert run.state("total") == {k: row["sum_large"] for k, row in rows.items() if row["sum_large"] is not None}
    assert run.state("list") == {k: row["distinct_small"] for k, row in rows.items() if row["distinct_small"]}
    sums: dict[Any, dict[Any, Any]] = {}
    for event in events:
        if event["large"] is not None and event["small"] is not None:
            of_key = sums.setdefault(event["k"], {})
            of_key[event["small"]] = EXACT.add(of_key.get(event["small"], Decimal(0)), event["large"])
    assert run.state("map") == sums


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(st.tuples(scaled(38, 10), st.integers(1, 9)), min_size=1))
def test_averages_are_rounded_half_up(pairs):
    sums, counts = zip(*pairs, strict=True)
    fields = [pa.array(sums, pa.decimal128(38, 10)), pa.array(counts, pa.int64())]
    averages = finished("avg", pa.chunked_array([pa.StructArray.from_arrays(fields, ["sum", "count"])]))
    assert averages.to_pylist() == [
        EXACT.divide(total, Decimal(count)).quantize(Decimal("1e-10"), context=EXACT) for total, count in pairs
    ]


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(st.tuples(scaled(38, 5), st.integers(0, 3))))
def test_a_sum_of_38_digits_is_exact_or_an_error(pairs):
    """A sum beyond 38 digits never becomes another number."""
    codes = pa.array([code for _, code in pairs], pa.int64()).to_numpy()
    totals: dict[int, Decimal] = {}
    for value, code in pairs:
        totals[code] = EXACT.add(totals.get(code, Decimal(0)), value)
    values = pa.array([value for value, _ in pairs], pa.decimal128(38, 5))
    if all(abs(int(total.scaleb(5, EXACT))) < 10**38 for total in totals.values()):
        assert sum_decimals(values, codes, 4).to_pylist() == [totals.get(code) for code in range(4)]
    else:
        with pytest.raises(pa.ArrowInvalid):
            sum_decimals(values, codes, 4)


@pytest.mark.parametrize("type_", ["decimal(38, 2)", "sql<DECIMAL(38, 2)>"])
@pytest.mark.parametrize("cut", [1, 2])
def test_a_sum_beyond_38_digits_names_state_and_field(type_, cut):
    fields = {"total": {"agg": "sum", "of": "x"}}
    run = LocalRun(pipeline({"spent": {"kind": "value", "fields": fields}}, {"k": "decimal(9, 3)", "x": type_}))
    half = Decimal(6 * 10**37).scaleb(-2)
    events = pa.table({"k": pa.array([Decimal(1)] * 2, pa.decimal128(9, 3)), "x": pa.array([half] * 2)})
    if cut == 1:
        run.apply(events.slice(1))
    with pytest.raises(InvalidRequestError) as caught:
        run.apply(events.slice(0, cut))
    assert caught.value.kind == "sum-overflow"
    text = "state spent, field total: sum of x: expected at most 38 digits, 2 of them after the point, found more"
    assert caught.value.message == text
