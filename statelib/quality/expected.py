"""The frames of the expectations in the pipeline file, one per state, and the frame of the restore rehearsal."""

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime, tzinfo
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from statelib.quality.facts import RehearsedRange, StateSample, UserExpectation
from statelib.quality.rules import AllowedValues, Check, FoundRow, Frame, Library, Unanswerable

EXACT_DOUBLES = 1 << 53
"""The magnitude below which a double holds every integer exactly."""
MAX_NAME = 60
"""The most characters of a state's name in the name of its page: file systems allow 255 bytes for the whole name."""
NOT_THERE = "the checkpoint has no such state; the pipeline file has changed since it was taken"
NEEDS_ALL = "needs all entries of the state, which has more than checks.sample_rows allows to read"


def expectation_frames(expectations: Iterable[UserExpectation], samples: Mapping[str, StateSample]) -> list[Frame]:
    """Return one frame per state, in the order in which the pipeline file first names the states. ``samples``: the
    entries that were read, by state."""
    by_state: dict[str, list[UserExpectation]] = {}
    for expectation in expectations:
        by_state.setdefault(expectation.state, []).append(expectation)
    frames = []
    for number, (state, wanted) in enumerate(by_state.items()):
        sample = samples.get(state) or StateSample(state, pa.table({}), (), 0)
        checks = tuple(_check(expectation, sample, exists=state in samples) for expectation in wanted)
        safe = re.sub(r"[^A-Za-z0-9_-]", "_", state)
        named = safe == state and len(safe) <= MAX_NAME
        name = f"state_{safe}" if named else f"state_{number}_{safe[:MAX_NAME]}"
        notes = () if sample.complete else (f"state {state}: {sample.note}",)
        frames.append(Frame(name, sample.keys, _to_pandas(sample.table), checks, notes))
    return frames


def _to_pandas(table: pa.Table) -> pd.DataFrame:
    """Return the table with plain numpy types, because Great Expectations cannot write all other types."""
    return pd.DataFrame({name: _series(table[name]) for name in table.column_names})


def _series(column: pa.ChunkedArray) -> "pd.Series[Any]":
    """Return a column. Integers with nulls become doubles, or Python's integers if a double cannot hold them all.
    Decimals become doubles, because the numbers of the pipeline file are doubles; those of too many digits do not.
    Dates become times."""
    if pa.types.is_decimal(column.type):
        return _decimal_series(column)
    if pa.types.is_date(column.type):
        return column.cast(pa.timestamp("ms")).to_pandas()
    if column.null_count and pa.types.is_integer(column.type):
        least, most = pc.min_max(column).as_py().values()
        if max(abs(least or 0), abs(most or 0)) >= EXACT_DOUBLES:
            return pd.Series(column.to_pylist(), dtype=object)
    return column.to_pandas()


def _decimal_series(column: pa.ChunkedArray) -> "pd.Series[Any]":
    least, most = pc.min_max(column).as_py().values()
    if max(abs(least or Decimal(0)), abs(most or Decimal(0))).scaleb(column.type.scale) < EXACT_DOUBLES:
        return column.cast(pa.float64()).to_pandas()
    return pd.Series(column.to_pylist(), dtype=object)


def _check(expectation: UserExpectation, sample: StateSample, *, exists: bool) -> Check:
    """Return the check of one expectation. ``exists``: whether the checkpoint has the state."""
    state, text = expectation.state, expectation.text
    if not exists:
        return Check(text, Unanswerable(f"state {state}: {text}: {NOT_THERE}"), _row_text, expectation.severity)
    if expectation.needs_all_rows and not sample.complete:
        # The result for a sample would be wrong. A check that cannot be evaluated does not pass.
        return Check(text, Unanswerable(f"state {state}: {text} {NEEDS_ALL}"), _row_text, expectation.severity)
    rule = Library(expectation.library_name, _comparable(expectation.parameters, sample.table))
    return Check(text, rule, lambda row: f"state {state}: {text}: {_row_text(row)}", expectation.severity)


def _comparable(parameters: Mapping[str, object], table: pa.Table) -> dict[str, object]:
    """Return the parameters with their dates and times in the form of the column: without a zone, or in UTC for
    instants. Others cannot be compared with it, or are equal to none of its values."""
    column = str(parameters.get("column", ""))
    type_ = table.schema.field(column).type if column in table.column_names else pa.null()
    if not (pa.types.is_timestamp(type_) or pa.types.is_date(type_)):
        return dict(parameters)
    zone = UTC if pa.types.is_timestamp(type_) and type_.tz else None
    return {
        name: [_moment(item, zone) for item in value] if isinstance(value, list | tuple) else _moment(value, zone)
        for name, value in parameters.items()
    }


def _moment(value: object, zone: tzinfo | None) -> object:
    """Return a date or time as a datetime in ``zone``. It is in UTC unless it has an offset. Return others as they
    are."""
    if not isinstance(value, date):
        return value
    moment = value if isinstance(value, datetime) else datetime(value.year, value.month, value.day)  # noqa: DTZ001
    return (moment.astimezone(UTC) if moment.tzinfo else moment).replace(tzinfo=zone)


def _row_text(row: FoundRow) -> str:
    return ", ".join(f"{name} {_plain(value)!r}" for name, value in row.items())


def _plain(value: object) -> object:
    """Return a numpy scalar as a Python value, because numpy prints its type as well."""
    return value.item() if isinstance(value, np.generic) else value


def rehearsal_frame(ranges: Iterable[RehearsedRange]) -> Frame:
    """Return the frame of the restore rehearsal, with one row per subtask."""
    rows = [(r.subtask, r.key_groups, r.entries, r.problem or "none") for r in ranges]
    table = pd.DataFrame(rows, columns=["subtask", "key_groups", "entries", "problem"])
    check = Check(
        "every subtask restores its part, and reads what was recorded",
        AllowedValues("problem", ("none",)),
        lambda row: f"subtask {row['subtask']} (key groups {row['key_groups']}): {row['problem']}",
    )
    return Frame("rehearsal", ("subtask", "key_groups"), table, (check,))
