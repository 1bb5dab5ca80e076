"""The check of the files of a snapshot that Flink wrote: every file that a handle names must exist with its size.

Flink records no checksums. Whether an existing file of the right size is damaged can therefore only be seen by reading
it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from statelib.errors import CorruptStateError, NotFoundError
from statelib.model.checkpoint import FileRecord
from statelib.model.handles import (
    ByteStreamStateHandle,
    ChangeFileStateHandle,
    FilePart,
    SegmentFileStateHandle,
    StreamStateHandle,
)
from statelib.model.key_groups import KeyGroupRange
from statelib.restore.changelog.change_log import check_log_file
from statelib.restore.stored.proof import prove
from statelib.savepoints.opened import Checkpoint
from statelib.storage.ports.inventory import FileFinding
from statelib.storage.ports.views import StateReader
from statelib.storage.registry import PLACES

_NO_KEY_GROUPS = KeyGroupRange(0, -1)


@dataclass(frozen=True)
class ForeignFiles:
    """The result of the check: the number of distinct files that handles name, the total bytes of this snapshot in
    them, and one message per problem."""

    count: int
    size_bytes: int
    problems: tuple[str, ...]


def check_files(opened: Checkpoint, *, read_data: bool) -> ForeignFiles:
    """Check that every file exists with its size. With ``read_data``, also read the files without managed keyed state;
    the files with managed keyed state are proved where their entries are read.

    Raises InvalidRequestError (``outside-root``) before anything is read."""
    streams, reader = opened.streams(), opened.reader()
    parts = [stream for stream in streams if not isinstance(stream, ByteStreamStateHandle)]
    plain = [part for part in parts if not isinstance(part, SegmentFileStateHandle | ChangeFileStateHandle)]
    problems = _wrong_sizes(opened, plain)
    problems += _failures(_reach_problem(reader, part) for part in parts if part not in set(plain))
    if read_data and not problems:
        problems += _failures(_read_problem(reader, stream) for stream in opened.state_streams(keyed=False))
    paths = {part.path for part in parts}
    return ForeignFiles(len(paths), sum(part.size_bytes for part in parts), tuple(problems))


def _wrong_sizes(opened: Checkpoint, parts: Sequence[FilePart]) -> list[str]:
    records = [FileRecord(part.path, part.size_bytes, 0, 0, _NO_KEY_GROUPS) for part in parts]
    kind = PLACES.kind(opened.directory)
    findings = kind.verify_files(opened.directory, records, read_data=False, allowed_root=opened.allowed_root)
    return [_problem(opened, finding) for finding in findings if finding.problem]


def _problem(opened: Checkpoint, finding: FileFinding) -> str:
    actual = "no file" if finding.problem == "missing" else f"{finding.actual_size}"
    place = PLACES.file_uri(opened.directory, finding.path)
    shown = PLACES.kind(place).shown(place)
    return f"{shown}: expected {finding.expected_size} bytes, found {actual}"


def _reach_problem(reader: StateReader, part: FilePart) -> str:
    """Return what is wrong with a segment of a shared file or with a file of a change log; '' if nothing is. The sizes
    of these files are not recorded, so the last byte of a segment and the whole file of a change log are read."""
    try:
        if isinstance(part, ChangeFileStateHandle):
            check_log_file(reader, part)
        elif part.size_bytes:
            reader.read_range(part, part.size_bytes - 1, part.size_bytes)
        else:
            reader.locate(part)
    except (CorruptStateError, NotFoundError) as error:
        return error.message
    return ""


def _read_problem(reader: StateReader, stream: StreamStateHandle) -> str:
    """Return why the stream cannot be read to its end; '' if it can."""
    try:
        prove(reader, [stream])
    except (CorruptStateError, NotFoundError) as error:
        return error.message
    return ""


def _failures(messages: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(filter(None, messages)))
