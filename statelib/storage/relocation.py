"""Reading snapshots that were moved: replacing the absolute paths in their ``_metadata`` by the present paths.

``_metadata`` is read as if it had been written at the new place. So every reader finds the moved files without further
settings, and the roots of a reader are directories of the new place.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import TypeVar

from statelib.errors import InvalidRequestError
from statelib.model.checkpoint import CheckpointManifest, CheckpointMetadata
from statelib.model.handles import FileStateHandle, SegmentFileStateHandle
from statelib.storage.uris import is_absolute, local_path, relative_parts, shown

T = TypeVar("T")
Parts = tuple[str, ...]

_URI = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/]*)(.*)", re.DOTALL)


@dataclass(frozen=True)
class Relocation:
    """The moves of a snapshot's files. ``moves``: pairs of an old prefix, as components, and the directory or URI where
    its files lie now, the longest prefix first. The first prefix that matches a path counts.

    The old prefix may have any scheme, even one that no storage here supports."""

    moves: tuple[tuple[Parts, str], ...] = ()

    @property
    def roots(self) -> tuple[str, ...]:
        """The directories and URIs to which files were moved."""
        return tuple(new for _, new in self.moves)

    def path(self, path: str) -> str:
        """Return the present path of a file. A path without a matching prefix is returned unchanged.

        Raises InvalidRequestError (``outside-root``) for a path that leaves the prefix through ``..``."""
        parts = _path_parts(path)
        for old, new in self.moves:
            if parts[: len(old)] == old and len(parts) > len(old):
                return "/".join((new.rstrip("/"), *relative_parts("/".join(parts[len(old) :]))))
        return path

    def metadata(self, metadata: CheckpointMetadata) -> CheckpointMetadata:
        """Return a copy of the metadata in which every absolute path is the present path."""
        return self._moved(metadata) if self.moves else metadata

    def manifest(self, manifest: CheckpointManifest | None) -> CheckpointManifest | None:
        """Return a copy of the manifest in which every absolute path is the present path, so that its checksums match
        the moved files. None stays None."""
        if manifest is None or not self.moves:
            return manifest
        files = tuple(replace(f, path=self.path(f.path)) if is_absolute(f.path) else f for f in manifest.files)
        return replace(manifest, files=files, side_data=self._moved(manifest.side_data))

    def _moved(self, value: T) -> T:
        """Return a copy of a value in which the paths of all handles are the present paths."""
        if isinstance(value, FileStateHandle | SegmentFileStateHandle):
            return replace(value, path=self.path(value.path))
        if isinstance(value, int | str | bytes | None):
            return value
        if isinstance(value, tuple):
            return tuple(map(self._moved, value))  # type: ignore[return-value]
        if not is_dataclass(value) or isinstance(value, type):
            return value
        return replace(value, **{f.name: self._moved(getattr(value, f.name)) for f in fields(value) if f.init})


def relocation_of(moves: Mapping[str, str] | None) -> Relocation:
    """Return the relocation of ``moves``: old prefix -> directory or URI where its files lie now. A slash at the end
    of a prefix makes no difference.

    Raises InvalidRequestError (``bad-relocation``) unless both are absolute directories or URIs."""
    prefixes = []
    for old, new in (moves or {}).items():
        parts = _path_parts(old)
        if parts in ((), ("file:",)) or not is_absolute(new):
            raise InvalidRequestError(
                f"relocation of {shown(old)} to {shown(new)}: expected two absolute directories or URIs",
                kind="bad-relocation",
                hint="--relocate OLD_PREFIX=NEW_PREFIX, such as file:///flink-data/checkpoints=/mnt/copy",
            )
        prefixes.append((parts, new))
    return Relocation(tuple(sorted(prefixes, key=lambda move: len(move[0]), reverse=True)))


def _path_parts(path: str) -> Parts:
    """Return (scheme and host, component, component ...) of an absolute path or URI, an empty tuple for any other text.
    Equal places have equal parts: those of ``file:/a``, ``file:///a`` and ``/a`` are the same.

    Raises InvalidRequestError (``outside-root``) for a component ``..``."""
    uri = _URI.fullmatch(path)
    if uri is None or uri[1].lower() == "file":
        if path.startswith("/") or path[:5].lower() == "file:":
            return ("file:", *_components(local_path(path)))
        return ()
    parts = _components(uri[3])
    if parts:
        relative_parts("/".join(parts))
    return (f"{uri[1].lower()}://{uri[2]}", *parts)


def _components(path: str) -> Parts:
    return tuple(part for part in path.split("/") if part not in ("", "."))
