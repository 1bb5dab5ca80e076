"""Drift: the differences between a checkpoint and the checkpoints before it, in numbers and in columns of values."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from statelib.model.amounts import number_of
from statelib.model.quality import Severity
from statelib.quality.facts import Comparison, Trend
from statelib.quality.rules import AtMost, Check, FoundRow, Frame
from statelib.serializers.columns.decimal_words import as_doubles

LEAST_VALUES = 100
"""The least number of values for which a distribution is compared. With fewer, chance alone moves the index beyond any
useful limit."""
BINS = 10
LEAST_SHARE = 1e-4
"""The share that is used for an empty bin, because the index is a sum of logarithms."""

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class _Row:
    """One row of a drift frame. ``drift``: the distance of ``actual`` from ``expected``; ``most``: the largest allowed
    drift. ``note``: why the row was not judged, '' if it was."""

    subject: str
    expected: float
    actual: float
    drift: float
    most: float
    note: str


def drift_frames(trends: Iterable[Trend], comparisons: Iterable[Comparison]) -> list[Frame]:
    """Return one frame per measure and severity, in a fixed order."""
    rows = [(t.measure, t.severity, _trend_row(t), "") for t in trends]
    rows += [(c.measure, c.severity, _comparison_row(c), c.note) for c in comparisons]
    order = list(_WORDS)
    rows.sort(key=lambda row: (order.index(row[0]), row[1]))
    return [_frame(m, s, list(group)) for (m, s), group in groupby(rows, key=lambda row: (row[0], row[1]))]


def expected_next(before: Sequence[int]) -> float:
    """Return the value expected after ``before``: the last value plus the median of the steps between values, at least
    0. So a state that grew every day is expected to grow further, and one unusual day hardly changes the result."""
    steps = [b - a for a, b in pairwise(before)]
    return max(before[-1] + float(np.median(steps)), 0.0) if steps else float(before[-1])


def null_rate(values: pa.ChunkedArray) -> float:
    """Return the share of nulls, 0 to 1; 0 for an empty column."""
    return values.null_count / len(values) if len(values) else 0.0


def stability_index(before: pa.ChunkedArray, now: pa.ChunkedArray) -> float | None:
    """Return the population stability index: the sum over bins of (share now - share before) * ln(share now / share
    before).

    The bins of numbers and times are the quantiles of ``before``; of other types, its most frequent values. Nulls are
    left out. None if either side has fewer than :data:`LEAST_VALUES` values."""
    before, now = pc.drop_null(before), pc.drop_null(now)
    if min(len(before), len(now)) < LEAST_VALUES:
        return None
    shares = _numeric_shares(before, now) if _is_numeric(before.type) else _category_shares(before, now)
    old, new = (np.maximum(part, LEAST_SHARE) for part in shares)
    return float(np.sum((new - old) * np.log(new / old)))


def _trend_row(trend: Trend) -> _Row:
    if len(trend.before) < 2:
        note = "not judged: two checkpoints before it are needed"
        return _Row(trend.subject, trend.current, trend.current, 0.0, trend.most, note)
    expected = expected_next(trend.before)
    drift = abs(trend.current - expected) / max(expected, 1.0)
    return _Row(trend.subject, expected, trend.current, drift, trend.most, "")


def _comparison_row(comparison: Comparison) -> _Row:
    subject, most, before, now = comparison.subject, comparison.most, comparison.before, comparison.now
    if before is None:
        return _Row(subject, 0.0, 0.0, 0.0, most, "not judged: it, or the checkpoint before it, has no such column")
    if comparison.measure == "null_rate":
        old, new = null_rate(before), null_rate(now)
        return _Row(subject, old, new, abs(new - old), most, "")
    index = stability_index(before, now)
    if index is None:
        least = min(len(before) - before.null_count, len(now) - now.null_count)
        return _Row(subject, 0.0, 0.0, 0.0, most, f"not judged: {number_of(least, 'value')}, {LEAST_VALUES} are needed")
    return _Row(subject, 0.0, index, index, most, "")


def _frame(measure: str, severity: Severity, group: list[tuple[str, Severity, _Row, str]]) -> Frame:
    rows = [row for _, _, row, _ in group]
    columns = ["subject", "expected", "found", "drift", "most"]
    table = pd.DataFrame([[r.subject, r.expected, r.actual, r.drift, r.most] for r in rows], columns=columns)
    # The limit is inclusive, but a quotient that equals it may differ in the last bit.
    table["drift"] = table["drift"].round(12)
    notes = [f"{row.subject}: {note}" for row in rows for note in (row.note,) if note]
    notes += sorted({note for _, _, _, note in group if note})
    check = Check(_WORDS[measure], AtMost("drift", "most"), _SENTENCES[measure], severity)
    name = f"drift_{measure}_{severity.lower()}"
    return Frame(name, ("subject", "expected", "found"), table, (check,), tuple(notes))


_WORDS = {
    "entries": "the entries of every state went on as before",
    "size_bytes": "the size went on as before",
    "null_rate": "columns are null as often as before",
    "distribution": "columns are distributed as before",
}


def _trend_sentence(unit: str, row: FoundRow) -> str:
    expected, actual, drift, most = (float(str(row[name])) for name in ("expected", "found", "drift", "most"))
    direction = "more" if actual > expected else "fewer"
    return (
        f"{row['subject']}: {actual:,.0f} {unit}, expected about {expected:,.0f}: {drift:.1%} {direction}, "
        f"at most {most:.1%} allowed"
    )


def _null_rate_sentence(row: FoundRow) -> str:
    expected, actual, most = (float(str(row[name])) for name in ("expected", "found", "most"))
    return f"{row['subject']}: {actual:.2%} null, {expected:.2%} before: at most {most:.2%} apart allowed"


def _distribution_sentence(row: FoundRow) -> str:
    index, most = float(str(row["found"])), float(str(row["most"]))
    return f"{row['subject']}: stability index {index:.3f} against the checkpoint before, at most {most:.3f} allowed"


_SENTENCES = {
    "entries": lambda row: _trend_sentence("entries", row),
    "size_bytes": lambda row: _trend_sentence("bytes", row),
    "null_rate": _null_rate_sentence,
    "distribution": _distribution_sentence,
}


def _is_numeric(type_: pa.DataType) -> bool:
    return bool(
        pa.types.is_integer(type_)
        or pa.types.is_floating(type_)
        or pa.types.is_decimal(type_)
        or pa.types.is_timestamp(type_)
        or pa.types.is_date(type_)
        or pa.types.is_time(type_)
    )


def _numeric_shares(before: pa.ChunkedArray, now: pa.ChunkedArray) -> tuple[Floats, Floats]:
    old, new = (_floats(part) for part in (before, now))
    inner = np.unique(np.quantile(old, np.arange(1, BINS) / BINS))
    counts = (np.bincount(np.searchsorted(inner, part, side="left"), minlength=len(inner) + 1) for part in (old, new))
    first, second = counts
    return first / len(old), second / len(new)


def _floats(values: pa.ChunkedArray) -> Floats:
    """Return numbers or times as doubles, NaN as the largest double."""
    if pa.types.is_floating(values.type):
        numbers = values.to_numpy()
    elif pa.types.is_decimal(values.type):
        numbers = as_doubles(values.combine_chunks()).to_numpy()
    else:
        width = pa.int32() if values.type.bit_width == 32 else pa.int64()
        numbers = (values if pa.types.is_integer(values.type) else values.cast(width)).to_numpy()
    without_nan: Floats = np.nan_to_num(numbers.astype(np.float64), nan=np.finfo(np.float64).max)
    return without_nan


def _category_shares(before: pa.ChunkedArray, now: pa.ChunkedArray) -> tuple[Floats, Floats]:
    """Return the shares, before and now, of the values that were most frequent before, and last the share of all other
    values together."""
    old, new = (_value_counts(part) for part in (before, now))
    frequent = sorted(old, key=lambda value: (-old[value], str(value)))[: BINS - 1]
    return tuple(_shares(part, frequent) for part in (old, new))  # type: ignore[return-value]  # two of them


def _value_counts(values: pa.ChunkedArray) -> dict[object, int]:
    counts = values.value_counts()
    return dict(zip(counts.field(0).to_pylist(), counts.field(1).to_pylist(), strict=True))


def _shares(counts: dict[object, int], frequent: Sequence[object]) -> Floats:
    frequent_counts = [counts.get(value, 0) for value in frequent]
    total = sum(counts.values())
    return np.array([*frequent_counts, total - sum(frequent_counts)], np.float64) / total
