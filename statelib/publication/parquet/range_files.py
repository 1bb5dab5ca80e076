"""The files of a table, each with the rows of a range of key groups. A commit writes those that have changed."""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace

import pyarrow as pa

from statelib.model.key_groups import KeyGroupRange, subtask_ranges
from statelib.publication.parquet.files import PartWriter, part_writer
from statelib.publication.parquet.manifest import TableFile
from statelib.publication.parquet.place import Prepared
from statelib.publication.target import Content, FeedContent, Write

FILE_BYTES = 64 << 20
"""The stored bytes of state for which a table has one file."""


def write_changed_files(
    prepared: Prepared, content: FeedContent, schema: pa.Schema, previous: Sequence[TableFile]
) -> list[TableFile]:
    """Write the rows of the key groups that have changed, and return all files of the table. ``previous``: the files of
    the previous commit."""
    assert isinstance(content, Content), "only a feed has no state"
    if any(file.key_groups is None for file in previous):
        previous = ()  # a file that maintenance made of others may hold rows of any range
    unchanged = {
        key_groups: _unchanged(previous, key_groups, content.fingerprint(key_groups))
        for key_groups in _ranges(content, previous)
    }
    changed = [key_groups for key_groups, files in unchanged.items() if not files]
    files = [file for unchanged_files in unchanged.values() for file in unchanged_files]
    with ExitStack() as resources:
        writers: list[PartWriter] = []

        def writer_of(index: int) -> Write:
            if index == len(writers):
                if writers:
                    writers[-1].finish()
                prefix = prepared.prefix(changed[index], content.fingerprint(changed[index]))
                writer = part_writer(prepared.directory, prefix, schema, prepared.complete)
                writers.append(resources.enter_context(writer))
            return writers[index].write

        content.write_rows(changed, writer_of)
        for key_groups, writer in zip(changed, writers, strict=True):
            bounds, fingerprint = (key_groups.start, key_groups.end), content.fingerprint(key_groups)
            parts = files_of(prepared, writer)
            files += [replace(file, key_groups=bounds, fingerprint=fingerprint) for file in parts]
    return sorted(files, key=lambda file: (file.key_groups or (0, 0), file.path))


def files_of(prepared: Prepared, writer: PartWriter) -> list[TableFile]:
    """Complete the files of a writer, and return them."""
    return [TableFile(prepared.path(part.name), part.rows, part.size_bytes) for part in writer.finish()]


def _ranges(content: Content, previous: Sequence[TableFile]) -> Sequence[KeyGroupRange]:
    """Return the ranges of key groups that have files of their own: those of the previous commit, unless the state has
    outgrown them, or a range has no file, because it had no rows."""
    whole = content.key_groups
    wanted = min(max(-(-content.size_bytes // FILE_BYTES), 1), len(whole))
    before = [KeyGroupRange(*bounds) for bounds in sorted({file.key_groups for file in previous if file.key_groups})]
    if [group for key_groups in before for group in key_groups] == list(whole) and wanted <= 2 * len(before):
        return before
    return subtask_ranges(wanted, len(whole))


def _unchanged(previous: Sequence[TableFile], key_groups: KeyGroupRange, fingerprint: str) -> list[TableFile]:
    """Return the files of the previous commit that hold the same rows of the key groups; none if there are none."""
    wanted = ((key_groups.start, key_groups.end), fingerprint)
    return [file for file in previous if fingerprint and (file.key_groups, file.fingerprint) == wanted]
