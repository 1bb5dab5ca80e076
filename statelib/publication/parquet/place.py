"""The port of the place of a Parquet table: listing its files, preparing a commit out of sight, and making it visible.

``<table>/commit-00000001/_manifest.json`` is the manifest of a commit. A place chooses the paths of all other files, so
readers take them from the manifest.
"""

from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import BinaryIO, Protocol

from statelib.model.key_groups import KeyGroupRange

FilesOf = Callable[[int], Collection[str]]
"""A function that returns the paths that the manifest of a commit names."""


@dataclass(frozen=True)
class Listing:
    """The files of a table at one moment. ``numbers``: the numbers of its commits in ascending order. ``sizes``: the
    size in bytes of each file by its path, which is relative to the table."""

    numbers: tuple[int, ...]
    sizes: Mapping[str, int]


class Prepared(Protocol):
    """The files of a commit that readers do not see yet."""

    @property
    def directory(self) -> str:
        """The local directory in which the caller makes the files."""
        ...

    def prefix(self, key_groups: KeyGroupRange, fingerprint: str) -> str:
        """Return the beginning of the names of the files with the rows of a range of key groups."""
        ...

    def complete(self, name: str) -> None:
        """Take a complete file of the directory. It need not stay there."""
        ...

    def path(self, name: str) -> str:
        """Return the path, relative to the table, of a file of the directory in the commit."""
        ...


class PreparedCommit(Prepared, Protocol):
    """A prepared commit that a manifest makes visible."""

    def publish(self, manifest: bytes) -> None:
        """Make the commit visible, durably. Raises ConflictError (``commit-taken``)."""
        ...


class ParquetPlace(Protocol):
    """The place of one table. Methods raise RetryableError if the storage is in trouble."""

    def listing(self) -> Listing:
        """Return the files of the table. Names that begin with a dot or an underscore are ignored, as readers of
        Parquet do.

        Raises InvalidRequestError (``foreign-target``) if there is any other file that no publisher wrote."""
        ...

    def read_manifest(self, number: int) -> bytes:
        """Return the manifest of a commit. Raises NotFoundError (``missing-file``)."""
        ...

    def opened(self, path: str) -> AbstractContextManager[BinaryIO]:
        """Return a context manager of a file that is open for reading. ``path``: relative to the table."""
        ...

    def preparing(self, number: int) -> AbstractContextManager[PreparedCommit]:
        """Return a context manager of a commit that is being prepared. After the block nothing of it is left, unless it
        was published.

        The block raises ConflictError (``commit-taken``) if it fails because another publisher, which was first, has
        removed what was prepared."""
        ...

    def tidy(self, retain: int | None, files_of: FilesOf) -> None:
        """Remove what publishers that were killed or overtaken prepared for commits that exist by now, and what only
        commits before the last ``retain`` ones need; None: all commits are needed."""
        ...


def range_prefix(key_groups: KeyGroupRange) -> str:
    """Return the beginning of the names of Parquet files with the rows of a range of key groups."""
    return f"{key_groups.start:05}-"


def commit_name(number: int) -> str:
    """Return the name of a commit's directory."""
    return f"commit-{number:08}"
