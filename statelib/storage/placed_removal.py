"""Removing files from storages of all kinds. The scheme of each URI selects the kind."""

from collections.abc import Sequence
from dataclasses import dataclass

from statelib.storage.filesystem.inventory import StoredFile
from statelib.storage.filesystem.removal import CheckpointRemover, FileSystemRemover, outside_root
from statelib.storage.filesystem.removal import is_below as is_file_below
from statelib.storage.objects.removal import ObjectRemover, is_object_below
from statelib.storage.objects.uris import is_object
from statelib.storage.retries import Retries
from statelib.storage.uris import to_uri


@dataclass(frozen=True)
class PlacedRemover:
    """A :class:`~statelib.storage.filesystem.removal.CheckpointRemover` for all kinds of storage. ``root`` is the root
    of the deployment's storage. Of the roots of a call, only those of the same kind as the URI count."""

    root: str
    retries: Retries

    @property
    def files_at_once(self) -> int:
        return self._remover(self.root).files_at_once

    def list_files(self, directory: str) -> list[StoredFile]:
        return self._remover(directory).list_files(directory)

    def list_directories(self, directory: str) -> frozenset[str]:
        return self._remover(directory).list_directories(directory)

    def now_ms(self, directory: str) -> int:
        return self._remover(directory).now_ms(directory)

    def remove_file(self, uri: str, roots: Sequence[str]) -> bool:
        return self._remover(uri).remove_file(uri, _of_same_kind(uri, roots))

    def remove_files(self, uris: Sequence[str], roots: Sequence[str]) -> None:
        for uri in uris:
            if not is_below(uri, roots):
                raise outside_root(uri, roots)
        for same_kind in ([u for u in uris if is_object(u)], [u for u in uris if not is_object(u)]):
            if same_kind:
                self._remover(same_kind[0]).remove_files(same_kind, _of_same_kind(same_kind[0], roots))

    def remove_directory(self, uri: str, roots: Sequence[str]) -> bool:
        return self._remover(uri).remove_directory(uri, _of_same_kind(uri, roots))

    def _remover(self, uri: str) -> CheckpointRemover:
        return ObjectRemover(self.retries) if is_object(uri) else FileSystemRemover()


def is_below(uri: str, roots: Sequence[str]) -> bool:
    """Return whether a path or URI lies below one of the roots. A root itself and a path with ``..`` do not."""
    return (is_object_below if is_object(uri) else is_file_below)(uri, _of_same_kind(uri, roots))


def parent_of(uri: str) -> str:
    """Return the URI of the directory that holds the file of a normalised URI."""
    parent = uri.rpartition("/")[0]
    return parent if is_object(uri) else to_uri(parent.removeprefix("file://") or "/")


def _of_same_kind(uri: str, roots: Sequence[str]) -> tuple[str, ...]:
    return tuple(root for root in roots if is_object(root) == is_object(uri))
