"""The index of a directory of local copies: which remote file each one is, and what its bytes must be."""

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from statelib.storage.descriptors import opened_directory, opened_file, read_up_to

INDEX_NAME = "index.json"

_VERSION = 1
_MAX_BYTES = 64 << 20
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


@dataclass(frozen=True)
class LocalCopy:
    """A file's ``name`` in the directory, its size and crc32c as of the remote file."""

    name: str
    size_bytes: int
    crc32c: int


def write_index(directory: Path, copies: Mapping[str, LocalCopy]) -> None:
    """``copies``: key of the remote file or segment -> the copy. Raises OSError."""
    files = [{"path": p, "name": c.name, "size_bytes": c.size_bytes, "crc32c": c.crc32c} for p, c in copies.items()]
    with open(directory / INDEX_NAME, "x", encoding="utf-8") as file:
        json.dump({"version": _VERSION, "files": files}, file)


def read_index(directory: Path) -> dict[str, LocalCopy]:
    """Inverse of :func:`write_index`. Raises OSError; ValueError for anything but an index."""
    with opened_directory(str(directory)) as parent, opened_file(parent, INDEX_NAME) as file:
        size = os.fstat(file).st_size
        if size > _MAX_BYTES:
            raise ValueError(f"an index of {size} bytes")
        content = json.loads(bytes(read_up_to(file, size)))
    if not isinstance(content, dict) or content.get("version") != _VERSION:
        raise ValueError("expected an index of version 1")
    files = content.get("files")
    if not isinstance(files, list):
        raise ValueError("expected a list of files")
    return dict(map(_entry, files))


def _entry(entry: object) -> tuple[str, LocalCopy]:
    match entry:
        case {"path": str(path), "name": str(name), "size_bytes": int(size), "crc32c": int(crc)} if (
            _NAME.fullmatch(name) and name != INDEX_NAME
        ):
            return path, LocalCopy(name, size, crc)
        case _:
            raise ValueError("expected path, name, size_bytes and crc32c")
