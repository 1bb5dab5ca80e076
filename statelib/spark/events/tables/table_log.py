"""The port of a table whose commits are read, and what its implementations share."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

import pyarrow as pa

from statelib.errors import ConflictError

CHANGE_COLUMNS = (
    pa.field("_change_type", pa.string()),
    pa.field("_commit_version", pa.int64()),
    pa.field("_commit_timestamp", pa.timestamp("us", "UTC")),
)
"""The columns that each row has beside those of the table: ``insert``, ``update_preimage``, ``update_postimage`` or
``delete``; a number that grows with each commit, in Delta its version; the time of its commit."""
Commits = Iterable[tuple[int, int]]
"""(version, time in epoch milliseconds) per commit, oldest first."""


class TableLog(Protocol):
    """The log of one table, as of one version: that given when it was opened, or the newest. Methods raise
    RetryableError (``source-unreadable``) and UnsupportedError (``source-features``)."""

    @property
    def table(self) -> str:
        """The id of the table, which another table of the same name does not have."""
        ...

    @property
    def version(self) -> int | None:
        """The version that the log is of; None if the table has none."""
        ...

    def commits(self, after: int | None, until_ms: int) -> Sequence[int]:
        """Return the versions after ``after``, oldest first, up to the first commit at or after a moment in epoch
        milliseconds. If ``after`` is None, only the last of them need be right.

        Raises ConflictError (``source-history-gone``) if the log does not have all of them."""
        ...

    def columns(self) -> pa.Schema:
        """Return the columns of the rows: those of the table in this version, then :data:`CHANGE_COLUMNS`."""
        ...

    def changes(self, commits: Sequence[int]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of consecutive commits, in :meth:`columns`. Their order is not defined."""
        ...

    def rows(self, piece: int, pieces: int) -> Iterator[pa.RecordBatch]:
        """Yield one of several pieces of the rows that the table has in this version, as if its commit had inserted
        them all. Each row is in one piece, also if the pieces are read at different times."""
        ...


def before_moment(commits: Commits, moment_ms: int) -> list[int]:
    """Return the versions of the commits before the first one at or after a moment."""
    versions = []
    for version, time_ms in commits:
        if time_ms >= moment_ms:
            break
        versions.append(version)
    return versions


def as_changed(batch: pa.RecordBatch, change: str, version: int, time_ms: int) -> pa.RecordBatch:
    """Return rows with the :data:`CHANGE_COLUMNS` of one commit."""
    values = (pa.scalar(change), pa.scalar(version, pa.int64()), pa.scalar(time_ms * 1000, CHANGE_COLUMNS[2].type))
    for field, value in zip(CHANGE_COLUMNS, values, strict=True):
        batch = batch.append_column(field, pa.repeat(value, len(batch)))
    return batch


def history_gone(table: str, reason: str) -> ConflictError:
    """Return the error for commits that are needed and can no longer be read."""
    return ConflictError(
        f"table {table}: commits since the last applied one cannot be read: {reason}",
        kind="source-history-gone",
        hint="keep the log of the table (Delta) or its snapshots (Iceberg) longer than the time between two runs; to "
        "begin again from the whole table, give the pipeline a new name",
    )


def first_line(error: Exception) -> str:
    """Return the first line of an error's text."""
    return (str(error).splitlines() or [type(error).__name__])[0][:500]
