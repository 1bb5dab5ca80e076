"""The values that each column of the catalog may hold, and the error for a row that holds another value.

SQLite stores any value in any column, and people, tools and damage change rows without this code. Each row is checked
when it becomes a value, so that no decision uses a damaged row. The error names the row.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from sqlalchemy import Column, Row, Table, Text

from statelib.catalog.tables.schema import ATTEMPT, CHECKPOINT, FILE, GC_LOG, METADATA, QUALITY_RESULT
from statelib.errors import CorruptStateError
from statelib.model.checkpoint import SnapshotKind
from statelib.model.failure import CheckpointFailureReason
from statelib.model.ids import is_pipeline_name
from statelib.model.quality import Severity
from statelib.model.record import CheckpointState, Owner
from statelib.model.termination import StopMode

KIND = "catalog-row-damaged"
HINT = "statelib catalog check names every such row; restore a backup of the catalog, or statelib catalog rebuild"
_FIRST_MS, _LAST_MS = -62_135_596_800_000, 253_402_300_799_999
"""The years 1 to 9999 in epoch milliseconds: ``datetime`` has no dates outside them."""
_LARGEST = (1 << 63) - 1


@dataclass(frozen=True)
class _Rule:
    """The values that a column may hold: those of ``type`` for which ``holds`` returns True. ``words``: the column has
    a fixed set of words."""

    type: type
    expected: str
    holds: Callable[[Any], bool]
    nullable: bool
    words: bool = False

    def allows(self, value: object) -> bool:
        if value is None:
            return self.nullable
        return type(value) is self.type and self.holds(value)


_WORDS: Mapping[Column[Any], Iterable[str]] = {
    CHECKPOINT.c.kind: SnapshotKind,
    CHECKPOINT.c.state: CheckpointState,
    CHECKPOINT.c.owner: Owner,
    CHECKPOINT.c.failure: CheckpointFailureReason,
    CHECKPOINT.c.stop: StopMode,
    FILE.c.state: ("LIVE", "CONDEMNED", "DELETED"),
    FILE.c.owner: Owner,
    ATTEMPT.c.state: ("OPEN", "WON", "LOST", "ABORTED"),
    GC_LOG.c.phase: ("CONDEMNED", "DELETED"),
    QUALITY_RESULT.c.severity: Severity,
}
_POSITIVE = ("checkpoint_id", "base", "head", "next_id", "parallelism", "created_by", "failures_from")
_ATTEMPT = re.compile(r"[0-9A-Za-z-]{1,64}")


_TEXTS: Mapping[str, tuple[str, Callable[[str], bool]]] = {
    "pipeline": ("the name of a pipeline", is_pipeline_name),
    "attempt": ("letters and digits", lambda text: _ATTEMPT.fullmatch(text) is not None),
    "directory": ("a URI", bool),
    "file_id": ("a URI", bool),
}


def _rule(column: Column[Any]) -> _Rule:
    nullable = bool(column.nullable)
    if column in _WORDS:
        words = frozenset(str(word) for word in _WORDS[column])
        return _Rule(str, f"one of {', '.join(sorted(words))}", words.__contains__, nullable, words=True)
    if isinstance(column.type, Text):
        expected, holds = _TEXTS.get(column.name, ("text", lambda _: True))
        return _Rule(str, expected, holds, nullable)
    if column.name.endswith("_at_ms") or column.name in ("interval_start_ms", "interval_end_ms", "deadline_ms"):
        return _Rule(int, "a time of the years 1 to 9999", lambda ms: _FIRST_MS <= ms <= _LAST_MS, nullable)
    least = 1 if column.name in _POSITIVE else 0
    return _Rule(int, f"an integer from {least}", lambda number: least <= number <= _LARGEST, nullable)


_RULES: dict[str, tuple[tuple[str, _Rule], ...]] = {
    table.name: tuple((column.name, _rule(column)) for column in table.columns) for table in METADATA.sorted_tables
}


@dataclass(frozen=True)
class Fault:
    """One value of a row that its column may not hold."""

    column: str
    expected: str
    found: str

    def __str__(self) -> str:
        return f"{self.column}: expected {self.expected}, found {self.found}"


def faults(table: Table, values: Mapping[str, Any], *, any_word: bool = False) -> Iterator[Fault]:
    """Yield one fault per wrong value of a row, in the order of the columns. Columns that ``values`` lacks are not
    checked. ``any_word``: allow any text in columns of a fixed set of words, because a later version may have more."""
    for name, rule in _RULES[table.name]:
        if name in values and not rule.allows(values[name]):
            value = values[name]
            if any_word and rule.words and isinstance(value, str):
                continue
            yield Fault(name, rule.expected, _shown(value))
    if table is CHECKPOINT:
        yield from _between_columns(values)


def checked(table: Table, row: Row[*tuple[Any, ...]], *, any_word: bool = False) -> Mapping[str, Any]:
    """Return the values of a row by column. Raises CorruptStateError (``catalog-row-damaged``), which names the row."""
    values = row._asdict()
    fault = next(faults(table, values, any_word=any_word), None)
    if fault is not None:
        raise damaged(table, values, fault)
    return values


def damaged(table: Table, values: Mapping[str, Any], fault: Fault) -> CorruptStateError:
    """Return the error for a row that holds a wrong value."""
    return CorruptStateError(f"catalog: {row_name(table, values)}: {fault}", kind=KIND, hint=HINT)


def row_name(table: Table, values: Mapping[str, Any]) -> str:
    """Return the name of a row in messages. It contains the checkpoint's id if the row belongs to a checkpoint."""
    if "checkpoint_id" in values:
        name = f"{_plain(values.get('pipeline'))}/{_plain(values['checkpoint_id'])}"
        return f"checkpoint {name}" if table is CHECKPOINT else f"{table.name} of checkpoint {name}"
    if "file_id" in values:
        return f"file {_plain(values['file_id'])}"
    return f"{table.name} of pipeline {_plain(values.get('pipeline'))}"


def _between_columns(values: Mapping[str, Any]) -> Iterator[Fault]:
    base, number = values.get("base"), values.get("checkpoint_id")
    if isinstance(base, int) and isinstance(number, int) and base >= number:
        yield Fault("base", f"an older checkpoint than {number}", str(base))
    start, end = values.get("interval_start_ms"), values.get("interval_end_ms")
    if isinstance(start, int) and isinstance(end, int) and start > end:
        yield Fault("interval_end_ms", f"at least interval_start_ms, {start}", str(end))


def _plain(value: object) -> str:
    return value if isinstance(value, str) else repr(value)


def _shown(value: object) -> str:
    text = repr(value.value if isinstance(value, StrEnum) else value)
    return text if len(text) <= 80 else f"{text[:77]}..."
