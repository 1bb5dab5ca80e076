"""The place of a Parquet table in a bucket: S3, Google Cloud Storage, Azure Blob Storage.

A bucket cannot rename a directory. Therefore the files of a commit are stored first, as
``<table>/_files/<number>-<attempt>/<name>``, and the commit is one conditional PUT of its manifest. Only one publisher
writes the manifest of a number, and its attempt is in the paths that the manifest names.
"""

import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import BinaryIO

from statelib.errors import StatelibError
from statelib.model.key_groups import KeyGroupRange
from statelib.publication.parquet.manifest import MANIFEST_NAME
from statelib.publication.parquet.place import FilesOf, Listing, commit_name, range_prefix
from statelib.publication.target import PublishedTable, foreign, taken
from statelib.storage.filesystem.descriptors import write_all
from statelib.storage.filesystem.failures import storage_errors
from statelib.storage.filesystem.publish import MAX_METADATA_BYTES
from statelib.storage.filesystem.reader import blocks
from statelib.storage.local.scratch import scratch_directory
from statelib.storage.objects.bucket import Bucket
from statelib.storage.objects.publish import check_put_if_absent, put_object_if_absent
from statelib.storage.objects.uris import ObjectLocation, object_location
from statelib.storage.retries import Retries

_FILES = "_files"
_MANIFEST = re.compile(rf"commit-(\d{{8,}})/{MANIFEST_NAME}")
_FILE = re.compile(rf"{_FILES}/(\d+)-[0-9a-f]{{32}}/[0-9-]+\.parquet")
_AT_ONCE = 1000


class BucketPlace:
    """A :class:`~statelib.publication.parquet.place.ParquetPlace` below a prefix of a bucket. ``attempt``: a text that
    no other publisher has, 32 hexadecimal digits. ``scratch``: the local directory of files until they are stored."""

    def __init__(self, table: PublishedTable, attempt: str, retries: Retries, scratch: str | None) -> None:
        self._table = table
        self._root = object_location(table.target)
        self._bucket = Bucket(self._root.bucket_uri, retries)
        self._attempt = attempt
        self._scratch = scratch

    def listing(self) -> Listing:
        numbers: list[int] = []
        sizes: dict[str, int] = {}
        start = len(self._root.key) + 1 if self._root.parts else 0
        for item in self._bucket.list(self._root.key):
            path = item.key[start:]
            if manifest := _MANIFEST.fullmatch(path):
                numbers.append(int(manifest[1]))
            elif _FILE.fullmatch(path):
                sizes[path] = item.size_bytes
            elif not any(part.startswith(("_", ".")) for part in path.split("/")):
                raise foreign(self._table, f"{path} was not published by statelib")
        return Listing(tuple(sorted(numbers)), sizes)

    def read_manifest(self, number: int) -> bytes:
        return self._bucket.read(self._manifest(number).key, MAX_METADATA_BYTES)

    @contextmanager
    def opened(self, path: str) -> Iterator[BinaryIO]:
        with scratch_directory(self._scratch, "publish") as directory, open(f"{directory}/file", "w+b") as file:

            def begin(_size_bytes: int) -> Callable[[memoryview], None]:
                file.seek(0)
                file.truncate()
                return lambda block: write_all(file.fileno(), block)

            self._bucket.scan(self._root.below(*path.split("/")).key, begin)
            file.seek(0)
            yield file

    @contextmanager
    def preparing(self, number: int) -> Iterator["_PreparedObjects"]:
        if number == 1:
            check_put_if_absent(self._bucket, self._root)
        with scratch_directory(self._scratch, "publish") as directory:
            files = self._root.below(_FILES, f"{number}-{self._attempt}")
            prepared = _PreparedObjects(directory, self._table, number, self._bucket, self._manifest(number), files)
            try:
                yield prepared
            finally:
                prepared.drop()

    def tidy(self, retain: int | None, files_of: FilesOf) -> None:
        """Remove old manifests first: if this is killed after that, the next call finds the files that no manifest
        names."""
        listing = self.listing()
        if not listing.numbers:
            return
        if retain is None:
            unneeded = _of_others(listing, files_of)
        else:
            self._remove([self._manifest(number).key for number in listing.numbers[:-retain]])
            unneeded = _unneeded(listing, listing.numbers[-retain:], files_of)
        self._remove([self._root.below(*path.split("/")).key for path in unneeded])

    def _manifest(self, number: int) -> ObjectLocation:
        return self._root.below(commit_name(number), MANIFEST_NAME)

    def _remove(self, keys: Sequence[str]) -> None:
        for start in range(0, len(keys), _AT_ONCE):
            self._bucket.delete_all(keys[start : start + _AT_ONCE])


@dataclass
class _PreparedObjects:
    """A :class:`~statelib.publication.parquet.place.PreparedCommit` whose files are objects below ``files``.
    ``_stored``: the keys of the objects to remove if the commit is not published."""

    directory: str
    _table: PublishedTable
    _number: int
    _bucket: Bucket
    _manifest: ObjectLocation
    _files: ObjectLocation
    _stored: list[str] = field(default_factory=list)

    def prefix(self, key_groups: KeyGroupRange, _fingerprint: str) -> str:
        return range_prefix(key_groups)

    def complete(self, name: str) -> None:
        """Store a file, and remove the local one."""
        local, key = f"{self.directory}/{name}", self._files.below(name).key
        self._stored.append(key)

        def content() -> Iterator[bytes]:
            with storage_errors(f"reading {local}"), open(local, "rb") as file:
                yield from blocks(file.fileno())

        self._bucket.put(key, os.path.getsize(local), content)
        os.unlink(local)

    def path(self, name: str) -> str:
        return "/".join((*self._files.parts[-2:], name))

    def publish(self, manifest: bytes) -> None:
        mine, self._stored = self._stored, []  # if nobody knows whether the PUT was applied, the files stay
        if put_object_if_absent(self._bucket, self._manifest, manifest) != manifest:
            self._stored = mine
            raise taken(self._table, self._number)

    def drop(self) -> None:
        """Remove the files, unless they were published or may have been. What cannot be removed now is removed by the
        next :meth:`BucketPlace.tidy`."""
        if self._stored:
            with suppress(StatelibError):
                self._bucket.delete_all(self._stored)


def _unneeded(listing: Listing, needed: Sequence[int], files_of: FilesOf) -> list[str]:
    """Return the paths of the files of commits that exist which the ``needed`` commits do not name."""
    named = {path for number in needed for path in files_of(number)}
    return [path for path, number in _numbers(listing).items() if number <= listing.numbers[-1] and path not in named]


def _of_others(listing: Listing, files_of: FilesOf) -> list[str]:
    """Return the paths of the files of commits that exist which other publishers prepared. These are in directories of
    their own, so only manifests of commits with several directories are read."""
    numbers = _numbers(listing)
    directories = {(number, path.rpartition("/")[0]) for path, number in numbers.items()}
    counts = Counter(number for number, _ in directories)
    several = [number for number, count in counts.items() if count > 1 and number <= listing.numbers[-1]]
    unneeded = set(_unneeded(listing, several, files_of))
    return [path for path, number in numbers.items() if number in several and path in unneeded]


def _numbers(listing: Listing) -> dict[str, int]:
    """Return the number of its commit for each file."""
    return {path: int(match[1]) for path in listing.sizes if (match := _FILE.fullmatch(path))}
