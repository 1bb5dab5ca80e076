"""The port of removal: what retention, gc and the orphan sweep need from a storage. Only files below given roots are
removed.

Removing a file that is gone already succeeds, so that every removal may be repeated after a crash.
"""

from collections.abc import Sequence
from typing import Protocol

from statelib.errors import InvalidRequestError
from statelib.storage.ports.inventory import StoredFile
from statelib.storage.uris import shown


class CheckpointRemover(Protocol):
    """The operations that retention, gc and the orphan sweep need from a storage.

    ``roots`` are absolute URIs. A method that removes raises InvalidRequestError (``outside-root``), before anything
    is removed, for a path that lies below none of them."""

    @property
    def files_at_once(self) -> int:
        """The best number of files for one call of :meth:`remove_files`. It is larger than one where one request
        removes many files."""
        ...

    def list_files(self, directory: str) -> list[StoredFile]:
        """Return all files below a directory, an empty list if there is no such directory."""
        ...

    def list_directories(self, directory: str) -> frozenset[str]:
        """Return the URIs of the directories directly in a directory, an empty set if there is no such directory."""
        ...

    def now_ms(self, directory: str) -> int:
        """Return the time of the storage's own clock in epoch milliseconds. It is the modification time of a probe
        file, which is written in ``directory`` and removed again."""
        ...

    def remove_file(self, uri: str, roots: Sequence[str]) -> bool:
        """Remove a file durably. Return False if it was gone already."""
        ...

    def remove_files(self, uris: Sequence[str], roots: Sequence[str]) -> None:
        """Remove files durably. Files that are gone already are ignored. If this raises, some or all of the files may
        be removed."""
        ...

    def remove_directory(self, uri: str, roots: Sequence[str]) -> bool:
        """Remove an empty directory durably. Return False if it was gone already or is not empty. A root itself is
        refused."""
        ...


def outside_root(uri: str, roots: Sequence[str]) -> InvalidRequestError:
    """Return the error of removing a path that lies below none of the roots."""
    return InvalidRequestError(
        f"removing {shown(uri)}: expected a path below {' or '.join(map(shown, roots)) or 'a root'}",
        kind="outside-root",
        hint="nothing outside the checkpoint storage is ever deleted",
    )
