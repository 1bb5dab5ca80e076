"""Numbers that go another way, columns that look different: the statistics, and what is not judged."""

import datetime as dt
import math
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from statelib.model.quality import Severity
from statelib.quality.drift import drift_frames, expected_next, null_rate, stability_index
from statelib.quality.evaluation import evaluate
from statelib.quality.facts import Comparison, Trend


def column(values: object, type_: pa.DataType | None = None) -> pa.ChunkedArray:
    return pa.chunked_array([pa.array(values, type_)])


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        ((5,), 5),
        ((100, 100), 100),
        ((100, 110, 120), 130),
        ((100, 110, 500, 510), 520),
        ((9, 1), 0),
        ((100, 90, 80), 70),
    ],
)
def test_the_expected_value_is_the_last_one_plus_the_median_step(before: tuple[int, ...], expected: float) -> None:
    assert expected_next(before) == expected


def test_the_stability_index_of_categories_is_that_of_the_textbooks() -> None:
    before, now = column(["a"] * 50 + ["b"] * 50), column(["a"] * 80 + ["b"] * 20)
    assert stability_index(before, now) == pytest.approx(0.3 * math.log(0.8 / 0.5) - 0.3 * math.log(0.2 / 0.5))


def test_the_stability_index_of_numbers_uses_quantiles_of_the_earlier_values() -> None:
    numbers = np.arange(1000)
    assert stability_index(column(numbers), column(numbers[::-1].copy())) == pytest.approx(0)
    slight, other = (stability_index(column(numbers), column(numbers + by)) for by in (10, 500))
    assert slight is not None
    assert other is not None
    assert 0 < slight < 0.02
    assert other > 1


def test_decimals_are_numbers_whose_distribution_has_quantiles() -> None:
    before, now = (column([Decimal(n * by) / 100 for n in range(1000)], pa.decimal128(38, 2)) for by in (1, 100))
    index = stability_index(before, now)
    assert index is not None
    assert index > 1
    assert stability_index(before, before) == pytest.approx(0)


@pytest.mark.parametrize(
    "values",
    [
        [True, False] * 60,
        [1.5, math.nan, None, math.inf] * 60,
        [dt.date(2013, 1, 1), dt.date(2013, 1, 2)] * 60,
        [dt.datetime(2013, 1, 1, tzinfo=dt.UTC)] * 120,
        [b"x", b"y"] * 60,
        list(range(120)),
    ],
    ids=["boolean", "double", "date", "instant", "bytes", "long"],
)
def test_every_type_of_value_has_a_distribution(values: list[object]) -> None:
    assert stability_index(column(values), column(values)) == pytest.approx(0)


def test_too_few_values_give_no_index() -> None:
    assert stability_index(column(range(99)), column(range(1000))) is None
    assert stability_index(column([None] * 50 + [1] * 99), column(range(1000))) is None, "nulls are not values"


def test_the_null_rate_is_the_share_of_nulls() -> None:
    assert null_rate(column([1, None, 3, None])) == 0.5
    assert null_rate(column([], pa.int64())) == 0


def judge(
    tmp_path: Path, trends: list[Trend], comparisons: list[Comparison]
) -> dict[str, tuple[bool, tuple[str, ...]]]:
    results = [evaluation.result for frame in drift_frames(trends, comparisons) for evaluation in evaluate(frame)]
    return {r.group: (r.passed, r.sentences) for r in results}


def test_each_drift_has_its_verdict_and_sentence(tmp_path: Path) -> None:
    warn, fail = Severity.WARN, Severity.FAIL
    half, ones = column([1, None] * 100), column([1] * 200)
    results = judge(
        tmp_path,
        [
            Trend("entries", "total", (100, 100), 120, 0.2, warn),
            Trend("entries", "lost", (100, 100, 100), 79, 0.2, warn),
            Trend("entries", "young", (100,), 7, 0.2, fail),
            Trend("size_bytes", "checkpoint", (1000, 2000), 3000, 0.0, warn),
        ],
        [
            Comparison("null_rate", "total.n", ones, half, 0.05, warn),
            Comparison("null_rate", "total.m", half, half, 0.05, fail, "state total: a sample"),
            Comparison("distribution", "total.n", None, ones, 0.2, warn),
        ],
    )
    assert results == {
        "drift_entries_fail": (True, ("young: not judged: two checkpoints before it are needed",)),
        "drift_entries_warn": (False, ("lost: 79 entries, expected about 100: 21.0% fewer, at most 20.0% allowed",)),
        "drift_size_bytes_warn": (True, ()),
        "drift_null_rate_fail": (True, ("state total: a sample",)),
        "drift_null_rate_warn": (False, ("total.n: 50.00% null, 0.00% before: at most 5.00% apart allowed",)),
        "drift_distribution_warn": (
            True,
            ("total.n: not judged: it, or the checkpoint before it, has no such column",),
        ),
    }
