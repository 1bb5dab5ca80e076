"""The commits of a table in the format Delta, read with the package ``deltalake`` (extra ``delta``).

The rows that a commit inserted, updated and deleted are read: from the change data feed if the table has one,
else from the files that the commit added and removed.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from statelib.errors import NotFoundError, RetryableError, StatelibError, UnsupportedError
from statelib.extras import require
from statelib.spark.events.source_paths import in_bucket
from statelib.spark.events.tables.table_log import CHANGE_COLUMNS, as_changed, before_moment, first_line, history_gone
from statelib.storage.objects.clients import text_options
from statelib.storage.registry import patience

_UNREADABLE = {"columnMapping", "deletionVectors"}
"""The features of tables that the package does not read in all places."""
_NO_FEED = ("does not have change data enabled", "Change Data not enabled")
"""The package's messages about a commit with new metadata in a table without a change data feed, or with it set to
false."""

_ENCODED = re.compile(r"=[^/\s]*%[0-9A-F]{2}[^/\s]*/\S+ not found")
"""The package's message about a file of a commit whose path has escapes: it looks for the path as the log has it."""


class DeltaLog:
    """A :class:`~statelib.spark.events.tables.table_log.TableLog`. ``path``: the table's directory or URI. ``options``:
    how its storage is reached, as the package names it. Raises NotFoundError (``no-source``) if there is no table."""

    def __init__(self, path: str, options: Mapping[str, str], version: int | None = None) -> None:
        require("delta")
        from deltalake import DeltaTable

        self.path = path
        place = in_bucket(path)
        storage = {**(text_options(patience()) if place else {}), **options}
        with self._naming_errors():
            self._table = DeltaTable(place or path, version=version, storage_options=storage or None)
        self._check_features()

    @property
    def table(self) -> str:
        """The id of the table."""
        return str(self._table.metadata().id)

    @property
    def version(self) -> int:
        return int(self._table.version())

    def commits(self, after: int | None, until_ms: int) -> Sequence[int]:
        """See :meth:`TableLog.commits`."""
        newest, expected = self.version, 0 if after is None else after + 1
        if newest < expected - 1:
            raise history_gone(self.path, f"version {after} is applied, its newest is {newest}")
        if newest < expected:
            return ()
        with self._naming_errors():
            history = sorted((int(commit["version"]), commit) for commit in self._table.history(newest - expected + 1))
        before = before_moment(((version, self._time_of(commit)) for version, commit in history), until_ms)
        oldest = history[0][0] if history else newest + 1
        if oldest > expected and (after is not None or not before):
            raise history_gone(self.path, f"the oldest version in its log is {oldest}, expected {expected}")
        return before

    def _time_of(self, commit: Mapping[str, Any]) -> int:
        time_ms = commit.get("inCommitTimestamp", commit.get("timestamp"))
        if time_ms is None:
            raise UnsupportedError(
                f"table {self.path}: the commit of version {commit['version']} has no time",
                kind="source-features",
                hint="a writer of this table leaves commitInfo out; read the table by a condition on its rows",
            )
        return int(time_ms)

    def columns(self) -> pa.Schema:
        """See :meth:`TableLog.columns`."""
        own = pa.schema(self._table.schema().to_arrow())
        return pa.schema([*own, *CHANGE_COLUMNS])

    def changes(self, commits: Sequence[int]) -> Iterator[pa.RecordBatch]:
        """See :meth:`TableLog.changes`."""
        with self._naming_errors():
            columns = self.columns()
            for batch in pa.RecordBatchReader.from_stream(self._table.load_cdf(commits[0], commits[-1])):
                yield self._with_null_partitions(batch.select(columns.names).cast(columns))

    def rows(self, piece: int, pieces: int) -> Iterator[pa.RecordBatch]:
        """See :meth:`TableLog.rows`."""
        with self._naming_errors():
            columns, dataset = self.columns(), self._table.to_pyarrow_dataset()
            version, time_ms = self.version, self._time_of(self._table.history(1)[0])
            # Their own order is that of the log, which is another one as soon as a writer has made a checkpoint of it.
            for fragment in sorted(dataset.get_fragments(), key=lambda each: each.path)[piece::pieces]:
                for batch in fragment.to_batches(schema=dataset.schema):
                    yield as_changed(batch, "insert", version, time_ms).cast(columns)

    def _with_null_partitions(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return rows of commits with null for the empty text in a column of partitions. In Delta, such a partition is
        that of null, and the rows of the whole table have null in it."""
        for name in self._table.metadata().partition_columns:
            values = batch[name]
            if pa.types.is_string(values.type) or pa.types.is_large_string(values.type):
                nulls = pc.if_else(pc.equal(values, ""), pa.scalar(None, values.type), values)
                batch = batch.set_column(batch.schema.get_field_index(name), batch.schema.field(name), nulls)
        return batch

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
            raise self._unreadable(error) from error

    def _unreadable(self, error: Exception) -> StatelibError:
        """Return the error for rows that the package cannot read."""
        if any(message in str(error) for message in _NO_FEED):
            return UnsupportedError(
                f"table {self.path}: a commit changed columns or properties of the table while it had no change "
                f"data feed, so its rows cannot be read: {first_line(error)}",
                kind="source-features",
                hint="set delta.enableChangeDataFeed = true on the table before such changes; read this interval "
                "by a condition (source.where without source.incremental), then go on as before",
            )
        if _ENCODED.search(str(error)):
            return UnsupportedError(
                f"table {self.path}: deltalake does not find files of commits to partitions whose values have other "
                f"characters than letters and digits of ASCII: {first_line(error)}",
                kind="source-features",
                hint="read it with Spark's connector and a condition: source.table with source.where",
            )
        return RetryableError(
            f"source table {self.path} cannot be read: {first_line(error)}",
            kind="source-unreadable",
            hint="files of its commits may have been removed by VACUUM; if not, run again",
        )
