"""The user's expectations, a frame a state; and the restore rehearsal."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from statelib.quality.facts import RehearsedRange, StateSample, UserExpectation
from statelib.quality.rules import Check, FoundRow, Frame, Library, OneOf, Unanswerable

EXACT_DOUBLES = 1 << 53
MAX_NAME = 60
"""Characters of a state's name in that of its page: file systems allow 255 bytes for all of it."""
NOT_THERE = "the checkpoint has no such state; the pipeline file has changed since it was taken"
NEEDS_ALL = "needs all entries of the state, which has more than checks.sample_rows allows to read"


def expectation_frames(expectations: Iterable[UserExpectation], samples: Mapping[str, StateSample]) -> list[Frame]:
    """One frame a state, in the order in which the pipeline file first names them."""
    by_state: dict[str, list[UserExpectation]] = {}
    for expectation in expectations:
        by_state.setdefault(expectation.state, []).append(expectation)
    found = []
    for number, (state, wanted) in enumerate(by_state.items()):
        sample = samples.get(state) or StateSample(state, pa.table({}), (), 0)
        checks = tuple(_check(expectation, sample, there=state in samples) for expectation in wanted)
        safe = re.sub(r"[^A-Za-z0-9_-]", "_", state)
        named = safe == state and len(safe) <= MAX_NAME
        name = f"state_{safe}" if named else f"state_{number}_{safe[:MAX_NAME]}"
        notes = () if sample.complete else (f"state {state}: {sample.note}",)
        found.append(Frame(name, sample.keys, _to_pandas(sample.table), checks, notes))
    return found


def _to_pandas(table: pa.Table) -> pd.DataFrame:
    """With plain numpy types, which alone the library writes down without fail."""
    return pd.DataFrame({name: _series(table[name]) for name in table.column_names})


def _series(column: pa.ChunkedArray) -> "pd.Series[Any]":
    """Whole numbers of which some are missing are doubles, or where a double cannot hold them, Python's own."""
    if column.null_count and pa.types.is_integer(column.type):
        least, most = pc.min_max(column).as_py().values()
        if max(abs(least or 0), abs(most or 0)) >= EXACT_DOUBLES:
            return pd.Series(column.to_pylist(), dtype=object)
    return column.to_pandas()


def _check(expectation: UserExpectation, sample: StateSample, *, there: bool) -> Check:
    state, said = expectation.state, expectation.said
    if not there:
        return Check(said, Unanswerable(f"state {state}: {said}: {NOT_THERE}"), _shown, expectation.severity)
    if expectation.needs_all_rows and not sample.complete:
        # Of a sample the answer would be wrong. What cannot be judged has not passed.
        return Check(said, Unanswerable(f"state {state}: {said} {NEEDS_ALL}"), _shown, expectation.severity)
    rule = Library(expectation.library_name, expectation.parameters)
    return Check(said, rule, lambda row: f"state {state}: {said}: {_shown(row)}", expectation.severity)


def _shown(row: FoundRow) -> str:
    return ", ".join(f"{name} {_plain(value)!r}" for name, value in row.items())


def _plain(value: object) -> object:
    """As Python writes it, not numpy."""
    return value.item() if isinstance(value, np.generic) else value


def rehearsal_frame(ranges: Iterable[RehearsedRange]) -> Frame:
    """A row a subtask."""
    rows = [(r.subtask, r.key_groups, r.entries, r.problem or "none") for r in ranges]
    table = pd.DataFrame(rows, columns=["subtask", "key_groups", "entries", "problem"])
    check = Check(
        "every subtask restores its part, and reads what was recorded",
        OneOf("problem", ("none",)),
        lambda row: f"subtask {row['subtask']} (key groups {row['key_groups']}): {row['problem']}",
    )
    return Frame("rehearsal", ("subtask", "key_groups"), table, (check,))
