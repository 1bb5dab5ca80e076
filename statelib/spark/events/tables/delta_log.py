"""The commits of a table in the format Delta, read with the package ``deltalake`` (extra ``delta``).

Of a commit, the rows that it inserted, updated and deleted are read: from the change data feed if the table has one,
else from the files that the commit added and removed.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from statelib.errors import ConflictError, NotFoundError, RetryableError, UnsupportedError
from statelib.extras import require
from statelib.spark.events.source_paths import in_bucket
from statelib.storage.objects.clients import text_options
from statelib.storage.registry import patience

CHANGE_COLUMNS = (
    pa.field("_change_type", pa.string()),
    pa.field("_commit_version", pa.int64()),
    pa.field("_commit_timestamp", pa.timestamp("us", "UTC")),
)
"""The columns that each row has beside those of the table: ``insert``, ``update_preimage``, ``update_postimage`` or
``delete``; the version and the time of its commit."""
_UNREADABLE = {"columnMapping", "deletionVectors"}
"""The features of tables that the package does not read in all places."""
_NO_FEED = "does not have change data enabled"
"""The package's message about a commit with new metadata in a table without a change data feed."""


class DeltaLog:
    """The log of one table. ``path``: its directory or URI. ``options``: how its storage is reached, as the package
    names it. Raises NotFoundError (``no-source``) if there is no table."""

    def __init__(self, path: str, options: Mapping[str, str], version: int | None = None) -> None:
        require("delta")
        from deltalake import DeltaTable

        self.path = path
        place = in_bucket(path)
        storage = {**(text_options(patience().request_timeout_s) if place else {}), **options}
        with self._naming_errors():
            self._table = DeltaTable(place or path, version=version, storage_options=storage or None)
        self._check_features()

    @property
    def table(self) -> str:
        """The id of the table."""
        return str(self._table.metadata().id)

    @property
    def newest(self) -> int:
        """The newest version."""
        return int(self._table.version())

    def newest_before(self, moment_ms: int, after: int | None) -> int | None:
        """Return the newest version before the first commit at or after a moment, in epoch milliseconds; ``after`` if
        there is none after it. ``after``: the version to begin at; None: the first one.

        Raises ConflictError (``source-history-gone``) if commits in between are no longer in the log."""
        expected = 0 if after is None else after + 1
        if self.newest < expected:
            return after
        with self._naming_errors():
            history = sorted(self._table.history(self.newest - expected + 1), key=lambda commit: int(commit["version"]))
        before = self._before(history, moment_ms)
        oldest = int(history[0]["version"]) if history else self.newest + 1
        if oldest > expected and (after is not None or before is None):
            raise history_gone(self.path, f"the oldest version in its log is {oldest}, expected {expected}")
        return after if before is None else before

    def _before(self, history: list[dict[str, Any]], moment_ms: int) -> int | None:
        before = None
        for commit in history:
            timestamp = commit.get("inCommitTimestamp", commit.get("timestamp"))
            if timestamp is None:
                raise UnsupportedError(
                    f"table {self.path}: the commit of version {commit['version']} has no time",
                    kind="source-features",
                    hint="a writer of this table leaves commitInfo out; read the table by a condition on its rows",
                )
            if int(timestamp) >= moment_ms:
                return before
            before = int(commit["version"])
        return before

    def columns(self) -> pa.Schema:
        """Return the columns of the rows: those of the table in this version, then :data:`CHANGE_COLUMNS`."""
        own = pa.schema(self._table.schema().to_arrow())
        return pa.schema([*own, *CHANGE_COLUMNS])

    def changes(self, first: int, last: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the commits ``first`` to ``last``, in :meth:`columns`. Their order is not defined."""
        with self._naming_errors():
            columns = self.columns()
            for batch in pa.RecordBatchReader.from_stream(self._table.load_cdf(first, last)):
                yield batch.select(columns.names).cast(columns)

    def rows(self, piece: int, pieces: int) -> Iterator[pa.RecordBatch]:
        """Yield one of several pieces of the rows that the table has in this version, as if its commit had inserted
        them all."""
        with self._naming_errors():
            columns, dataset = self.columns(), self._table.to_pyarrow_dataset()
            time_ms = int(self._table.history(1)[0].get("timestamp", 0))
            for fragment in list(dataset.get_fragments())[piece::pieces]:
                for batch in fragment.to_batches(schema=dataset.schema):
                    yield _as_inserted(batch, self._table.version(), time_ms).cast(columns)

    def _check_features(self) -> None:
        """Raise UnsupportedError (``source-features``) if the table has features that would be read wrongly."""
        unreadable = _UNREADABLE & set(self._table.protocol().reader_features or ())
        if self._table.metadata().configuration.get("delta.columnMapping.mode", "none") != "none":
            unreadable.add("columnMapping")
        if unreadable:
            raise UnsupportedError(
                f"table {self.path}: an incremental read is not possible with the features {', '.join(unreadable)}",
                kind="source-features",
                hint="read it with Spark's connector and a condition: source.table with source.where",
            )

    @contextmanager
    def _naming_errors(self) -> Iterator[None]:
        """Raise the package's errors as errors that name the table."""
        from deltalake.exceptions import DeltaError, TableNotFoundError

        try:
            yield
        except TableNotFoundError as error:
            raise NotFoundError(
                f"source {self.path} cannot be read: there is no Delta table",
                kind="no-source",
                hint="correct source.path, or write 'on_missing: empty' if the table may come later",
            ) from error
        except (DeltaError, OSError, pa.ArrowException) as error:
            if _NO_FEED in str(error):
                raise UnsupportedError(
                    f"table {self.path}: a commit changed columns or properties of the table while it had no change "
                    f"data feed, so its rows cannot be read: {_first_line(error)}",
                    kind="source-features",
                    hint="set delta.enableChangeDataFeed = true on the table before such changes; read this interval "
                    "by a condition (source.where without source.incremental), then go on as before",
                ) from error
            raise RetryableError(
                f"source table {self.path} cannot be read: {_first_line(error)}",
                kind="source-unreadable",
                hint="files of its commits may have been removed by VACUUM; if not, run again",
            ) from error


def history_gone(path: str, reason: str) -> ConflictError:
    """Return the error for commits that are needed and can no longer be read."""
    return ConflictError(
        f"table {path}: commits since the last applied one cannot be read: {reason}",
        kind="source-history-gone",
        hint="keep the table's log longer than the time between two runs (delta.logRetentionDuration); to begin again "
        "from the whole table, give the pipeline a new name",
    )


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:500]


def _as_inserted(batch: pa.RecordBatch, version: int, time_ms: int) -> pa.RecordBatch:
    """Return rows with the :data:`CHANGE_COLUMNS` of an insertion by one commit."""
    values = (pa.scalar("insert"), pa.scalar(version, pa.int64()), pa.scalar(time_ms * 1000, CHANGE_COLUMNS[2].type))
    for field, value in zip(CHANGE_COLUMNS, values, strict=True):
        batch = batch.append_column(field, pa.repeat(value, len(batch)))
    return batch
