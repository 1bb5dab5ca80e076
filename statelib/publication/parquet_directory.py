"""A published table as plain Parquet files in a directory, which any program reads.

``<target>/commit-00000001/`` holds the files that a commit wrote, and ``_manifest.json``, which names the files of the
table. A commit is prepared in ``<target>/_staging/`` and becomes visible by one renaming of its directory. That fails
if the directory of that commit exists. So there is one commit of each number, and readers see whole commits only.

In a feed, the files of all commits are the feed. In a table, the manifest of the newest commit names the files of the
state; files of earlier commits are used again if nothing in them has changed.
"""

import os
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq

from statelib.crash_points import crash_point
from statelib.errors import StatelibError
from statelib.model.key_groups import KeyGroupRange, subtask_ranges
from statelib.publication.feed import FEED_COLUMNS
from statelib.publication.parquet_files import PartWriter, part_writer
from statelib.publication.parquet_manifest import (
    MANIFEST_NAME,
    TableFile,
    TableManifest,
    decode_manifest,
    encode_manifest,
    mode_of,
)
from statelib.publication.target import Commit, Content, PublishedTable, Write, check_columns, foreign, taken
from statelib.storage.filesystem.descriptors import opened_directory
from statelib.storage.filesystem.failures import storage_errors

FILE_BYTES = 64 << 20
"""The stored bytes of state for which a table has one file."""
_COMMIT = re.compile(r"commit-(\d{8,})")
_STAGED = re.compile(r"(\d+)-[0-9a-f]{32}")
_STAGING = "_staging"
_PART = re.compile(r"[0-9-]+\.parquet")


class ParquetDirectory:
    """A :class:`~statelib.publication.target.TableTarget` in a directory of a file system. ``attempt``: a text that
    no other publisher has, 32 hexadecimal digits."""

    def __init__(self, table: PublishedTable, directory: str, attempt: str) -> None:
        self._table = table
        self._directory = directory
        self._attempt = attempt

    def newest(self) -> Commit | None:
        manifest = self._newest_manifest()
        return None if manifest is None else manifest.commit

    def commit(self, commit: Commit, content: Content) -> Commit:
        previous = self._newest_manifest()
        if (previous.commit.number if previous else 0) >= commit.number:
            raise taken(self._table, commit.number)
        schema = pa.schema([*FEED_COLUMNS, *content.schema]) if self._table.changes else content.schema
        columns = {field.name: str(field.type) for field in schema}
        if previous is not None:
            check_columns(self._table, _described(columns), _described(previous.columns))
        with self._staging(commit.number) as staging:
            if self._table.changes:
                files = self._write_feed(staging, commit, content, schema)
            else:
                files = self._write_table(staging, commit, content, previous)
            own = f"{_name(commit.number)}/"
            done = replace(commit, rows=sum(file.rows for file in files if file.path.startswith(own)))
            table = self._table
            manifest = TableManifest(
                table.pipeline, table.name, mode_of(table), done, columns, tuple(content.identity), tuple(files)
            )
            self._publish(staging, manifest)
        return done

    def identities(self) -> Iterator[pa.Table]:
        manifest = self._newest_manifest()
        assert manifest is not None, "a feed without a commit has no rows"
        names = [*manifest.identity, "commit", "change"]
        for number in self._numbers():
            for file in self._manifest(number).files:
                with storage_errors(f"reading {file.path}"), open(f"{self._directory}/{file.path}", "rb") as source:
                    for batch in pq.ParquetFile(source).iter_batches(columns=names):
                        yield pa.Table.from_batches([batch])

    def tidy(self) -> None:
        """Remove what publishers that were killed or overtaken prepared for commits that exist by now and, in a table,
        what only commits before the last ``retain`` ones need. The first goes first: the directory of a removed commit
        must not be free for a publisher that was overtaken."""
        newest = max(self._numbers(), default=0)
        with storage_errors(f"tidying {self._directory}"):
            for name in sorted(_listed(f"{self._directory}/{_STAGING}")):
                staged = _STAGED.fullmatch(name)
                if staged and int(staged[1]) <= newest:
                    crash_point("publication: before removal")
                    shutil.rmtree(f"{self._directory}/{_STAGING}/{name}", ignore_errors=True)
                    crash_point("publication: removed")
            if not self._table.changes:
                self._remove_old_files()

    def _write_feed(self, staging: str, commit: Commit, content: Content, schema: pa.Schema) -> list[TableFile]:
        with part_writer(staging, "", schema) as writer:
            content.write_changes(commit, writer.write)
            return [self._file(commit, part.name, part.rows, part.size_bytes) for part in writer.finish()]

    def _write_table(
        self, staging: str, commit: Commit, content: Content, previous: TableManifest | None
    ) -> list[TableFile]:
        """Write the rows of the key groups that have changed, and return all files of the table."""
        unchanged = {
            key_groups: _unchanged(previous, key_groups, content.fingerprint(key_groups))
            for key_groups in _ranges(content, previous)
        }
        changed = [key_groups for key_groups, files in unchanged.items() if not files]
        files = [file for unchanged_files in unchanged.values() for file in unchanged_files]
        with ExitStack() as resources:
            writers: list[PartWriter] = []

            def writer_of(index: int) -> Write:
                if index == len(writers):
                    if writers:
                        writers[-1].finish()
                    prefix = f"{changed[index].start:05}-"
                    writers.append(resources.enter_context(part_writer(staging, prefix, content.schema)))
                return writers[index].write

            content.write_rows(changed, writer_of)
            for key_groups, writer in zip(changed, writers, strict=True):
                bounds, fingerprint = (key_groups.start, key_groups.end), content.fingerprint(key_groups)
                parts = [self._file(commit, part.name, part.rows, part.size_bytes) for part in writer.finish()]
                files += [replace(file, key_groups=bounds, fingerprint=fingerprint) for file in parts]
        return sorted(files, key=lambda file: (file.key_groups or (0, 0), file.path))

    def _file(self, commit: Commit, name: str, rows: int, size_bytes: int) -> TableFile:
        return TableFile(f"{_name(commit.number)}/{name}", rows, size_bytes)

    @contextmanager
    def _staging(self, number: int) -> Iterator[str]:
        """Yield a new directory for a commit that is being prepared. It is removed at the end, unless it was
        published. Raises ConflictError (``commit-taken``) if the body fails because another publisher, which was first,
        has removed the directory."""
        staging = f"{self._directory}/{_STAGING}/{number}-{self._attempt}"
        with storage_errors(f"making {staging}"):
            with opened_directory(self._directory, (_STAGING,), create=True):
                os.mkdir(staging)
            crash_point("publication: staging made")
        try:
            yield staging
        except (StatelibError, OSError) as error:
            if os.path.isdir(staging):
                raise
            raise taken(self._table, number) from error
        finally:
            shutil.rmtree(staging, ignore_errors=True)

    def _publish(self, staging: str, manifest: TableManifest) -> None:
        """Make a commit visible. Raises ConflictError (``commit-taken``)."""
        final = f"{self._directory}/{_name(manifest.commit.number)}"
        with storage_errors(f"publishing {final}"):
            with open(f"{staging}/{MANIFEST_NAME}", "xb") as file:
                file.write(encode_manifest(manifest))
                file.flush()
                os.fsync(file.fileno())
            _sync(staging)
            crash_point("publication: durable")
            try:
                os.rename(staging, final)
            except OSError as error:
                if os.path.isdir(final):
                    raise taken(self._table, manifest.commit.number) from error
                raise
            crash_point("publication: renamed")
            _sync(self._directory)
        crash_point("publication: committed")

    def _remove_old_files(self) -> None:
        numbers = self._numbers()
        retained = numbers[-self._table.retain :]
        needed = {file.path for number in retained for file in self._manifest(number).files}
        for number in numbers[: -self._table.retain]:
            directory = f"{self._directory}/{_name(number)}"
            names = sorted(_listed(directory), key=lambda name: (name != MANIFEST_NAME, name))
            unused = [name for name in names if f"{_name(number)}/{name}" not in needed]
            for name in unused:
                crash_point("publication: before removal")
                with suppress(FileNotFoundError):  # another publisher tidies, too
                    os.unlink(f"{directory}/{name}")
                crash_point("publication: removed")
            if len(unused) == len(names):
                with suppress(FileNotFoundError):
                    os.rmdir(directory)
                crash_point("publication: removed")

    def _newest_manifest(self) -> TableManifest | None:
        """Return the manifest of the newest commit, after a check that the table is as the publishers left it."""
        numbers = self._numbers()
        if not numbers:
            return None
        try:
            return self._checked(numbers)
        except StatelibError:
            if self._numbers() == numbers:
                raise
        return self._newest_manifest()  # another publisher has gone on meanwhile, and removed an old commit

    def _checked(self, numbers: list[int]) -> TableManifest:
        manifest = self._manifest(numbers[-1])
        if not manifest.is_of(self._table):
            owner = f"table {manifest.table!r} of pipeline {manifest.pipeline!r}"
            raise foreign(self._table, f"holds {owner} in mode {manifest.mode}")
        if self._table.changes and numbers != list(range(1, numbers[-1] + 1)):
            raise foreign(self._table, f"commits are missing, expected 1 to {numbers[-1]}")
        for file in manifest.files:
            path = f"{self._directory}/{file.path}"
            if not os.path.isfile(path) or os.path.getsize(path) != file.size_bytes:
                raise foreign(self._table, f"{file.path} is not the file that was published")
        return manifest

    def _numbers(self) -> list[int]:
        """Return the numbers of all commits in ascending order. Names that begin with a dot or an underscore are
        ignored, as readers of Parquet do.

        Raises InvalidRequestError (``foreign-target``) if there is anything else."""
        with storage_errors(f"reading {self._directory}"):
            if not os.path.isdir(self._directory):
                return []
            names = [name for name in os.listdir(self._directory) if not name.startswith(("_", "."))]
            matches = {name: _COMMIT.fullmatch(name) for name in names}
            for name, matched in matches.items():
                if matched is None:
                    raise foreign(self._table, f"{name} was not published by statelib")
                self._check_commit(name)
        return sorted(int(matched[1]) for matched in matches.values() if matched)

    def _check_commit(self, name: str) -> None:
        for file in _listed(f"{self._directory}/{name}"):
            if not file.startswith(("_", ".")) and not _PART.fullmatch(file):
                raise foreign(self._table, f"{name}/{file} was not published by statelib")

    def _manifest(self, number: int) -> TableManifest:
        path = f"{self._directory}/{_name(number)}/{MANIFEST_NAME}"
        try:
            with storage_errors(f"reading {path}"), open(path, "rb") as file:
                return decode_manifest(file.read())
        except ValueError as error:
            raise foreign(self._table, f"{_name(number)}/{MANIFEST_NAME} is damaged: {error}") from error


def _listed(directory: str) -> list[str]:
    """Return the names in a directory, none if it is gone: another publisher may have removed an old commit."""
    try:
        return os.listdir(directory)
    except FileNotFoundError:
        return []


def _name(number: int) -> str:
    return f"commit-{number:08}"


def _described(columns: dict[str, str]) -> list[str]:
    return [f"{name}: {type_}" for name, type_ in columns.items()]


def _ranges(content: Content, previous: TableManifest | None) -> Sequence[KeyGroupRange]:
    """Return the ranges of key groups that have files of their own: those of the previous commit, unless the state has
    outgrown them."""
    whole = content.key_groups
    wanted = min(max(-(-content.size_bytes // FILE_BYTES), 1), len(whole))
    before = sorted({file.key_groups for file in previous.files if file.key_groups}) if previous else []
    if before and before[-1][1] == whole.end and wanted <= 2 * len(before):
        return [KeyGroupRange(*bounds) for bounds in before]
    return subtask_ranges(wanted, len(whole))


def _unchanged(previous: TableManifest | None, key_groups: KeyGroupRange, fingerprint: str) -> list[TableFile]:
    """Return the files of the previous commit that hold the same rows of the key groups; none if there are none."""
    files = previous.files if previous and fingerprint else ()
    wanted = ((key_groups.start, key_groups.end), fingerprint)
    return [file for file in files if (file.key_groups, file.fingerprint) == wanted]


def _sync(directory: str) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
