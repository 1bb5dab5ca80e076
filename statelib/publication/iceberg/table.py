"""A published table in the format Iceberg, written with the package ``pyiceberg`` (extra ``iceberg``).

A commit is one snapshot of the table, and the properties of the table that name its number and its checkpoint. The
catalog accepts both at once, and only if the current snapshot is still the one that the publisher has read. So there is
one commit of each number.

pyiceberg writes no files of deletions. Therefore a table in mode ``table`` has files per range of key groups, as in
Parquet, and a commit replaces those that have changed.
"""

import json
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from statelib.crash_points import crash_point
from statelib.errors import RetryableError, StatelibError, UnsupportedError
from statelib.model.ids import CheckpointId
from statelib.model.key_groups import KeyGroupRange
from statelib.publication.feed import FEED_COLUMNS
from statelib.publication.iceberg.catalog import open_catalog
from statelib.publication.iceberg.types import described, stored_schema
from statelib.publication.parquet.files import part_writer
from statelib.publication.parquet.manifest import TableFile, mode_of
from statelib.publication.parquet.range_files import files_of, write_changed_files
from statelib.publication.target import INSERT, Commit, FeedContent, PublishedTable, check_columns, foreign, taken
from statelib.storage.local.scratch import scratch_directory

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.io import FileIO
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table, Transaction
    from pyiceberg.table.locations import LocationProvider

OWNER, NUMBER, CHECKPOINT, SNAPSHOT, SEQUENCE, SOURCES = (
    f"statelib.{name}" for name in ("table", "commit", "checkpoint", "snapshot", "sequence", "sources")
)
"""The properties of a published table: whose it is, the newest commit, the id and the hash of its checkpoint, the
sequence number of its snapshot of Iceberg, and the sources of the columns."""
_RANGE = re.compile(r"statelib-\d+-[0-9a-f]{32}-(\d+)-(\d+)-([0-9a-f]{32})-\d+\.parquet")


class IcebergTable:
    """A :class:`~statelib.publication.target.TableTarget` in the format Iceberg. The target of ``table`` is
    ``<catalog>.<namespace>.<table>``. ``attempt``: a text that no other publisher has, 32 hexadecimal digits.
    ``scratch``: the directory of files until they are stored."""

    def __init__(self, table: PublishedTable, attempt: str, scratch: str | None) -> None:
        self._table = table
        self._attempt = attempt
        self._scratch = scratch
        self._catalog_name, _, self._identifier = table.target.partition(".")
        self._owners = {f"{name}/{table.name}/{mode_of(table)}": name for name in table.pipelines}

    def newest(self) -> Commit | None:
        with self._iceberg_errors(), self._catalog() as catalog:
            opened = self._opened(catalog)
            return None if opened is None else self._newest_of(opened)

    def commit(self, commit: Commit, content: FeedContent) -> Commit:
        from pyiceberg.exceptions import CommitFailedException, TableAlreadyExistsError

        with self._iceberg_errors(commit.number), self._catalog() as catalog:
            opened = self._opened(catalog)
            if (self._newest_of(opened).number if opened else 0) >= commit.number:
                raise taken(self._table, commit.number)
            columns = [*FEED_COLUMNS, *content.schema] if self._table.changes else content.schema
            with self._lossless():
                schema = stored_schema(pa.schema(columns))
            if opened is not None:
                recorded = json.loads(opened.metadata.properties.get(SOURCES, "{}"))
                check_columns(self._table, described(schema), described(_arrow_schema(opened.schema())), recorded)
            transaction = self._begun(catalog, opened, schema)
            with scratch_directory(self._scratch, "iceberg") as directory:
                prepared = _PreparedFiles(directory, commit.number, self._attempt, catalog, transaction)
                with prepared.dropped_after(Exception):
                    done = self._prepare(commit, content, transaction, prepared, opened)
                crash_point("publication: before iceberg commit")
                with prepared.dropped_after(CommitFailedException, TableAlreadyExistsError):
                    transaction.commit_transaction()
                crash_point("publication: iceberg committed")
        return done

    def identities(self) -> Iterator[pa.Table]:
        with self._iceberg_errors(), self._catalog() as catalog:
            opened = self._opened(catalog)
            assert opened is not None, "a table without a commit has no rows"
            for batch in opened.scan().to_arrow_batch_reader():
                rows = pa.Table.from_batches([batch])
                if not self._table.changes:
                    rows = rows.append_column("commit", pa.repeat(pa.scalar(0, pa.int64()), len(rows)))
                    rows = rows.append_column("change", pa.repeat(pa.scalar(INSERT), len(rows)))
                yield rows

    def feed_rows(self, columns: Sequence[str]) -> Iterator[pa.Table]:
        with self._iceberg_errors(), self._catalog() as catalog:
            opened = self._opened(catalog)
            assert opened is not None, "a feed without a commit has no rows"
            for batch in opened.scan(selected_fields=tuple(columns)).to_arrow_batch_reader():
                yield pa.Table.from_batches([batch])

    def tidy(self) -> None:
        """Do nothing: snapshots and files that no snapshot needs are removed by Iceberg's maintenance, which the
        table's owner runs."""

    def _prepare(
        self,
        commit: Commit,
        content: FeedContent,
        transaction: "Transaction",
        prepared: "_PreparedFiles",
        opened: "Table | None",
    ) -> Commit:
        """Write the files of a commit, and add its snapshot and its properties to the transaction."""
        before = {} if opened is None or self._table.changes else {file.file_path: file for file in _data_files(opened)}
        schema = _arrow_schema(transaction.table_metadata.schema())
        with self._lossless():
            if self._table.changes:
                with part_writer(prepared.directory, prepared.beginning, schema, prepared.complete) as writer:
                    content.write_changes(commit, writer.write)
                    files = files_of(prepared, writer)
            else:
                files = write_changed_files(prepared, content, schema, list(map(_table_file, before.values())))
        new = [file for file in files if file.path not in before and file.rows]
        remaining = {file.path for file in files}
        gone = [file for path, file in before.items() if path not in remaining]
        self._stage(transaction, commit, [file.path for file in new], gone, prepared.io)
        return replace(commit, rows=sum(file.rows for file in new))

    def _stage(
        self, transaction: "Transaction", commit: Commit, new: Sequence[str], gone: "Sequence[DataFile]", io: "FileIO"
    ) -> None:
        from pyiceberg.io.pyarrow import parquet_file_to_data_file

        metadata = transaction.table_metadata
        names = {
            OWNER: next(iter(self._owners)), NUMBER: str(commit.number), CHECKPOINT: str(commit.checkpoint_id),
            SNAPSHOT: commit.snapshot,
        }  # fmt: skip
        update = transaction.update_snapshot(snapshot_properties=names)
        with update.merge_append() if self._table.changes else update.overwrite() as snapshot:
            for path in new:
                snapshot.append_data_file(parquet_file_to_data_file(io, metadata, path))
            for file in gone:
                snapshot.delete_data_file(file)
        made = transaction.table_metadata.snapshot_by_id(snapshot.snapshot_id)
        assert made is not None, "the transaction has the snapshot that was added to it"
        sources = json.dumps(self._table.recorded_sources())
        transaction.set_properties({**names, SEQUENCE: str(made.sequence_number), SOURCES: sources})

    def _begun(self, catalog: "Catalog", opened: "Table | None", schema: pa.Schema) -> "Transaction":
        """Return a transaction that is tried once. A repeated one would be added on top of another publisher's."""
        from pyiceberg.table import TableProperties, Transaction

        if opened is not None:
            opened.metadata.properties[TableProperties.COMMIT_NUM_RETRIES] = "0"
            return Transaction(opened)
        namespace, _, _ = self._identifier.rpartition(".")
        try:
            catalog.create_namespace_if_not_exists(namespace)
        except Exception:  # another publisher creates it now, for which each catalog has an error of its own
            if not catalog.namespace_exists(namespace):
                raise
        properties = {TableProperties.MANIFEST_MERGE_ENABLED: "true"}
        return catalog.create_table_transaction(self._identifier, schema, properties=properties)

    def _catalog(self) -> "Catalog":
        return open_catalog(self._catalog_name, self._table.target)

    def _opened(self, catalog: "Catalog") -> "Table | None":
        from pyiceberg.exceptions import NoSuchTableError

        try:
            return catalog.load_table(self._identifier)
        except NoSuchTableError:
            return None

    def _newest_of(self, opened: "Table") -> Commit:
        """Return the newest commit. Raises InvalidRequestError (``foreign-target``)."""
        from pyiceberg.table.snapshots import Operation

        properties = opened.metadata.properties
        if properties.get(OWNER, "") not in self._owners:
            whose = f"table {self._table.name!r} in mode {mode_of(self._table)}"
            raise foreign(self._table, f"an Iceberg table that is not {whose}")
        snapshot, own = opened.current_snapshot(), int(properties[SEQUENCE])
        while snapshot is not None and (snapshot.sequence_number or 0) > own:
            operation = snapshot.summary.operation if snapshot.summary else None
            if operation != Operation.REPLACE:
                text = "" if operation is None else f": {operation.value}"
                raise foreign(self._table, f"snapshot {snapshot.snapshot_id} was written by something else{text}")
            parent = snapshot.parent_snapshot_id
            snapshot = None if parent is None else opened.snapshot_by_id(parent)
        if snapshot is not None and snapshot.sequence_number != own:
            raise foreign(self._table, "the table was set back to an earlier snapshot")
        number, checkpoint_id = int(properties[NUMBER]), CheckpointId(int(properties[CHECKPOINT]))
        pipeline = self._owners[properties[OWNER]]
        return Commit(number, checkpoint_id, None, snapshot=properties.get(SNAPSHOT, ""), pipeline=pipeline)

    @contextmanager
    def _lossless(self) -> Iterator[None]:
        """Raise UnsupportedError (``iceberg-type``) for types and values that Iceberg cannot hold."""
        try:
            yield
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise UnsupportedError(
                f"{self._table.target}: {str(error).splitlines()[0]}",
                kind="iceberg-type",
                hint=f"publish other columns with publish.{self._table.name}.columns, or in format parquet",
            ) from error

    @contextmanager
    def _iceberg_errors(self, number: int = 0) -> Iterator[None]:
        """Convert errors of Iceberg and of its catalogs, which raise those of their own clients. ``number``: of the
        commit that is added."""
        from pyiceberg.exceptions import CommitFailedException, TableAlreadyExistsError

        try:
            yield
        except StatelibError:
            raise
        except (CommitFailedException, TableAlreadyExistsError) as error:
            raise taken(self._table, number) from error
        except Exception as error:
            text = (str(error) or type(error).__name__).splitlines()[0]
            raise RetryableError(
                f"{self._table.target}: {text}",
                kind="storage-io",
                hint="publish again; if it stays, the catalog or its storage is in trouble",
            ) from error


class _PreparedFiles:
    """The :class:`~statelib.publication.parquet.place.Prepared` files of a commit. ``beginning``: of all their names.
    Each has its range of key groups and its fingerprint in its name, from which the next commit knows them."""

    def __init__(
        self, directory: str, number: int, attempt: str, catalog: "Catalog", transaction: "Transaction"
    ) -> None:
        from pyiceberg.io import load_file_io
        from pyiceberg.table.locations import load_location_provider

        metadata = transaction.table_metadata
        self.directory = directory
        self.beginning = f"statelib-{number}-{attempt}-"
        self.io: FileIO = load_file_io({**catalog.properties, **metadata.properties}, metadata.location)
        self._locations: LocationProvider = load_location_provider(metadata.location, metadata.properties)
        self._stored: list[str] = []

    def prefix(self, key_groups: KeyGroupRange, fingerprint: str) -> str:
        return f"{self.beginning}{key_groups.start}-{key_groups.end}-{fingerprint}-"

    def complete(self, name: str) -> None:
        """Store a file, unless it has no rows: Iceberg needs none for the columns, and its readers leave such files
        out."""
        local = f"{self.directory}/{name}"
        if not pq.read_metadata(local).num_rows:
            return
        self._stored.append(self.path(name))
        with open(local, "rb") as file, self.io.new_output(self.path(name)).create() as stored:
            shutil.copyfileobj(file, stored)
        crash_point("publication: iceberg file stored")

    def path(self, name: str) -> str:
        return str(self._locations.new_data_location(name))

    @contextmanager
    def dropped_after(self, *errors: type[Exception]) -> Iterator[None]:
        """Remove the files if the body raises one of the errors, after which nothing was committed."""
        try:
            yield
        except errors:
            for path in self._stored:
                with suppress(OSError):
                    self.io.delete(path)
            raise


def _data_files(opened: "Table") -> "Iterator[DataFile]":
    return (task.file for task in opened.scan().plan_files())


def _table_file(file: "DataFile") -> TableFile:
    """Return a file of the table. One that was written by Iceberg's maintenance has no range of key groups."""
    match = _RANGE.fullmatch(file.file_path.rpartition("/")[2])
    bounds, fingerprint = ((int(match[1]), int(match[2])), match[3]) if match else (None, "")
    return TableFile(file.file_path, file.record_count, file.file_size_in_bytes, bounds, fingerprint)


def _arrow_schema(schema: Any) -> pa.Schema:
    """Return the Arrow schema of a schema of Iceberg, with the ids of its fields."""
    from pyiceberg.io.pyarrow import schema_to_pyarrow

    return schema_to_pyarrow(schema)
