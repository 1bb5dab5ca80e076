"""The verification of a snapshot: its files exist, and their bytes and entries are those that were written."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from statelib.errors import CorruptStateError, NotFoundError, UnsupportedError
from statelib.model.amounts import number_of
from statelib.model.checkpoint import FileRecord
from statelib.model.types import StateType
from statelib.savepoints.opened import Checkpoint, open_checkpoint
from statelib.savepoints.operator_content import unreadable
from statelib.savepoints.verification.foreign_files import check_files
from statelib.savepoints.verification.sampling import Sample
from statelib.savepoints.verification.stored_content import read_settled
from statelib.storage.ports.inventory import FileFinding
from statelib.storage.registry import PLACES
from statelib.storage.uris import is_absolute


@dataclass(frozen=True)
class Verification:
    """The result of verifying one snapshot. The snapshot is complete and undamaged if there are no ``problems``.

    ``files`` and ``size_bytes`` include ``_metadata``. ``entries`` and ``keys``: the numbers of entries and of distinct
    keys; None if they are neither recorded nor counted. ``files_read``: the number of files that were read to the last
    byte, including ``_metadata``. ``unread``: one message per operator of a Flink job whose entries cannot be read,
    although all of its files exist."""

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
    """Open the snapshot at ``directory`` and verify it with ``verified``; by default, with :func:`verify`.

    A damaged ``_metadata`` is reported as a problem, not raised. ``own``: whether statelib wrote the snapshot; a
    missing ``_metadata`` is then a problem too. ``storage_root``, ``relocate`` and ``key_type``: as for
    :func:`open_checkpoint`.

    Raises NotFoundError (``no-metadata``) without ``own``, InvalidRequestError (``bad-relocation``)."""
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
    """Verify a snapshot: every file exists with its recorded size. With ``read_data``, every file also has its recorded
    checksum, and the entries of each key group have their recorded count and digest.

    A snapshot that Flink wrote has neither checksums nor counts. Every file that a handle names must exist with its
    size; with ``read_data``, every file must also be readable to its last entry.

    ``scratch``: the directory for temporary copies. Problems are returned, not raised."""
    if opened.manifest is None:
        return _verify_foreign(opened, read_data, scratch)
    files = opened.manifest.files
    problems = wrong_files(opened, files, files if read_data else ())
    entries, keys = opened.manifest.entries, opened.manifest.total_keys
    if read_data and not problems:
        read = [_read_back(part, scratch) for part in opened.each_operator()]
        problems += [problem for operator_problems, _, _ in read for problem in operator_problems]
        problems += unreadable(opened)
        if not opened.manifest.deltas:
            entries = sum(total for _, total, _ in read)
        keys = _sum([total for _, _, total in read])
    size = opened.metadata_size_bytes + sum(f.size_bytes for f in files)
    read_files = len(files) if read_data else 0
    return Verification(opened.directory, len(files) + 1, size, entries, tuple(problems), read_files + 1, keys=keys)


def _verify_foreign(opened: Checkpoint, read_data: bool, scratch: str | None) -> Verification:
    """Return the verification of a snapshot without a manifest."""
    files = check_files(opened, read_data=read_data)
    problems, unread, entries, keys = list(files.problems), [], None, None
    if read_data and not problems:
        totals: list[int] = []
        counted: list[int | None] = []
        for part in opened.each_operator():
            try:
                operator_problems, total, distinct = _read_back(part, scratch)
            except UnsupportedError as error:
                unread.append(error.message)
                continue
            problems += operator_problems
            totals.append(total)
            counted.append(distinct)
        problems += unreadable(opened)
        entries, keys = sum(totals), _sum(counted)
    size, read_files = opened.metadata_size_bytes + files.size_bytes, files.count if read_data else 0
    return Verification(
        opened.directory, files.count + 1, size, entries, tuple(problems), read_files + 1, tuple(unread), keys
    )


def _sum(numbers: Sequence[int | None]) -> int | None:
    """Return the sum, None if a number is unknown."""
    return None if None in numbers else sum(number for number in numbers if number is not None)


def verify_sample(opened: Checkpoint, chosen: Sample, seen: set[str]) -> Verification:
    """Verify that every file exists with its size, and that the files in ``chosen`` have their checksums.

    ``seen``: the URIs of files of snapshots that were verified before; their checksums are not verified again. The
    URIs of this snapshot's files are added to it, so that a file that many snapshots share is read once."""
    verification = verify(opened, read_data=False)
    new = [file for uri, file in unseen(opened, seen).items() if uri in chosen]
    problems = [problem for problem in wrong_files(opened, new, new) if problem not in verification.problems]
    return replace(verification, problems=(*verification.problems, *problems), files_read=len(new) + 1)


def unseen(opened: Checkpoint, seen: set[str]) -> dict[str, FileRecord]:
    """Return the files in the manifest whose URI is not in ``seen``, by URI, and add these URIs to ``seen``."""
    files = opened.manifest.files if opened.manifest else ()
    by_uri = {PLACES.file_uri(opened.directory, file.path): file for file in files}
    new = {uri: file for uri, file in by_uri.items() if uri not in seen}
    seen.update(new)
    return new


def wrong_files(opened: Checkpoint, files: Sequence[FileRecord], read: Collection[FileRecord]) -> list[str]:
    """Return one message per problem of ``files``: each file must exist with its size, and each file that is also in
    ``read`` must have its checksum."""
    kind, read_files = PLACES.kind(opened.directory), set(read)
    findings: list[FileFinding] = []
    for with_data in (True, False):
        part = [file for file in files if (file in read_files) is with_data]
        findings += kind.verify_files(opened.directory, part, with_data, opened.allowed_root)
    return [_problem_of(opened.directory, finding) for finding in findings if finding.problem]


def _wrong_content(finding: FileFinding) -> str:
    """Return the expected and the actual hash of a file whose content is not the recorded one."""
    if finding.actual_crc == finding.expected_crc:
        return f"expected xxh3 {finding.expected_xxh3 or 0:016x}, found {finding.actual_xxh3 or 0:016x}"
    return f"expected crc32c {finding.expected_crc:08x}, found {finding.actual_crc or 0:08x}"


def _problem_of(directory: str, finding: FileFinding) -> str:
    """Return the message about a file that is missing or has another size or content than recorded."""
    wrong = {
        "missing": f"expected {number_of(finding.expected_size, 'byte')}, found no file",
        "size": f"expected {number_of(finding.expected_size, 'byte')}, found {finding.actual_size}",
        "checksum": _wrong_content(finding),
    }
    place = finding.path if is_absolute(finding.path) else f"{_shown(directory)}/{finding.path}"
    return f"{place} (key groups {finding.key_group_range}): {wrong[finding.problem]}"


def _shown(directory: str) -> str:
    return PLACES.kind(directory).shown(directory)


def _read_back(opened: Checkpoint, scratch: str | None) -> tuple[list[str], int, int | None]:
    """Read all entries of the selected operator; return (problems, number of entries, number of distinct keys, None if
    only a user's code can tell keys apart)."""
    try:
        content = read_settled(opened, scratch)
    except (CorruptStateError, NotFoundError) as error:
        return [error.message], 0, 0
    counted = content.statistics
    recorded = opened.manifest.statistics if opened.manifest else counted
    problems = [
        f"{_shown(opened.directory)}: state {descriptor.name}: expected"
        f" {number_of(expected.total_entries, 'entry')} and "
        f"their digests as in the manifest, found {number_of(actual.total_entries, 'entry')}"
        for descriptor, expected, actual in zip(opened.schema().states, recorded, counted, strict=True)
        if not expected.same_content(actual)
    ]
    recorded_keys = opened.manifest.keys if opened.manifest else None
    if recorded_keys is not None and content.keys is not None and not recorded_keys.same(content.keys):
        problems.append(
            f"{_shown(opened.directory)}: expected {number_of(recorded_keys.total, 'distinct key')}, key group"
            " by key group as in"
            f" the manifest, found {content.keys.total}"
        )
    keys = None if content.keys is None else content.keys.total
    return problems, sum(s.total_entries for s in counted), keys
