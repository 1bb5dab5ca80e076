"""State that belongs to a task, not to a checkpoint: written, duplicated and removed by tasks only (R89 to R93).

It lies in ``<pipeline>/taskowned/``, which retention, gc and the orphan sweep leave alone. Files there never
change and each has its own blocks or object, so a duplicate and its original live and die apart.
"""

import re

from statelib.errors import InvalidRequestError, UnsupportedError
from statelib.model.handles import ByteStreamStateHandle, FileStateHandle, StreamStateHandle
from statelib.storage.uris import shown

_NAME = re.compile(r"[0-9a-f]{32}-\d+-\d+")


def duplicable(handle: StreamStateHandle, possible: bool) -> FileStateHandle:
    """The handle, if its storage can; UnsupportedError (``no-fast-duplicate``) otherwise."""
    if possible and isinstance(handle, FileStateHandle):
        return handle
    what = f"inline state {shown(handle.name)}" if isinstance(handle, ByteStreamStateHandle) else shown(handle.path)
    raise UnsupportedError(
        f"{what} cannot be duplicated within the storage",
        kind="no-fast-duplicate",
        hint="ask can_fast_duplicate first, and read and write the bytes where it says no",
    )


def own_name(handle: StreamStateHandle, directory: str) -> str:
    """The name of a task-owned file; InvalidRequestError (``foreign-file``) for any other."""
    path = handle.path if isinstance(handle, FileStateHandle) else ""
    where, _, name = path.rpartition("/")
    if where != directory or not _NAME.fullmatch(name):
        raise InvalidRequestError(
            f"discarding {shown(path)}: expected a file that a task owns, in {directory}", kind="foreign-file"
        )
    return name
