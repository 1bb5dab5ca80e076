import math
import statistics
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from statelib.aggregates.accumulators import ACCUMULATORS, accumulator_of
from statelib.aggregates.finished import finished
from statelib.aggregates.grouping import Grouping
from statelib.aggregates.kinds import AGGREGATES, AggregateSpec
from statelib.definition.parts.types import type_of
from statelib.errors import InvalidRequestError
from statelib.model.types import DOUBLE, INT, LONG, STRING


def grouping(*codes: int) -> Grouping:
    array = np.array(codes, np.int64)
    return Grouping(array, np.array([codes.index(c) for c in range(max(codes) + 1)], np.int64))


def partial(spec: AggregateSpec, groups: Grouping, **columns: object) -> list[object]:
    return accumulator_of(spec).partial(pa.table(columns), groups).to_pylist()


def merged(spec: AggregateSpec, before: pa.Array, more: pa.Array) -> list[object]:
    return accumulator_of(spec).merge(before, more).to_pylist()


def test_every_aggregate_has_an_implementation():
    assert list(ACCUMULATORS) == list(AGGREGATES)


def test_count_counts_events_and_count_of_counts_values():
    groups = grouping(0, 1, 0, 2)
    values = pa.array([1.0, None, math.nan, None])
    assert partial(AggregateSpec("count"), groups, x=values) == [2, 1, 1]
    assert partial(AggregateSpec("count", ("x", DOUBLE)), groups, x=values) == [1, 0, 0]


def test_sum_skips_nulls_and_is_null_without_values():
    spec = AggregateSpec("sum", ("x", INT))
    column = pa.array([2**31 - 1, 1, None], pa.int32())
    assert partial(spec, grouping(0, 0, 1), x=column) == [2**31, None]
    before, more = pa.array([None, 5, None], pa.int64()), pa.array([1, 2, None], pa.int64())
    assert merged(spec, before, more) == [1, 7, None]


@pytest.mark.parametrize("values", [[2**62, 2**62], [-(2**62), -(2**62), -1]])
def test_a_sum_beyond_a_long_is_an_error(values):
    spec = AggregateSpec("sum", ("x", LONG))
    with pytest.raises(InvalidRequestError, match="sum of x: expected within a long") as caught:
        partial(spec, grouping(*([0] * len(values))), x=pa.array(values))
    assert caught.value.kind == "sum-overflow"
    with pytest.raises(InvalidRequestError, match="sum of x"):
        merged(spec, pa.array([2**63 - 1]), pa.array([1]))


@pytest.mark.parametrize("days", [1, 10**4])
@pytest.mark.filterwarnings("error")
def test_an_infinite_value_does_not_fade(days):
    """After ten thousand half-lives the weight is 0, and 0 times infinity is no number."""
    spec = AggregateSpec("decay", ("x", DOUBLE), (("t", LONG),), (86400e3,))
    values, times = pa.array([-math.inf, 1.0]), pa.array([0, days * 86400 * 10**9])
    both = [{"value": -math.inf, "by_t": times[1].as_py()}]
    assert partial(spec, grouping(0, 0), x=values, t=times) == both
    first, last = (
        accumulator_of(spec).partial(pa.table({"x": values[i : i + 1], "t": times[i : i + 1]}), grouping(0))
        for i in (0, 1)
    )
    assert merged(spec, first, last) == both == merged(spec, last, first)


def test_the_largest_sum_is_not_an_error():
    spec = AggregateSpec("sum", ("x", LONG))
    assert merged(spec, pa.array([2**63 - 2]), pa.array([1])) == [2**63 - 1]


@pytest.mark.parametrize("values", [[2**62, 2**62 - 1], [-(2**63)], [-(2**62), -(2**62)], [2**63 - 1, -(2**63), 7]])
def test_a_sum_that_a_long_just_holds_is_exact(values):
    spec = AggregateSpec("sum", ("x", LONG))
    groups = grouping(*([0] * len(values)), 1, 1)
    assert partial(spec, groups, x=pa.array([*values, 5, -7])) == [sum(values), -2]


@pytest.mark.filterwarnings("error")
def test_a_variance_of_large_doubles_is_infinite_only_if_the_deviations_are():
    spec = AggregateSpec("variance", ("x", DOUBLE))
    compute = accumulator_of(spec)
    same, apart = (partial(spec, grouping(0, 0), x=pa.array(xs)) for xs in ([1e200, 1e200], [1e308, -1e308]))
    assert [same[0]["squares"], apart[0]["squares"]] == [0.0, math.inf]
    accumulators = pa.array(same, compute.merge(pa.array(same), pa.array(same)).type)
    for before, more in ((pa.nulls(1, accumulators.type), accumulators), (accumulators, accumulators)):
        assert [row["squares"] for row in compute.merge(before, more).to_pylist()] == [0.0]


def test_an_average_of_large_longs_is_a_double():
    spec = AggregateSpec("avg", ("x", LONG))
    (average,) = partial(spec, grouping(0, 0), x=pa.array([2**62 + 1, 2**60]))
    assert average == {"sum": float(2**62) + float(2**60), "count": 2}


@pytest.mark.parametrize(
    ("values", "least", "greatest"),
    [
        (pa.array(["b", None, "ä", "a"]), "a", "ä"),
        (pa.array([False, True, None, True]), False, True),
        (pa.array([3, 1, None, 2], pa.date32()), None, None),
        (pa.array([3, 1, None, 2], pa.timestamp("ns", "UTC")), None, None),
        (pa.array([3.5, math.nan, None, -1.0]), -1.0, 3.5),
    ],
)
def test_min_and_max_accept_every_ordered_type(values, least, greatest):
    present = [v for v in values.to_pylist() if v is not None and v == v]
    least, greatest = (min(present), max(present)) if least is None else (least, greatest)
    for agg, expected in (("min", least), ("max", greatest)):
        spec = AggregateSpec(agg, ("x", DOUBLE))
        assert partial(spec, grouping(0, 0, 0, 0), x=values) == [expected]
        halves = pa.array([values[0].as_py(), None], values.type), pa.array([values[3].as_py(), None], values.type)
        ends = min if agg == "min" else max
        assert merged(spec, *halves) == [ends(values[0].as_py(), values[3].as_py()), None]


def test_the_zero_of_an_aggregate_is_positive():
    for agg in ("min", "max"):
        for values in ([0.0, -0.0], [-0.0, 0.0]):
            (column,) = partial(AggregateSpec(agg, ("x", DOUBLE)), grouping(0, 0), x=pa.array(values))
            assert math.copysign(1, column) == 1


def test_avg_keeps_sum_and_count():
    spec = AggregateSpec("avg", ("x", DOUBLE))
    column = accumulator_of(spec).partial(pa.table({"x": [1.0, 2.0, None, 4.0]}), grouping(0, 0, 1, 2))
    assert column.to_pylist() == [{"sum": 3.0, "count": 2}, None, {"sum": 4.0, "count": 1}]
    nothing = pa.nulls(3, column.type)
    assert merged(spec, nothing, column) == merged(spec, column, nothing) == column.to_pylist()
    assert merged(spec, column, column)[0] == {"sum": 6.0, "count": 4}


def test_the_variance_of_large_numbers_is_exact():
    """The difference of sums of squares would be 0 here, or negative."""
    spec = AggregateSpec("variance", ("x", DOUBLE))
    numbers = [1e9 + n for n in (4.0, 7.0, 13.0, 16.0)]
    partials = accumulator_of(spec).partial(pa.table({"x": numbers}), grouping(0, 0, 1, 1))
    halves = partials[0:1], partials[1:2]
    assert merged(spec, *halves) == [{"mean": 1e9 + 10, "squares": 90.0, "count": 4}]
    whole = pa.chunked_array([accumulator_of(spec).merge(*halves)])
    assert finished("variance", whole).to_pylist() == [statistics.variance(numbers)] == [30.0]
    assert finished("stddev", whole).to_pylist() == [math.sqrt(30.0)]


def test_the_variance_of_large_numbers_does_not_contain_the_rounding_of_their_mean():
    numbers = [1e15 + n % 4 for n in range(200)] * 3
    spec = AggregateSpec("variance", ("x", DOUBLE))
    partials = accumulator_of(spec).partial(pa.table({"x": numbers}), grouping(*([0] * len(numbers))))
    (variance,) = finished("variance", pa.chunked_array([partials])).to_pylist()
    assert variance == pytest.approx(statistics.variance([n - 1e15 for n in numbers]))


def test_a_variance_needs_two_values():
    spec = AggregateSpec("variance", ("x", DOUBLE))
    partials = accumulator_of(spec).partial(pa.table({"x": [1.0, None, 2.0, 2.0]}), grouping(0, 1, 2, 2))
    assert finished("variance", pa.chunked_array([partials])).to_pylist() == [None, None, 0.0]
    assert finished("stddev", pa.chunked_array([partials])).to_pylist() == [None, None, 0.0]


def test_last_takes_the_greatest_order_then_the_greatest_value():
    spec = AggregateSpec("last", ("v", STRING), (("t", LONG), ("n", LONG)))
    columns = {
        "t": pa.array([2, 2, 2, 1, None]),
        "n": pa.array([1, 5, 5, 9, 9]),
        "v": pa.array(["a", "b", "c", "z", "z"]),
    }
    assert partial(spec, grouping(0, 0, 0, 0, 0), **columns) == [{"value": "c", "by_t": 2, "by_n": 5}]
    first = AggregateSpec("first", spec.of, spec.by)
    assert partial(first, grouping(0, 0, 0, 0, 0), **columns) == [{"value": "z", "by_t": 1, "by_n": 9}]


def test_last_skips_null_values():
    spec = AggregateSpec("last", ("v", STRING), (("t", LONG),))
    columns = {"t": pa.array([1, 2, 3]), "v": pa.array(["a", None, None])}
    assert partial(spec, grouping(0, 0, 1), **columns) == [{"value": "a", "by_t": 1}, None]


def test_last_compares_new_values_with_the_stored_one():
    spec = AggregateSpec("last", ("v", STRING), (("t", LONG),))
    type_ = pa.struct([("value", pa.string()), ("by_t", pa.int64())])
    before = pa.array([{"value": "a", "by_t": 5}, {"value": "a", "by_t": 5}, None, None], type_)
    more = pa.array([{"value": "b", "by_t": 4}, {"value": "b", "by_t": 5}, {"value": "c", "by_t": 0}, None], type_)
    assert [m and m["value"] for m in merged(spec, before, more)] == ["a", "b", "c", None]
    assert merged(spec, before, more) == merged(spec, more, before)


def test_collect_and_distinct_are_ascending():
    columns = {"x": pa.array(["b", "a", "b", None, "z"])}
    groups = grouping(0, 0, 0, 1, 2)
    collect, distinct = (AggregateSpec(agg, ("x", STRING)) for agg in ("collect", "distinct"))
    assert partial(collect, groups, **columns) == [["a", "b", "b"], None, ["z"]]
    assert partial(distinct, groups, **columns) == [["a", "b"], None, ["z"]]
    before, more = pa.array([["a", "c"], None, ["x"], None]), pa.array([["b", "c"], ["q"], None, None])
    assert merged(collect, before, more) == [["a", "b", "c", "c"], ["q"], ["x"], None]
    assert merged(distinct, before, more) == [["a", "b", "c"], ["q"], ["x"], None]


def test_histogram_counts_up_to_and_including_each_bound():
    spec = AggregateSpec("histogram", ("x", DOUBLE), bounds=(0.0, 15.0))
    values = pa.array([0.0, 0.5, 15.0, 15.5, math.inf, None])
    column = accumulator_of(spec).partial(pa.table({"x": values}), grouping(0, 0, 0, 0, 0, 1))
    assert column.to_pylist() == [[1, 2, 2], None]
    assert merged(spec, column, column) == [[2, 4, 4], None]
    assert merged(spec, pa.nulls(2, column.type), column) == column.to_pylist()


def test_longs_are_compared_with_the_bounds_of_a_histogram_exactly():
    bounds = (float("-inf"), 0.5, float(2**53), float(2**63))
    spec = AggregateSpec("histogram", ("x", LONG), bounds=bounds)
    values = pa.array([0, 1, 2**53, 2**53 + 1, 2**63 - 1, -(2**63) + 1], pa.int64())
    assert partial(spec, grouping(0, 0, 0, 0, 0, 0), x=values) == [[0, 2, 2, 2, 0]]


def test_a_decimal_that_is_a_bound_of_a_histogram_is_counted_below_it():
    """Arrow casts the decimals 0.35 and 0.70 to doubles that are larger than those of the bounds."""
    spec = AggregateSpec("histogram", ("x", type_of("decimal(10, 2)")), bounds=(0.35, 0.7))
    values = pa.array([Decimal("0.35"), Decimal("0.70"), Decimal("0.71")], pa.decimal128(10, 2))
    assert partial(spec, grouping(0, 0, 0), x=values) == [[1, 1, 1]]


def test_histogram_refuses_state_of_other_bounds():
    spec = AggregateSpec("histogram", ("x", DOUBLE), bounds=(0.0, 15.0))
    with pytest.raises(InvalidRequestError, match="holds 2 counts, its 2 bounds make 3") as caught:
        merged(spec, pa.array([None, [1, 1]]), pa.array([[1, 0, 0], [1, 0, 0]]))
    assert caught.value.kind == "histogram-bounds-changed"


def test_no_rows_make_no_partials():
    nothing = Grouping(np.empty(0, np.int64), np.empty(0, np.int64))
    for agg in AGGREGATES:
        of_whole = agg in ("approx_distinct", "theta", "bitmap")
        table = pa.table({"x": pa.array([], pa.int64() if of_whole else pa.float64()), "t": pa.array([], pa.int64())})
        spec = AggregateSpec(agg, ("x", LONG if of_whole else DOUBLE), (("t", LONG),), (0.0,))
        assert len(accumulator_of(spec).partial(table, nothing)) == 0
