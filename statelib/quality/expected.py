"""The frames of the expectations in the pipeline file, one per state, and the frame of the restore rehearsal."""

import re
from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, date, datetime, tzinfo
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from statelib.model.sql import MAX_DIGITS
from statelib.quality.facts import RehearsedRange, StateSample, UserExpectation
from statelib.quality.rules import AllowedValues, Check, FoundRow, Frame, Library, Unanswerable
from statelib.serializers.columns.decimal_words import EXACT_DOUBLES, as_doubles

MAX_NAME = 60
"""The most characters of a state's name in the name of its page: file systems allow 255 bytes for the whole name."""
_COMPARES_VALUES = re.compile("Unique|PairValues(ToBeEqual|AToBeGreater)")
"""The part of an expectation's name that shows that it compares values with each other."""
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
        exact = [c for c, e in zip(checks, wanted, strict=True) if _needs_exact_decimals(e, sample.table)]
        if others := tuple(check for check in checks if check not in exact):
            frames.append(Frame(name, sample.keys, _to_pandas(sample.table), others, notes))
        if exact:
            table = _to_pandas(sample.table, exact=True)
            frames.append(Frame(f"exact_{number}_{safe[:MAX_NAME]}", sample.keys, table, tuple(exact), notes))
    return frames


def _needs_exact_decimals(expectation: UserExpectation, table: pa.Table) -> bool:
    """Return whether an expectation compares values with each other, and different decimals are equal as doubles."""
    if not _COMPARES_VALUES.search(expectation.library_name):
        return False
    named = [name for value in expectation.parameters.values() for name in _names(value) if name in table.column_names]
    decimals = [table[name].combine_chunks() for name in named if pa.types.is_decimal(table[name].type)]
    if not decimals:
        return False
    scale = max(column.type.scale for column in decimals)
    try:
        values = pa.concat_arrays([column.cast(pa.decimal128(MAX_DIGITS, scale)) for column in decimals])
    except pa.ArrowInvalid:
        return True
    return bool(pc.count_distinct(values) != pc.count_distinct(as_doubles(values)))


def _names(value: object) -> list[str]:
    """Return the texts of a parameter, which may be names of columns."""
    return [item for item in (value if isinstance(value, list | tuple) else [value]) if isinstance(item, str)]


def _to_pandas(table: pa.Table, *, exact: bool = False) -> pd.DataFrame:
    """Return the table with plain numpy types, because Great Expectations cannot write all other types. ``exact``:
    decimals stay decimals."""
    return pd.DataFrame({name: _series(table[name], exact=exact) for name in table.column_names})


def _series(column: pa.ChunkedArray, *, exact: bool) -> "pd.Series[Any]":
    """Return a column. Integers with nulls become doubles, or Python's integers if a double cannot hold them all.
    Decimals become doubles, because the numbers of the pipeline file are doubles: 0.10 would not be equal to 0.1.
    Dates become times."""
    if pa.types.is_decimal(column.type):
        return pd.Series(column.to_pylist(), dtype=object) if exact else as_doubles(column.combine_chunks()).to_pandas()
    if pa.types.is_date(column.type):
        return column.cast(pa.timestamp("ms")).to_pandas()
    if column.null_count and pa.types.is_integer(column.type):
        least, most = pc.min_max(column).as_py().values()
        if max(abs(least or 0), abs(most or 0)) >= EXACT_DOUBLES:
            return pd.Series(column.to_pylist(), dtype=object)
    return column.to_pandas()


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


def rehearsal_frame(ranges: Collection[RehearsedRange]) -> Frame:
    """Return the frame of the restore rehearsal, with one row per subtask."""
    rows = [(r.subtask, r.key_groups, r.entries, r.problem or "none") for r in ranges]
    table = pd.DataFrame(rows, columns=["subtask", "key_groups", "entries", "problem"])
    check = Check(
        "every subtask restores its part, and reads what was recorded",
        AllowedValues("problem", ("none",)),
        lambda row: f"subtask {row['subtask']} (key groups {row['key_groups']}): {row['problem']}",
    )
    by_job = any(r.by_job for r in ranges)
    notes = ("restored by tasks of the Spark job, before it published the checkpoint",) if by_job else ()
    return Frame("rehearsal", ("subtask", "key_groups"), table, (check,), notes)
