"""Aggregates that take events back equal those of the events that are left, however the intervals are stored."""

import random
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from statelib.definition.pipeline import Pipeline
from statelib.errors import InvalidRequestError
from statelib.functions.change_logs.changes import APPLIED, CHANGE, RETRACTED
from statelib.testing.local_run import LocalRun
from statelib.testing.subtask_run import SubtaskRun
from tests.support.extent import examples

Event = tuple[str, str, int | None]
"""Key, user key, number."""
STATES: dict[str, dict[str, Any]] = {
    "row": {
        "kind": "value",
        "fields": {
            "events": {"agg": "count"}, "numbers": {"agg": "count", "of": "n"}, "sum": {"agg": "sum", "of": "n"},
            "mean": {"agg": "avg", "of": "n"}, "sizes": {"agg": "histogram", "of": "n", "bounds": [0, 3]},
            "x": {"agg": "count", "where": "is_x"}, "exact": {"agg": "sum", "of": "d"},
        },
    },
    "per_u": {"kind": "map", "user_key": "u", "value": {"agg": "count"}},
    "mean": {"kind": "aggregating", "value": {"agg": "avg", "of": "n"}},
}  # fmt: skip


def pipeline(n: str = "long", **changes: object) -> Pipeline:
    columns = {"k": "string", "u": "string", "n": n, "is_x": "boolean", "d": "decimal(10,2)"}
    source = {"path": "{start}-{end}", "changes": "op", "columns": columns}
    document = {"name": "p", "source": source, "key": "k", "states": STATES, "backend": "heap"}
    return Pipeline.model_validate(document | changes)


def table(events: list[tuple[Event, int]]) -> pa.Table:
    numbers = pa.array([event[2] for event, _ in events], pa.int64())
    return pa.table(
        {
            "k": pa.array([event[0] for event, _ in events], pa.string()),
            "u": pa.array([event[1] for event, _ in events], pa.string()),
            "n": numbers,
            "is_x": pa.array([event[1] == "x" for event, _ in events], pa.bool_()),
            "d": numbers.cast(pa.decimal128(21, 2)).cast(pa.decimal128(10, 2)),
            CHANGE: pa.array([change for _, change in events], pa.int8()),
        }
    )


def same(run: LocalRun | SubtaskRun, left: Counter[Event]) -> None:
    """Assert that every state equals the events that are left, one key after the other."""
    keys = {key for key, _, _ in left}
    expected: dict[str, dict[str, Any]] = {}
    means = {}
    for key in keys:
        events = [event for event in left.elements() if event[0] == key]
        numbers = [n for _, _, n in events if n is not None]
        mean = {"sum": float(sum(numbers)), "count": len(numbers)} if numbers else None
        sizes = [sum(n <= 0 for n in numbers), sum(0 < n <= 3 for n in numbers), sum(n > 3 for n in numbers)]
        expected[key] = {
            "events": len(events), "numbers": len(numbers), "mean": mean, "sizes": sizes if numbers else None,
            "x": sum(u == "x" for _, u, _ in events), "sum": sum(numbers), "exact": sum(numbers),
        }  # fmt: skip
        means |= {key: mean} if mean else {}
    rows: dict[Any, Any] = run.state("row")
    assert {key: row | {"sum": row["sum"] or 0, "exact": row["exact"] or 0} for key, row in rows.items()} == expected
    assert run.state("per_u") == {key: dict(Counter(u for k, u, _ in left.elements() if k == key)) for key in keys}
    assert run.state("mean") == means


def interval_of(choose: random.Random, left: Counter[Event]) -> list[tuple[Event, int]]:
    """Return the events of one interval in any order: new ones, and ones taken back, of this interval too. Update
    the events that are left."""
    events: list[tuple[Event, int]] = []
    for _ in range(choose.randint(0, 15)):
        present = sorted(left.elements(), key=repr)
        if present and choose.random() < 0.5:
            event = choose.choice(present)
            left -= Counter([event])
            events.append((event, RETRACTED))
        else:
            event = (choose.choice("abc"), choose.choice("xy"), choose.choice([None, *range(-4, 9)]))
            left[event] += 1
            events.append((event, APPLIED))
    choose.shuffle(events)
    return events


STEPS = st.tuples(
    st.sampled_from(["canonical", "full", "incremental"]), st.sampled_from(["heap", "rocksdb"]), st.integers(1, 3)
)


@settings(deadline=None, max_examples=examples(20))
@given(st.randoms(use_true_random=False), st.lists(STEPS, min_size=1, max_size=6))
def test_the_states_are_those_of_the_events_that_are_left(
    choose: random.Random, steps: list[tuple[str, str, int]]
) -> None:
    with tempfile.TemporaryDirectory() as root:
        backend, left = steps[0][1], Counter[Event]()
        run = SubtaskRun(pipeline(), Path(root), backend)
        for number, (strategy, next_backend, parallelism) in enumerate(steps):
            run.apply(table(interval_of(choose, left)), number)
            same(run, left)
            native_heap = backend == "heap" and strategy != "canonical"
            backend = "heap" if native_heap else next_backend  # RocksDB cannot read the heap's own stream.
            run.checkpoint(strategy, backend, parallelism)
            same(run, left)
        run.close()


def test_more_than_was_applied_is_not_taken_back() -> None:
    run = LocalRun(pipeline())
    run.apply(table([(("a", "x", 1), APPLIED)]))
    with pytest.raises(
        InvalidRequestError, match=r"state row, field events: count: 1 more values of one key"
    ) as caught:
        run.apply(table([(("a", "x", 1), RETRACTED), (("a", "x", 1), RETRACTED)]))
    assert caught.value.kind == "retracted-too-often"
    same(run, Counter([("a", "x", 1)]))


@pytest.mark.parametrize("value", [{"agg": "sum", "of": "n"}, {"agg": "avg", "of": "n"}])
@pytest.mark.parametrize("numbers", [[float("inf"), 1.0], [1.5e308, 1.5e308], [float("-inf"), float("inf")]])
def test_nothing_is_taken_back_from_an_infinite_sum(value: dict[str, str], numbers: list[float]) -> None:
    run = LocalRun(pipeline("double", states={"s": {"kind": "value", "fields": {"total": value}}}))

    def apply(changes: list[int], of: list[float]) -> None:
        rows = table([(("a", "x", None), change) for change in changes])
        run.apply(rows.set_column(2, "n", pa.array(of, pa.float64())))

    apply([APPLIED, APPLIED], [2.0, 3.0])
    apply([RETRACTED], [3.0])
    assert run.state("s") == {"a": {"total": 2.0 if value["agg"] == "sum" else {"sum": 2.0, "count": 1}}}
    apply([APPLIED, APPLIED], numbers)
    before = repr(run.state("s"))
    with pytest.raises(InvalidRequestError, match=r"state s, field total: .* infinite or not a number") as caught:
        apply([RETRACTED], numbers[:1])
    assert caught.value.kind == "sum-not-finite"
    assert repr(run.state("s")) == before


def test_the_least_long_is_taken_back() -> None:
    run = LocalRun(pipeline(states={"s": {"kind": "value", "fields": {"sum": {"agg": "sum", "of": "n"}}}}))
    least = table([(("a", "x", None), APPLIED)]).set_column(2, "n", pa.array([-(2**63)], pa.int64()))
    run.apply(least)
    run.apply(table([(("a", "x", 1), APPLIED)]))
    run.apply(least.set_column(5, CHANGE, pa.array([RETRACTED], pa.int8())))
    assert run.state("s") == {"a": {"sum": 1}}


def test_large_numbers_are_updated_without_an_overflow() -> None:
    run = LocalRun(pipeline(states={"s": {"kind": "value", "fields": {"sum": {"agg": "sum", "of": "n"}}}}))
    rows = [(("a", "x", None), change) for change in (RETRACTED, APPLIED) * 2]
    run.apply(table(rows[1:2]).set_column(2, "n", pa.array([6 * 10**18], pa.int64())))
    numbers = [6 * 10**18 + number for number in (0, 1, 1, 2)]
    run.apply(table(rows).set_column(2, "n", pa.array(numbers, pa.int64())))
    assert run.state("s") == {"a": {"sum": 6 * 10**18 + 2}}
    with pytest.raises(InvalidRequestError, match="expected within a long") as caught:
        run.apply(table([rows[0], rows[1], rows[1]]).set_column(2, "n", pa.array([1, *numbers[:2]], pa.int64())))
    assert caught.value.kind == "sum-overflow"


def test_a_count_that_was_added_later_ends_no_entry() -> None:
    fields = {"sum": {"agg": "sum", "of": "n"}, "events": {"agg": "count"}, "numbers": {"agg": "count", "of": "n"}}
    run = LocalRun(pipeline(states={"s": {"kind": "value", "fields": fields}}))
    run.apply(table([(("a", "x", 90), APPLIED), (("a", "x", 10), APPLIED)]))
    before = run.backend.read("s", next(run.backend.scan("s")).keys)
    sums, counts = before.values.field("sum"), pa.nulls(1, pa.int64())
    added = pa.StructArray.from_arrays([sums, counts, counts], fields=list(before.values.type))
    run.backend.write(before, "s", added)
    update = [(("a", "x", 10), RETRACTED), (("a", "x", 12), APPLIED)]
    for changes in (update, [(("a", "x", 5), APPLIED)], [(("a", "x", 5), RETRACTED), (("b", "x", 5), APPLIED)]):
        run.apply(table(changes))
    unknown, complete = {"events": None, "numbers": None}, {"events": 1, "numbers": 1}
    assert run.state("s") == {"a": {"sum": 102} | unknown, "b": {"sum": 5} | complete}
