"""Copying whole files within one file system. The kernel copies them, so their bytes do not pass through this process.

A copy is a new file and no hard link, because the files of a savepoint belong to its user. The user may change their
content, owner or mode, which all hard links of a file share.
"""

import os
from collections.abc import Callable

from statelib.errors import StatelibError
from statelib.model.handles import FileStateHandle, RelativeFileStateHandle, StreamStateHandle, whole_file
from statelib.storage.filesystem.data_files import DataFile
from statelib.storage.filesystem.descriptors import opened_directory, opened_file
from statelib.storage.filesystem.failures import storage_errors
from statelib.storage.filesystem.reader import check_size
from statelib.storage.uris import local_path, shown


def on_file_system_of(handle: StreamStateHandle, directory: str) -> FileStateHandle | None:
    """Return the handle if it stands for a whole file on the same file system as ``directory``, a path. Otherwise
    return None."""
    file = whole_file(handle)
    if file is None:
        return None
    try:
        same = os.stat(os.path.dirname(local_path(file.path))).st_dev == os.stat(directory).st_dev
    except (OSError, StatelibError):
        return None
    return file if same else None


def copied_file(
    original: FileStateHandle, new_file: Callable[[], DataFile]
) -> FileStateHandle | RelativeFileStateHandle:
    """Copy a file into the file that ``new_file`` creates, and return the handle of the copy, which is durable. Nothing
    is left of a copy that fails.

    Raises NotFoundError (``missing-file``), CorruptStateError (``size-mismatch``, ``not-a-regular-file``),
    RetryableError (``storage-io``)."""
    directory, _, name = local_path(original.path).rpartition("/")
    with (
        storage_errors(f"duplicating {shown(original.path)}"),
        opened_directory(directory or "/") as parent,
        opened_file(parent, name) as source,
    ):
        check_size(original.path, original.size_bytes, os.fstat(source).st_size)
        target = new_file()
        try:
            check_size(original.path, original.size_bytes, target.copy_from(source, original.size_bytes))
            return target.finish()
        except BaseException:
            target.drop()
            raise
