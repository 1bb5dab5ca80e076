"""How far a checkpoint is from those before it: numbers that went another way, columns that look different."""

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

LEAST_VALUES = 100
"""Fewer values say nothing of a distribution: chance alone moves the index beyond any useful limit."""
BINS = 10
LEAST_SHARE = 1e-4
"""What an empty bin counts as: the index is a sum of logarithms."""

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class _Row:
    """What a drift frame has a row of. ``note``: why it was not judged, '' if it was."""

    subject: str
    expected: float
    found: float
    drift: float
    most: float
    note: str


def drift_frames(trends: Iterable[Trend], comparisons: Iterable[Comparison]) -> list[Frame]:
    """A frame a measure and severity, in a fixed order."""
    made = [(t.measure, t.severity, _of_trend(t), "") for t in trends]
    made += [(c.measure, c.severity, _of_comparison(c), c.note) for c in comparisons]
    order = list(_WORDS)
    made.sort(key=lambda found: (order.index(found[0]), found[1]))
    return [_frame(m, s, list(found)) for (m, s), found in groupby(made, key=lambda found: (found[0], found[1]))]


def expected_next(before: Sequence[int]) -> float:
    """The last value and the median step to it: a state that grows every day is expected to grow on, and one odd
    day does not change what is expected."""
    steps = [b - a for a, b in pairwise(before)]
    return max(before[-1] + float(np.median(steps)), 0.0) if steps else float(before[-1])


def null_rate(values: pa.ChunkedArray) -> float:
    return values.null_count / len(values) if len(values) else 0.0


def stability_index(before: pa.ChunkedArray, now: pa.ChunkedArray) -> float | None:
    """The population stability index: over bins, the sum of (share now - share before) * ln(share now / share before).

    Numbers and moments are binned by quantiles of ``before``; anything else by its most frequent values. Nulls are left
    out. None with fewer than :data:`LEAST_VALUES` values on either side."""
    before, now = pc.drop_null(before), pc.drop_null(now)
    if min(len(before), len(now)) < LEAST_VALUES:
        return None
    shares = _numeric_shares(before, now) if _is_numeric(before.type) else _category_shares(before, now)
    old, new = (np.maximum(part, LEAST_SHARE) for part in shares)
    return float(np.sum((new - old) * np.log(new / old)))


def _of_trend(trend: Trend) -> _Row:
    if len(trend.before) < 2:
        note = "not judged: two checkpoints before it are needed"
        return _Row(trend.subject, trend.found, trend.found, 0.0, trend.most, note)
    expected = expected_next(trend.before)
    drift = abs(trend.found - expected) / max(expected, 1.0)
    return _Row(trend.subject, expected, trend.found, drift, trend.most, "")


def _of_comparison(comparison: Comparison) -> _Row:
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


def _frame(measure: str, severity: Severity, found: list[tuple[str, Severity, _Row, str]]) -> Frame:
    rows = [row for _, _, row, _ in found]
    columns = ["subject", "expected", "found", "drift", "most"]
    table = pd.DataFrame([[r.subject, r.expected, r.found, r.drift, r.most] for r in rows], columns=columns)
    # The limit is inclusive, and a quotient of two numbers may miss it by the last bit.
    table["drift"] = table["drift"].round(12)
    name, said = f"drift_{measure}_{severity.lower()}", _WORDS[measure]
    notes = [f"{row.subject}: {note}" for row in rows for note in (row.note,) if note]
    notes += sorted({note for _, _, _, note in found if note})
    check = Check(said, AtMost("drift", "most"), _SENTENCES[measure], severity)
    return Frame(name, ("subject", "expected", "found"), table, (check,), tuple(notes))


_WORDS = {
    "entries": "the entries of every state went on as before",
    "size_bytes": "the size went on as before",
    "null_rate": "columns are null as often as before",
    "distribution": "columns are distributed as before",
}


def _say_trend(unit: str, row: FoundRow) -> str:
    expected, found, drift, most = (float(str(row[name])) for name in ("expected", "found", "drift", "most"))
    direction = "more" if found > expected else "fewer"
    return (
        f"{row['subject']}: {found:,.0f} {unit}, expected about {expected:,.0f}: {drift:.1%} {direction}, "
        f"at most {most:.1%} allowed"
    )


def _say_rate(row: FoundRow) -> str:
    expected, found, most = (float(str(row[name])) for name in ("expected", "found", "most"))
    return f"{row['subject']}: {found:.2%} null, {expected:.2%} before: at most {most:.2%} apart allowed"


def _say_shift(row: FoundRow) -> str:
    found, most = float(str(row["found"])), float(str(row["most"]))
    return f"{row['subject']}: stability index {found:.3f} against the checkpoint before, at most {most:.3f} allowed"


_SENTENCES = {
    "entries": lambda row: _say_trend("entries", row),
    "size_bytes": lambda row: _say_trend("bytes", row),
    "null_rate": _say_rate,
    "distribution": _say_shift,
}


def _is_numeric(type_: pa.DataType) -> bool:
    return bool(
        pa.types.is_integer(type_)
        or pa.types.is_floating(type_)
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
    if pa.types.is_floating(values.type):
        found = values.to_numpy()
    else:
        width = pa.int32() if values.type.bit_width == 32 else pa.int64()
        found = (values if pa.types.is_integer(values.type) else values.cast(width)).to_numpy()
    whole: Floats = np.nan_to_num(found.astype(np.float64), nan=np.finfo(np.float64).max)
    return whole


def _category_shares(before: pa.ChunkedArray, now: pa.ChunkedArray) -> tuple[Floats, Floats]:
    """The most frequent values before, and all others together."""
    old, new = (_counted(part) for part in (before, now))
    frequent = sorted(old, key=lambda value: (-old[value], str(value)))[: BINS - 1]
    return tuple(_shares(part, frequent) for part in (old, new))  # type: ignore[return-value]  # two of them


def _counted(values: pa.ChunkedArray) -> dict[object, int]:
    found = values.value_counts()
    return dict(zip(found.field(0).to_pylist(), found.field(1).to_pylist(), strict=True))


def _shares(counted: dict[object, int], frequent: Sequence[object]) -> Floats:
    known = [counted.get(value, 0) for value in frequent]
    total = sum(counted.values())
    return np.array([*known, total - sum(known)], np.float64) / total
