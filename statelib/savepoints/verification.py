"""Prove that a snapshot is whole: its files are there, and their bytes and entries are what was written."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from statelib.errors import CorruptStateError, NotFoundError, UnsupportedError
from statelib.model.amounts import number_of
from statelib.model.checkpoint import FileRecord
from statelib.model.types import StateType
from statelib.savepoints.foreign_files import check_files
from statelib.savepoints.opened import Checkpoint, open_checkpoint
from statelib.savepoints.operator_content import unreadable
from statelib.savepoints.sampling import Sample
from statelib.savepoints.stored_content import read_content
from statelib.storage.filesystem.inventory import FileFinding
from statelib.storage.places import is_absolute
from statelib.storage.registry import PLACES


@dataclass(frozen=True)
class Verification:
    """What :func:`verify` found of one snapshot; no problems = whole. ``entries`` and ``keys``, distinct ones, are None
    where nothing tells. ``files_read``: of how many files every byte was read, ``_metadata`` among them. ``unread``:
    why the entries of an operator of Flink's cannot be read, although all of its files are there."""

    directory: str
    files: int
    size_bytes: int
    entries: int | None
    problems: tuple[str, ...]
    files_read: int = 0
    unread: tuple[str, ...] = ()
    keys: int | None = None


def verify_at(
    directory: str,
    *,
    own: bool,
    read_data: bool = True,
    scratch: str | None = None,
    storage_root: str | None = None,
    relocate: Mapping[str, str] | None = None,
    key_type: StateType | None = None,
    verified: Callable[[Checkpoint], Verification] | None = None,
) -> Verification:
    """As :func:`verify`, or as ``verified`` does it, of a snapshot that is still to be opened: a damaged ``_metadata``
    is the problem found, and so is a missing one where statelib is known to have written it (``own``)."""
    try:
        opened = open_checkpoint(directory, own=own, storage_root=storage_root, relocate=relocate, key_type=key_type)
    except CorruptStateError as error:
        return Verification(directory, 0, 0, 0, (error.message,), keys=0)
    except NotFoundError as error:
        if not own:
            raise
        return Verification(directory, 0, 0, 0, (error.message,), keys=0)
    return verified(opened) if verified else verify(opened, read_data=read_data, scratch=scratch)


def verify(opened: Checkpoint, *, read_data: bool = True, scratch: str | None = None) -> Verification:
    """Check that every file is there with its size; with ``read_data`` also every checksum, and
    every entry's count and digest, key group by key group.

    A snapshot of Flink's own has neither checksums nor counts: there every file that a handle of any operator names
    has to be there with its size; with ``read_data`` it has to be readable too, to its last entry."""
    if opened.manifest is None:
        return _verify_foreign(opened, read_data, scratch)
    files = opened.manifest.files
    problems = wrong_files(opened, files, files if read_data else ())
    entries, keys = opened.manifest.entries, opened.manifest.total_keys
    if read_data and not problems:
        read = [_read_back(part, scratch) for part in opened.each_operator()]
        problems += [problem for found, _, _ in read for problem in found]
        problems += unreadable(opened)
        entries, keys = sum(total for _, total, _ in read), sum(total for _, _, total in read)
    size = opened.metadata_size_bytes + sum(f.size_bytes for f in files)
    read_files = len(files) if read_data else 0
    return Verification(opened.directory, len(files) + 1, size, entries, tuple(problems), read_files + 1, keys=keys)


def _verify_foreign(opened: Checkpoint, read_data: bool, scratch: str | None) -> Verification:
    files = check_files(opened, read_data=read_data)
    problems, unread, entries, keys = list(files.problems), [], None, None
    if read_data and not problems:
        totals, counted = [], []
        for part in opened.each_operator():
            try:
                found, total, distinct = _read_back(part, scratch)
            except UnsupportedError as error:
                unread.append(error.message)
                continue
            problems += found
            totals.append(total)
            counted.append(distinct)
        problems += unreadable(opened)
        entries, keys = sum(totals), sum(counted)
    size, read_files = opened.metadata_size_bytes + files.size_bytes, files.count if read_data else 0
    return Verification(
        opened.directory, files.count + 1, size, entries, tuple(problems), read_files + 1, tuple(unread), keys
    )


def verify_sample(opened: Checkpoint, chosen: Sample, seen: set[str]) -> Verification:
    """Check that every file is there with its size, and the checksums of those that are ``chosen`` and not ``seen``,
    to which all are added: a file that many snapshots share is read once."""
    found = verify(opened, read_data=False)
    new = [file for uri, file in unseen(opened, seen).items() if uri in chosen]
    problems = [problem for problem in wrong_files(opened, new, new) if problem not in found.problems]
    return replace(found, problems=(*found.problems, *problems), files_read=len(new) + 1)


def unseen(opened: Checkpoint, seen: set[str]) -> dict[str, FileRecord]:
    """By URI, its files that are not ``seen``, which they are added to."""
    files = opened.manifest.files if opened.manifest else ()
    new = {PLACES.file_uri(opened.directory, file.path): file for file in files}
    fresh = {uri: file for uri, file in new.items() if uri not in seen}
    seen.update(fresh)
    return fresh


def wrong_files(opened: Checkpoint, files: Sequence[FileRecord], read: Collection[FileRecord]) -> list[str]:
    """What is wrong with ``files``, those to ``read`` among them: each has to be there with its size, and these with
    their checksums."""
    kind, picked = PLACES.kind(opened.directory), set(read)
    findings: list[FileFinding] = []
    for with_data in (True, False):
        part = [file for file in files if (file in picked) is with_data]
        findings += kind.verify_files(opened.directory, part, with_data, opened.allowed_root)
    return [_problem_of(opened.directory, finding) for finding in findings if finding.problem]


def _wrong_content(finding: FileFinding) -> str:
    if finding.actual_crc == finding.expected_crc:
        return f"expected xxh3 {finding.expected_xxh3 or 0:016x}, found {finding.actual_xxh3 or 0:016x}"
    return f"expected crc32c {finding.expected_crc:08x}, found {finding.actual_crc or 0:08x}"


def _problem_of(directory: str, finding: FileFinding) -> str:
    """One line about a file that is not what it should be."""
    wrong = {
        "missing": f"expected {number_of(finding.expected_size, 'byte')}, found no file",
        "size": f"expected {number_of(finding.expected_size, 'byte')}, found {finding.actual_size}",
        "checksum": _wrong_content(finding),
    }
    place = finding.path if is_absolute(finding.path) else f"{_shown(directory)}/{finding.path}"
    return f"{place} (key groups {finding.key_group_range}): {wrong[finding.problem]}"


def _shown(directory: str) -> str:
    return PLACES.kind(directory).shown(directory)


def _read_back(opened: Checkpoint, scratch: str | None) -> tuple[list[str], int, int]:
    """What is wrong, and how many entries and distinct keys there are."""
    try:
        content = read_content(opened, scratch)
    except (CorruptStateError, NotFoundError) as error:
        return [error.message], 0, 0
    found = content.statistics
    recorded = opened.manifest.statistics if opened.manifest else found
    problems = [
        f"{_shown(opened.directory)}: state {descriptor.name}: expected"
        f" {number_of(expected.total_entries, 'entry')} and "
        f"their digests as in the manifest, found {number_of(actual.total_entries, 'entry')}"
        for descriptor, expected, actual in zip(opened.schema().states, recorded, found, strict=True)
        if not expected.same_content(actual)
    ]
    recorded_keys = opened.manifest.keys if opened.manifest else None
    if recorded_keys is not None and not recorded_keys.same(content.keys):
        problems.append(
            f"{_shown(opened.directory)}: expected {number_of(recorded_keys.total, 'distinct key')}, key group"
            " by key group as in"
            f" the manifest, found {content.keys.total}"
        )
    return problems, sum(s.total_entries for s in found), content.keys.total
