"""Read the pages of a quality report, only from the directory that the catalog recorded."""

import os
from pathlib import PurePosixPath

from statelib.catalog.views.browsing import Entry
from statelib.errors import InvalidRequestError, NotFoundError
from statelib.storage.filesystem.descriptors import opened_directory, opened_file, read_up_to
from statelib.storage.filesystem.failures import storage_errors
from statelib.storage.uris import local_path, relative_parts

FRONT = "index.html"
MAX_PAGE_BYTES = 32 * 1024 * 1024


def report_page(entry: Entry, path: str) -> bytes:
    """Return one file of a checkpoint's report. ``path``: '' for its front page. No symbolic link below the report's
    directory is followed.

    Raises NotFoundError (``no-report``, ``missing-file``), InvalidRequestError (``outside-root``, ``bad-path``,
    ``too-large``), CorruptStateError (``not-a-regular-file``), UnsupportedError (``unknown-scheme``)."""
    front = PurePosixPath(local_path(entry.report)) if entry.report else PurePosixPath("/")
    if front.name != FRONT or front.parent == front.parent.parent:
        raise NotFoundError(f"checkpoint {entry.pipeline}/{entry.checkpoint_id} has no report", kind="no-report")
    what = f"report of {entry.pipeline}/{entry.checkpoint_id}"
    return page_below(str(front.parent), path or FRONT, what)


def page_below(root: str, path: str, what: str) -> bytes:
    """Return the file at ``path``, which must be below ``root``. Raises as :func:`report_page`."""
    parts = relative_parts(path)
    with (
        storage_errors(f"{what}: reading {path}"),
        opened_directory(root, parts[:-1]) as directory,
        opened_file(directory, parts[-1]) as file,
    ):
        size = os.fstat(file).st_size
        if size > MAX_PAGE_BYTES:
            raise InvalidRequestError(f"{path}: {size} bytes are too many for a page", kind="too-large")
        return bytes(read_up_to(file, size))
