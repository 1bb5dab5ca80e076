"""The snapshots of a table in the format Iceberg, read with the package ``pyiceberg`` (extra ``iceberg``).

The rows of a snapshot are those of the data files that it added, and it deletes those of the files that it removed. A
snapshot of the operation ``replace`` has the rows that the table had before, so it is left out.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statelib.errors import NotFoundError, RetryableError, UnsupportedError
from statelib.extras import require
from statelib.publication.iceberg.catalog import open_catalog
from statelib.spark.events.tables.table_log import CHANGE_COLUMNS, as_changed, before_moment, first_line, history_gone

if TYPE_CHECKING:
    from pyiceberg.table import FileScanTask
    from pyiceberg.table.snapshots import Snapshot

_WITHOUT_NUMBER = -(2**52)
"""The commit version of a snapshot without a sequence number at the epoch: all such versions are below 0."""


class IcebergLog:
    """A :class:`~statelib.spark.events.tables.table_log.TableLog` whose versions are the ids of snapshots. ``name``:
    ``<catalog>.<namespace>.<table>``; pyiceberg is configured for the catalog.

    Raises NotFoundError (``no-source``) if there is no table, InvalidRequestError (``no-iceberg-catalog``)."""

    def __init__(self, name: str, version: int | None = None) -> None:
        require("iceberg")
        self.name = name
        catalog, _, identifier = name.partition(".")
        with (
            self._naming_errors(),
            open_catalog(catalog, f"source table {name}", " for the driver and the workers") as opened,
        ):
            self._table = opened.load_table(identifier)
        metadata = self._table.metadata
        self._snapshot = self._table.current_snapshot() if version is None else metadata.snapshot_by_id(version)
        if version is not None and self._snapshot is None:
            raise history_gone(name, f"it has no snapshot {version} any more")

    @property
    def table(self) -> str:
        return str(self._table.metadata.table_uuid)

    @property
    def version(self) -> int | None:
        return self._snapshot.snapshot_id if self._snapshot else None

    def commits(self, after: int | None, until_ms: int) -> Sequence[int]:
        """See :meth:`TableLog.commits`."""
        line = self._line()
        ids = [each.snapshot_id for each in line]
        if after is not None and after not in ids:
            raise history_gone(self.name, f"snapshot {after} is applied, and the present one does not follow from it")
        line = line if after is None else line[: ids.index(after)]
        before = before_moment(((each.snapshot_id, each.timestamp_ms) for each in reversed(line)), until_ms)
        if line and not before and after is None and line[-1].parent_snapshot_id is not None:
            raise history_gone(self.name, f"the snapshot before {line[-1].snapshot_id} has expired")
        return before

    def _line(self) -> "list[Snapshot]":
        """Return the snapshot of the log and those that it follows from, as far as the table has them, newest first."""
        line: list[Snapshot] = []
        snapshot = self._snapshot
        while snapshot is not None:
            line.append(snapshot)
            parent = snapshot.parent_snapshot_id
            snapshot = None if parent is None else self._table.metadata.snapshot_by_id(parent)
        return line

    @cached_property
    def _commit_versions(self) -> dict[int, int]:
        """The numbers by which rows can be ordered, by the id of their snapshot. Ids are random, so the sequence number
        is taken. The snapshots of format version 1 have none: theirs is negative, and grows with the time."""
        versions: dict[int, int] = {}
        last = _WITHOUT_NUMBER
        for snapshot in reversed(self._line()):
            last = snapshot.sequence_number or max(last + 1, _WITHOUT_NUMBER + snapshot.timestamp_ms)
            versions[snapshot.snapshot_id] = last
        return versions

    def columns(self) -> pa.Schema:
        """See :meth:`TableLog.columns`."""
        own = self._table.scan(snapshot_id=self.version).projection().as_arrow()
        return pa.schema([*(_readable(field) for field in own), *CHANGE_COLUMNS])

    def changes(self, commits: Sequence[int]) -> Iterator[pa.RecordBatch]:
        """See :meth:`TableLog.changes`."""
        from pyiceberg.table.snapshots import Operation

        with self._naming_errors():
            for snapshot in (self._table.metadata.snapshot_by_id(commit) for commit in commits):
                if snapshot is None:
                    raise history_gone(self.name, "a snapshot has expired")
                if snapshot.summary is None or snapshot.summary.operation is not Operation.REPLACE:
                    for change, tasks in self._files_of(snapshot).items():
                        yield from self._read(tasks, change, snapshot)

    def rows(self, piece: int, pieces: int) -> Iterator[pa.RecordBatch]:
        """See :meth:`TableLog.rows`."""
        if self._snapshot is None:
            return
        with self._naming_errors():
            files = self._table.scan(snapshot_id=self.version).plan_files()
            tasks = sorted(files, key=lambda task: task.file.file_path)  # a catalog that plans has no order of its own
            yield from self._read(tasks[piece::pieces], "insert", self._snapshot)

    def _files_of(self, snapshot: "Snapshot") -> "dict[str, list[FileScanTask]]":
        """Return the data files that a snapshot added and removed, by the change of their rows.

        Raises UnsupportedError (``source-features``) if files of deletions decide which of their rows there are."""
        from pyiceberg.manifest import ManifestContent, ManifestEntryStatus
        from pyiceberg.table import FileScanTask

        changes = {ManifestEntryStatus.ADDED: "insert", ManifestEntryStatus.DELETED: "delete"}
        files: dict[str, list[FileScanTask]] = {"insert": [], "delete": []}
        manifests = snapshot.manifests(self._table.io)
        # Those of format version 1 have the number 0 as their content, which is equal to DATA, but not the same object.
        deletions = [manifest for manifest in manifests if manifest.content == ManifestContent.DELETES]
        if any(manifest.added_snapshot_id == snapshot.snapshot_id for manifest in deletions):
            raise self._merge_on_read(snapshot)
        for manifest in manifests:
            if manifest.content != ManifestContent.DATA or manifest.added_snapshot_id != snapshot.snapshot_id:
                continue
            for entry in manifest.fetch_manifest_entry(self._table.io, discard_deleted=False):
                if entry.snapshot_id == snapshot.snapshot_id and entry.status in changes:
                    files[changes[entry.status]].append(FileScanTask(entry.data_file))
        if deletions and files["delete"]:
            raise self._merge_on_read(snapshot)
        return files

    def _merge_on_read(self, snapshot: "Snapshot") -> UnsupportedError:
        return UnsupportedError(
            f"table {self.name}: snapshot {snapshot.snapshot_id} deletes rows by files of deletions (merge-on-read), "
            "which incremental reads do not support",
            kind="source-features",
            hint="set write.delete.mode, write.update.mode and write.merge.mode of the table to copy-on-write; read "
            "this interval through Spark's connector by source.where, then go on as before",
        )

    def _read(self, tasks: "Sequence[FileScanTask]", change: str, snapshot: "Snapshot") -> Iterator[pa.RecordBatch]:
        from pyiceberg.expressions import AlwaysTrue
        from pyiceberg.io.pyarrow import ArrowScan

        columns, version = self.columns(), self._commit_versions[snapshot.snapshot_id]
        projection = self._table.scan(snapshot_id=self.version).projection()
        scan = ArrowScan(self._table.metadata, self._table.io, projection, AlwaysTrue())
        for batch in scan.to_record_batches(tasks):
            rows = as_changed(_with_uuid_texts(batch), change, version, snapshot.timestamp_ms)
            yield rows.select(columns.names).cast(columns)

    @contextmanager
    def _naming_errors(self) -> Iterator[None]:
        """Raise the package's errors as errors that name the table."""
        from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

        try:
            yield
        except (NoSuchTableError, NoSuchNamespaceError) as error:
            raise NotFoundError(
                f"source {self.name} cannot be read: the catalog has no such table",
                kind="no-source",
                hint="correct source.table, or write 'on_missing: empty' if the table may come later",
            ) from error
        except (OSError, pa.ArrowException) as error:
            raise RetryableError(
                f"source table {self.name} cannot be read: {first_line(error)}",
                kind="source-unreadable",
                hint="files of its snapshots may have been removed by maintenance; if not, run again",
            ) from error


def _readable(field: pa.Field) -> pa.Field:
    """Return a column of a table as it is read: UUIDs are texts, as in Spark's connector."""
    type_ = pa.string() if isinstance(field.type, pa.UuidType) else field.type
    return pa.field(field.name, type_, field.nullable)


def _with_uuid_texts(batch: pa.RecordBatch) -> pa.RecordBatch:
    for number, field in enumerate(batch.schema):
        if isinstance(field.type, pa.UuidType):
            batch = batch.set_column(number, field.name, _texts(batch.column(number).storage))
    return batch


def _texts(uuids: pa.Array) -> pa.Array:
    """Return UUIDs of 16 bytes as texts, such as ``00112233-4455-6677-8899-aabbccddeeff``."""
    raw = b"".join(uuids.fill_null(bytes(16)).to_pylist())
    digits = np.frombuffer(raw.hex().encode(), np.uint8).reshape(len(uuids), 32)
    marked = np.insert(digits, (8, 12, 16, 20), ord("-"), axis=1)
    offsets = np.arange(len(uuids) + 1, dtype=np.int32) * marked.shape[1]
    texts = pa.StringArray.from_buffers(len(uuids), pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(marked)))
    return pc.if_else(uuids.is_valid(), texts, pa.scalar(None, pa.string()))
