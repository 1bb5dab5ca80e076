"""Snapshots that were moved: what their ``_metadata`` calls a path, and where that is now.

``_metadata`` is read as if it had been written at the new place. So every way of reading knows the moved files
without another path, and the roots that a reader keeps to are those of the new place.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import TypeVar

from statelib.errors import InvalidRequestError
from statelib.model.checkpoint import CheckpointManifest, CheckpointMetadata
from statelib.model.handles import FileStateHandle, SegmentFileStateHandle
from statelib.storage.uris import local_path, relative_parts, shown

T = TypeVar("T")
Parts = tuple[str, ...]

_URI = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/]*)(.*)", re.DOTALL)


@dataclass(frozen=True)
class Relocation:
    """``moves``: prefix as written -> where what was below it lies now. The longest prefix of a path counts.

    The old prefix is text: any scheme will do, also one that nothing here could open."""

    moves: tuple[tuple[Parts, str], ...] = ()

    @property
    def roots(self) -> tuple[str, ...]:
        """The places that files were moved to."""
        return tuple(new for _, new in self.moves)

    def path(self, path: str) -> str:
        """Where a file is now; the same where no prefix is of it.

        Raises InvalidRequestError (``outside-root``) for a path that leaves the prefix by ``..``."""
        parts = _path_parts(path)
        for old, new in self.moves:
            if parts[: len(old)] == old and len(parts) > len(old):
                return "/".join((new.rstrip("/"), *relative_parts("/".join(parts[len(old) :]))))
        return path

    def metadata(self, metadata: CheckpointMetadata) -> CheckpointMetadata:
        """The same with every absolute path as it is now."""
        return self._moved(metadata) if self.moves else metadata

    def manifest(self, manifest: CheckpointManifest | None) -> CheckpointManifest | None:
        """Likewise, so that the checksums go with the paths; None stays None."""
        if manifest is None or not self.moves:
            return manifest
        files = tuple(replace(f, path=self.path(f.path)) if _is_absolute(f.path) else f for f in manifest.files)
        return replace(manifest, files=files)

    def _moved(self, value: T) -> T:
        """A copy of handles, of whatever kind."""
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
    """Of prefixes as written, with or without a slash at the end, and where they are now.

    Raises InvalidRequestError (``bad-relocation``) for what is no prefix."""
    found = []
    for old, new in (moves or {}).items():
        parts = _path_parts(old)
        if parts in ((), ("file:",)) or not _is_absolute(new):
            raise InvalidRequestError(
                f"relocation of {shown(old)} to {shown(new)}: expected two absolute directories or URIs",
                kind="bad-relocation",
                hint="--relocate OLD_PREFIX=NEW_PREFIX, such as file:///flink-data/checkpoints=/mnt/copy",
            )
        found.append((parts, new))
    return Relocation(tuple(sorted(found, key=lambda move: len(move[0]), reverse=True)))


def _path_parts(path: str) -> Parts:
    """(scheme and host, component, component ...); equal places have equal parts, however they are written:
    ``file:/a``, ``file:///a`` and ``/a`` are one.

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


def _is_absolute(path: str) -> bool:
    return path.startswith(("/", "file:")) or "://" in path
