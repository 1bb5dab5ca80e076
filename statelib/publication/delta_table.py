"""A published table in the format Delta, written with the package ``deltalake`` (extra ``delta``).

A commit of Delta has transactions: numbers by the id of an application. One of them is the number of the published
commit, one its checkpoint, one the hash of that, and one the version of the table that the commit made. A commit is
never repeated on top of another writer's: it fails, and the publisher looks again. So there is one commit of each
number.
"""

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from statelib.crash_points import crash_point
from statelib.errors import InvalidRequestError, RetryableError, UnsupportedError
from statelib.model.ids import CheckpointId
from statelib.model.sql import quoted_name
from statelib.publication.feed import FEED_COLUMNS
from statelib.publication.parquet.files import part_writer
from statelib.publication.parquet.manifest import mode_of
from statelib.publication.target import (
    DELETE,
    INSERT,
    Commit,
    FeedContent,
    PublishedTable,
    check_columns,
    foreign,
    taken,
)
from statelib.storage.local.scratch import scratch_directory
from statelib.storage.objects.clients import insecure_endpoint

if TYPE_CHECKING:
    from deltalake import CommitProperties, DeltaTable

MAINTENANCE = (
    "OPTIMIZE", "REORG", "CLUSTER BY", "COMPUTE STATS", "VACUUM START", "VACUUM END", "SET TBLPROPERTIES",
    "UNSET TBLPROPERTIES", "UPDATE TABLE METADATA", "UPDATE FIELD METADATA", "CHANGE COLUMN", "ADD CONSTRAINT",
    "DROP CONSTRAINT", "ADD FEATURE", "DROP FEATURE", "UPGRADE PROTOCOL",
)  # fmt: skip
"""The operations of other writers that do not change the rows, as Delta's Spark connector and ``deltalake`` call them.
What they do to the columns is noticed by comparing the columns."""
SOURCES = "statelib.sources"
"""The property of a commit with the sources of the columns."""

_INSECURE = "URL scheme is not allowed"
"""The text of the client's error for an endpoint that is not ``https:``."""
_URL = re.compile(r"https?://\S+")
_UNMET = "failed validation check"
"""The text of Delta's error for rows that do not meet a constraint of the table, or that are null where it wants a
value."""
_APPEND_ONLY = "Delta table is append-only"
"""The text of Delta's error for a change of a row in a table with the property ``delta.appendOnly``."""


class DeltaDirectory:
    """A :class:`~statelib.publication.target.TableTarget` in the format Delta. ``directory``: a path, or the URI of an
    object storage. ``options``: the options of the storage. ``scratch``: the directory for the rows of a commit, before
    they are written to the table."""

    def __init__(
        self, table: PublishedTable, directory: str, options: dict[str, str] | None, scratch: str | None
    ) -> None:
        self._table = table
        self._directory = directory
        self._options = options
        self._scratch = scratch
        self._applications = {f"statelib/{name}/{table.name}/{mode_of(table)}": name for name in table.pipelines}

    def newest(self) -> Commit | None:
        delta = self._opened()
        return None if delta is None else self._newest_of(delta)

    def commit(self, commit: Commit, content: FeedContent) -> Commit:
        delta = self._opened()
        if (self._newest_of(delta).number if delta else 0) >= commit.number:
            raise taken(self._table, commit.number)
        columns = [field.with_type(_in_microseconds(field.type)) for field in content.schema]
        changes = pa.schema([*FEED_COLUMNS, *columns])
        schema = changes if self._table.changes else pa.schema(columns)
        expected = self._columns(schema)
        if delta is not None:
            check_columns(self._table, expected, self._columns(delta.schema()), self._recorded_sources(delta))
        with scratch_directory(self._scratch, "delta") as directory:
            with part_writer(directory, "", changes) as writer, self._lossless():
                content.write_changes(commit, writer.write)
                parts = writer.finish()
            done = replace(commit, rows=sum(part.rows for part in parts))
            rows = _reader([f"{directory}/{part.name}" for part in parts], schema if delta is None else changes)
            crash_point("publication: before delta commit")
            with self._delta_errors(commit.number, delta):
                self._write(delta, done, rows, content)
            crash_point("publication: delta committed")
        return done

    def identities(self) -> Iterator[pa.Table]:
        delta = self._opened()
        assert delta is not None, "a table without a commit has no rows"
        for batch in delta.to_pyarrow_dataset().to_batches():
            rows = pa.Table.from_batches([batch])
            if not self._table.changes:
                rows = rows.append_column("commit", pa.repeat(pa.scalar(0, pa.int64()), len(rows)))
                rows = rows.append_column("change", pa.repeat(pa.scalar(INSERT), len(rows)))
            yield rows

    def feed_rows(self, columns: Sequence[str]) -> Iterator[pa.Table]:
        delta = self._opened()
        assert delta is not None, "a feed without a commit has no rows"
        for batch in delta.to_pyarrow_dataset().to_batches(columns=list(columns)):
            yield pa.Table.from_batches([batch])

    def tidy(self) -> None:
        """Do nothing: files that no version needs are removed by Delta's VACUUM, which the table's owner runs."""

    def _write(
        self, delta: "DeltaTable | None", commit: Commit, rows: pa.RecordBatchReader, content: FeedContent
    ) -> None:
        from deltalake import write_deltalake

        properties = self._properties(commit, 0 if delta is None else delta.version() + 1)
        if delta is None:
            write_deltalake(
                self._directory, rows, mode="error", storage_options=self._options, commit_properties=properties
            )
        elif self._table.changes or not self._merge(delta, rows, content, properties):
            # Delta makes no version for a merge without a change, and the commit would have no number.
            rows = rows if self._table.changes else rows.schema.empty_table().select(content.schema.names)
            write_deltalake(delta, rows, mode="append", commit_properties=properties)

    def _merge(
        self, delta: "DeltaTable", rows: pa.RecordBatchReader, content: FeedContent, properties: "CommitProperties"
    ) -> bool:
        """Merge the rows of a feed into the table. Return whether it changed."""
        same = " AND ".join(_same(content.schema.field(name)) for name in content.identity)
        values = {quoted_name(name): f"source.{quoted_name(name)}" for name in content.schema.names}
        gone = f"source.\"change\" = '{DELETE}'"
        merge = delta.merge(
            rows, predicate=same, source_alias="source", target_alias="target", commit_properties=properties
        )
        merge = merge.when_matched_delete(gone).when_matched_update(values)
        counts = merge.when_not_matched_insert(values, predicate=f"NOT {gone}").execute()
        return any(counts[f"num_target_rows_{change}"] for change in ("inserted", "updated", "deleted"))

    def _properties(self, commit: Commit, version: int) -> "CommitProperties":
        from deltalake import CommitProperties, Transaction

        own, snapshot = next(iter(self._applications)), int(commit.snapshot or "0", 16)
        numbers = {
            "": commit.number, "/checkpoint": commit.checkpoint_id, "/snapshot": snapshot, "/version": version,
        }  # fmt: skip
        return CommitProperties(
            custom_metadata={
                "statelib.checkpoint": f"{self._table.pipeline}/{commit.checkpoint_id}",
                SOURCES: json.dumps(self._table.recorded_sources()),
            },
            max_commit_retries=0,
            app_transactions=[Transaction(f"{own}{what}", number) for what, number in numbers.items()],
        )

    def _opened(self) -> "DeltaTable | None":
        from deltalake import DeltaTable
        from deltalake.exceptions import TableNotFoundError

        try:
            with self._delta_errors():
                return DeltaTable(self._directory, storage_options=self._options)
        except TableNotFoundError:
            return None

    def _newest_of(self, delta: "DeltaTable") -> Commit:
        """Return the newest commit. Raises InvalidRequestError (``foreign-target``)."""
        newest = self._newest_application(delta)
        number, checkpoint_id, version = (
            delta.transaction_version(f"{newest}{what}") for what in ("", "/checkpoint", "/version")
        )
        if number is None or checkpoint_id is None or version is None:
            raise foreign(
                self._table, f"a Delta table that is not table {self._table.name!r} in mode {mode_of(self._table)}"
            )
        for entry in delta.history(max(delta.version() - version, 0)) if delta.version() > version else ():
            if entry["version"] > version and entry["operation"] not in MAINTENANCE:
                raise foreign(
                    self._table, f"version {entry['version']} was written by something else: {entry['operation']}"
                )
        snapshot, pipeline = delta.transaction_version(f"{newest}/snapshot"), self._applications[newest]
        text = f"{snapshot:015x}" if snapshot else ""
        return Commit(number, CheckpointId(checkpoint_id), None, snapshot=text, pipeline=pipeline)

    def _newest_application(self, delta: "DeltaTable") -> str:
        """Return the application, which is the name of the table under one of the pipeline's names, that published
        last."""
        versions = {name: delta.transaction_version(f"{name}/version") for name in self._applications}
        return max(versions, key=lambda name: -1 if versions[name] is None else versions[name])

    def _recorded_sources(self, delta: "DeltaTable") -> dict[str, str]:
        """Return the sources of the columns in the newest commit. None are known if it is of an earlier version of
        statelib, or if Delta has removed its entry of the log."""
        version = delta.transaction_version(f"{self._newest_application(delta)}/version")
        assert version is not None, "the table has a commit"
        entries = delta.history(delta.version() - version + 1)
        texts = (entry.get(SOURCES, "{}") for entry in entries if entry["version"] == version)
        return dict(json.loads(next(texts, "{}")))

    def _columns(self, schema: Any) -> list[str]:
        """Return the columns of an Arrow or Delta schema as text. Raises UnsupportedError (``delta-type``)."""
        from deltalake import Schema

        try:
            converted = Schema.from_arrow(schema) if isinstance(schema, pa.Schema) else schema
        except Exception as error:  # deltalake raises a bare one for a type that Delta does not have
            raise self._unsupported(error) from error
        return [f"{field.name}: {_text_of(field.type)}" for field in converted.fields]

    @contextmanager
    def _lossless(self) -> Iterator[None]:
        """Raise UnsupportedError (``delta-type``) for values that Delta cannot hold, such as nanoseconds."""
        try:
            yield
        except pa.ArrowInvalid as error:
            raise self._unsupported(error) from error

    def _unsupported(self, error: Exception) -> UnsupportedError:
        return UnsupportedError(
            f"{self._table.target}: {str(error).splitlines()[0]}",
            kind="delta-type",
            hint=f"publish other columns with publish.{self._table.name}.columns, or in format parquet",
        )

    def _refused(self, reason: str) -> InvalidRequestError:
        return InvalidRequestError(
            f"{self._table.target}: the table refuses the rows of the commit: {reason}",
            kind="delta-refused",
            hint="remove from the table what somebody has demanded of it, or move the table away, and publish again",
        )

    @contextmanager
    def _delta_errors(self, number: int = 0, delta: "DeltaTable | None" = None) -> Iterator[None]:
        """Convert errors of Delta. ``number``: of the commit that is added to ``delta``."""
        from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError

        try:
            yield
        except TableNotFoundError:
            raise
        except CommitFailedError as error:
            if _APPEND_ONLY in str(error):
                raise self._refused("it has the property delta.appendOnly") from error
            raise taken(self._table, number) from error
        except (DeltaError, OSError) as error:
            if number == 1 and delta is None and self._opened() is not None:
                raise taken(self._table, number) from error
            if _INSECURE in str(error):
                raise insecure_endpoint(self._table.target) from None
            if delta is not None and _UNMET in str(error):
                # Delta's own error shows rows.
                raise self._refused(f"some do not meet a condition of the table ({_demands(delta)})") from None
            raise RetryableError(
                f"{self._table.target}: {_URL.sub('the endpoint', str(error).splitlines()[0])}",
                kind="storage-io",
                hint="publish again; if it stays, the storage or the table itself is in trouble",
            ) from (None if self._options else error)  # the error of a client names the endpoint


def _same(column: pa.Field) -> str:
    """Return the condition that a column has the same value in source and target. In SQL 0.0 equals -0.0, but as keys
    of a state they differ: their quotients are two infinities."""
    target, source = (f"{side}.{quoted_name(column.name)}" for side in ("target", "source"))
    same = f"({target} IS NOT DISTINCT FROM {source})"
    if not pa.types.is_floating(column.type):
        return same
    return f"({same} AND CASE WHEN {target} = 0 THEN 1.0 / {target} = 1.0 / {source} ELSE true END)"


def _demands(delta: "DeltaTable") -> str:
    """Return what a table demands of its rows: its constraints, and the columns that must not be null."""
    prefix = "delta.constraints."
    texts = {name: text for name, text in delta.metadata().configuration.items() if name.startswith(prefix)}
    demands = [f"{name.removeprefix(prefix)}: {text}" for name, text in texts.items()]
    demands += [f"{field.name} is not null" for field in delta.schema().fields if not field.nullable]
    return ", ".join(demands)


def _text_of(type_: Any) -> str:
    """Return a type of Delta as text."""
    return str(type_.type) if type(type_).__name__ == "PrimitiveType" else str(type_)


def _in_microseconds(type_: pa.DataType) -> pa.DataType:
    """Return the type with microseconds in place of nanoseconds, which Delta does not have."""
    if pa.types.is_timestamp(type_):
        return pa.timestamp("us", type_.tz)
    if pa.types.is_map(type_):
        return pa.map_(_in_microseconds(type_.key_type), _in_microseconds(type_.item_type))
    if pa.types.is_list(type_):
        return pa.list_(_in_microseconds(type_.value_type))
    if pa.types.is_struct(type_):
        return pa.struct([field.with_type(_in_microseconds(field.type)) for field in type_])
    return type_


def _reader(paths: list[str], schema: pa.Schema) -> pa.RecordBatchReader:
    """Return a reader of the rows of Parquet files, with the columns of ``schema``."""
    files = [pq.ParquetFile(path) for path in paths]
    batches = (batch for file in files for batch in file.iter_batches(columns=schema.names))
    return pa.RecordBatchReader.from_batches(schema, batches)
