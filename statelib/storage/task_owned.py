"""Task-owned state is written by a task and outlives the checkpoint for which it is written (R89 to R93).

It lies in ``<pipeline>/taskowned/``. A task keeps a file by naming it in its next snapshot. gc removes files that no
checkpoint names any more, because a restore to an earlier checkpoint needs the files of that one. The files never
change, and each has its own blocks or its own object, so a duplicate does not depend on its original.
"""

import re

from statelib.errors import InvalidRequestError, UnsupportedError
from statelib.model.handles import ByteStreamStateHandle, FileStateHandle, StreamStateHandle
from statelib.storage.uris import shown

_NAME = re.compile(r"[0-9a-f]{32}-\d+-\d+")


def duplicable(handle: StreamStateHandle, possible: bool) -> FileStateHandle:
    """Return the handle if its file can be duplicated within the storage. ``possible`` is what ``can_fast_duplicate``
    returned for it.

    Raises UnsupportedError (``no-fast-duplicate``) otherwise."""
    if possible and isinstance(handle, FileStateHandle):
        return handle
    source = f"inline state {shown(handle.name)}" if isinstance(handle, ByteStreamStateHandle) else shown(handle.path)
    raise UnsupportedError(
        f"{source} cannot be duplicated within the storage",
        kind="no-fast-duplicate",
        hint="ask can_fast_duplicate first, and read and write the bytes where it says no",
    )


def own_name(handle: StreamStateHandle, directory: str) -> str:
    """Return the name of a handle's file, if it is task-owned state in ``directory``, a normalised URI.

    Raises InvalidRequestError (``foreign-file``) for any other handle."""
    path = handle.path if isinstance(handle, FileStateHandle) else ""
    parent, _, name = path.rpartition("/")
    if parent != directory or not _NAME.fullmatch(name):
        raise InvalidRequestError(
            f"discarding {shown(path)}: expected a file that a task owns, in {directory}", kind="foreign-file"
        )
    return name
