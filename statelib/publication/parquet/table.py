"""A published table as plain Parquet files, which any program reads.

A commit has files, and a manifest that names the files of the table. In a feed, the files of all commits are the feed.
In a table, the manifest of the newest commit names the files of the state; files of earlier commits are used again if
nothing in them has changed.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq

from statelib.errors import NotFoundError, StatelibError
from statelib.publication.feed import FEED_COLUMNS
from statelib.publication.parquet.files import part_writer
from statelib.publication.parquet.manifest import (
    MANIFEST_NAME,
    TableFile,
    TableManifest,
    decode_manifest,
    encode_manifest,
    mode_of,
)
from statelib.publication.parquet.place import Listing, ParquetPlace, Prepared, commit_name
from statelib.publication.parquet.range_files import files_of, write_changed_files
from statelib.publication.target import Commit, FeedContent, PublishedTable, check_columns, foreign, taken


class ParquetTable:
    """A :class:`~statelib.publication.target.TableTarget` of Parquet files at a place."""

    def __init__(self, table: PublishedTable, place: ParquetPlace) -> None:
        self._table = table
        self._place = place

    def newest(self) -> Commit | None:
        manifest = self._newest_manifest()
        return None if manifest is None else manifest.commit

    def commit(self, commit: Commit, content: FeedContent) -> Commit:
        previous = self._newest_manifest()
        if (previous.commit.number if previous else 0) >= commit.number:
            raise taken(self._table, commit.number)
        schema = pa.schema([*FEED_COLUMNS, *content.schema]) if self._table.changes else content.schema
        columns = {field.name: str(field.type) for field in schema}
        if previous is not None:
            check_columns(self._table, _described(columns), _described(previous.columns), previous.sources)
        before = previous.files if previous else ()
        with self._place.preparing(commit.number) as prepared:
            if self._table.changes:
                files = _write_feed(prepared, commit, content, schema)
            else:
                files = write_changed_files(prepared, content, schema, before)
            done = replace(commit, rows=sum(file.rows for file in files if file not in before))
            table = self._table
            manifest = TableManifest(
                pipeline=table.pipeline,
                table=table.name,
                mode=mode_of(table),
                commit=done,
                columns=columns,
                identity=tuple(content.identity),
                files=tuple(files),
                sources=table.recorded_sources(),
            )
            prepared.publish(encode_manifest(manifest))
        return done

    def identities(self) -> Iterator[pa.Table]:
        manifest = self._newest_manifest()
        assert manifest is not None, "a feed without a commit has no rows"
        yield from self.feed_rows([*manifest.identity, "commit", "change"])

    def feed_rows(self, columns: Sequence[str]) -> Iterator[pa.Table]:
        for number in self._place.listing().numbers:
            for file in self._manifest(number).files:
                with self._place.opened(file.path) as source:
                    for batch in pq.ParquetFile(source).iter_batches(columns=columns):
                        yield pa.Table.from_batches([batch])

    def tidy(self) -> None:
        if self._table.changes:
            self._place.tidy(None, self._files_of)
        else:
            self._place.tidy(self._table.retain, self._files_if_kept)

    def _files_of(self, number: int) -> set[str]:
        return {file.path for file in self._manifest(number).files}

    def _files_if_kept(self, number: int) -> set[str]:
        """Return the paths that a manifest names; none if it is gone, because an earlier or another publisher has
        removed the commit, of which only files are left that later commits use."""
        try:
            data = self._place.read_manifest(number)
        except NotFoundError:
            return set()
        return {file.path for file in self._decoded(number, data).files}

    def _newest_manifest(self) -> TableManifest | None:
        """Return the manifest of the newest commit, after a check that the table is as the publishers left it."""
        listing = self._place.listing()
        if not listing.numbers:
            return None
        try:
            return self._checked(listing)
        except StatelibError:
            if self._place.listing().numbers == listing.numbers:
                raise
        return self._newest_manifest()  # another publisher has gone on meanwhile, and removed an old commit

    def _checked(self, listing: Listing) -> TableManifest:
        newest = listing.numbers[-1]
        manifest = self._manifest(newest)
        if not manifest.is_of(self._table):
            owner = f"table {manifest.table!r} of pipeline {manifest.pipeline!r}"
            raise foreign(self._table, f"holds {owner} in mode {manifest.mode}")
        if self._table.changes and listing.numbers != tuple(range(1, newest + 1)):
            raise foreign(self._table, f"commits are missing, expected 1 to {newest}")
        for file in manifest.files:
            if listing.sizes.get(file.path) != file.size_bytes:
                raise foreign(self._table, f"{file.path} is not the file that was published")
        return manifest

    def _manifest(self, number: int) -> TableManifest:
        try:
            return self._decoded(number, self._place.read_manifest(number))
        except NotFoundError as error:
            raise foreign(self._table, f"{commit_name(number)}/{MANIFEST_NAME} is gone") from error

    def _decoded(self, number: int, data: bytes) -> TableManifest:
        try:
            return decode_manifest(data)
        except ValueError as error:
            raise foreign(self._table, f"{commit_name(number)}/{MANIFEST_NAME} is damaged: {error}") from error


def _write_feed(prepared: Prepared, commit: Commit, content: FeedContent, schema: pa.Schema) -> list[TableFile]:
    with part_writer(prepared.directory, "", schema, prepared.complete) as writer:
        content.write_changes(commit, writer.write)
        return files_of(prepared, writer)


def _described(columns: dict[str, str]) -> list[str]:
    return [f"{name}: {type_}" for name, type_ in columns.items()]
