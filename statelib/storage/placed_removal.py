"""Taking bytes away wherever they lie: each URI by the kind of storage that it names."""

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
    """A :class:`~statelib.storage.filesystem.removal.CheckpointRemover` of all kinds, of a deployment whose storage is
    below ``root``. Roots of another kind than a URI hold nothing of it."""

    root: str
    retries: Retries

    @property
    def files_at_once(self) -> int:
        return self._of(self.root).files_at_once

    def list_files(self, directory: str) -> list[StoredFile]:
        return self._of(directory).list_files(directory)

    def list_directories(self, directory: str) -> frozenset[str]:
        return self._of(directory).list_directories(directory)

    def now_ms(self, directory: str) -> int:
        return self._of(directory).now_ms(directory)

    def remove_file(self, uri: str, roots: Sequence[str]) -> bool:
        return self._of(uri).remove_file(uri, _of_same_kind(uri, roots))

    def remove_files(self, uris: Sequence[str], roots: Sequence[str]) -> None:
        for uri in uris:
            if not is_below(uri, roots):
                raise outside_root(uri, roots)
        for chosen in ([u for u in uris if is_object(u)], [u for u in uris if not is_object(u)]):
            if chosen:
                self._of(chosen[0]).remove_files(chosen, _of_same_kind(chosen[0], roots))

    def remove_directory(self, uri: str, roots: Sequence[str]) -> bool:
        return self._of(uri).remove_directory(uri, _of_same_kind(uri, roots))

    def _of(self, uri: str) -> CheckpointRemover:
        return ObjectRemover(self.retries) if is_object(uri) else FileSystemRemover()


def is_below(uri: str, roots: Sequence[str]) -> bool:
    """Whether a path or URI lies below one of the roots, and not just beside it or through ``..``."""
    return (is_object_below if is_object(uri) else is_file_below)(uri, _of_same_kind(uri, roots))


def parent_of(uri: str) -> str:
    """The URI of the directory that a normalised URI lies in."""
    parent = uri.rpartition("/")[0]
    return parent if is_object(uri) else to_uri(parent.removeprefix("file://") or "/")


def _of_same_kind(uri: str, roots: Sequence[str]) -> tuple[str, ...]:
    return tuple(root for root in roots if is_object(root) == is_object(uri))
