"""The index of a directory of local copies: the remote file, the size and the checksum of each copy."""

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from statelib.storage.filesystem.descriptors import opened_directory, opened_file, read_up_to
from statelib.storage.local.file_identity import FileIdentity

INDEX_NAME = "index.json"

_VERSION = 2
_MAX_BYTES = 64 << 20
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


@dataclass(frozen=True)
class LocalCopy:
    """The name of a copy in its directory, and the size and CRC-32C of the remote file. ``identity``: a file with this
    identity was proved to hold the remote file's bytes; None if the copy must be read to prove that."""

    name: str
    size_bytes: int
    crc32c: int
    identity: FileIdentity | None = None


def write_index(directory: Path, copies: Mapping[str, LocalCopy]) -> None:
    """Write the index of a directory. ``copies``: key of the remote file or segment -> its copy. Raises OSError."""
    files = [{"path": path, **_fields(copy)} for path, copy in copies.items()]
    with open(directory / INDEX_NAME, "x", encoding="utf-8") as file:
        file.write(json.dumps({"version": _VERSION, "files": files}))


def read_index(directory: Path) -> dict[str, LocalCopy]:
    """Return the copies in the index of a directory, the inverse of :func:`write_index`. Raises OSError, and ValueError
    if the file is not a valid index."""
    with opened_directory(str(directory)) as parent, opened_file(parent, INDEX_NAME) as file:
        size = os.fstat(file).st_size
        if size > _MAX_BYTES:
            raise ValueError(f"an index of {size} bytes")
        content = json.loads(bytes(read_up_to(file, size)))
    if not isinstance(content, dict) or content.get("version") != _VERSION:
        raise ValueError(f"expected an index of version {_VERSION}")
    files = content.get("files")
    if not isinstance(files, list):
        raise ValueError("expected a list of files")
    return dict(map(_entry, files))


def _fields(copy: LocalCopy) -> dict[str, object]:
    identity = copy.identity
    fields = None if identity is None else {"inode": identity.inode, "modified_ns": identity.modified_ns}
    return {"name": copy.name, "size_bytes": copy.size_bytes, "crc32c": copy.crc32c, "identity": fields}


def _entry(entry: object) -> tuple[str, LocalCopy]:
    match entry:
        case {"path": str(path), "name": str(name), "size_bytes": int(size), "crc32c": int(crc), "identity": proof} if (
            _NAME.fullmatch(name) and name != INDEX_NAME
        ):
            return path, LocalCopy(name, size, crc, _identity(proof, size))
        case _:
            raise ValueError("expected path, name, size_bytes, crc32c and identity")


def _identity(entry: object, size_bytes: int) -> FileIdentity | None:
    match entry:
        case None:
            return None
        case {"inode": int(inode), "modified_ns": int(modified_ns)}:
            return FileIdentity(inode, size_bytes, modified_ns)
        case _:
            raise ValueError("expected inode and modified_ns of an identity")
