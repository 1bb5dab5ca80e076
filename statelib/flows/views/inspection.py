"""Look at what is there: list, show, inspect, verify, export. Changes nothing."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow.parquet as pq

from statelib.errors import CorruptStateError, InvalidRequestError, NotFoundError, UnsupportedError
from statelib.flows.wiring import Deployment
from statelib.formats.text import natural_json, typed_json
from statelib.model.amounts import number_of
from statelib.model.checkpoint import FileRecord
from statelib.model.ids import CheckpointId, PipelineName, pipeline_name
from statelib.model.record import CheckpointRecord, CheckpointState, why
from statelib.model.state import KeyedStateSchema, StateDescriptor
from statelib.model.types import StateType
from statelib.savepoints.foreign_files import check_files
from statelib.savepoints.opened import Checkpoint, located, open_checkpoint
from statelib.savepoints.operator_content import OperatorLines, export_operator_lines, unreadable
from statelib.savepoints.sampling import Sample
from statelib.savepoints.stored_content import read_content
from statelib.savepoints.tables.parquet_tables import storable
from statelib.serializers.jumps import holds_opaque
from statelib.serializers.rows import StateRows
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


def resolve(deployment: Deployment, text: str) -> Checkpoint:
    """A snapshot by ``<pipeline>/<id>``, or by the path of its directory or ``_metadata`` file.

    Raises as :func:`parse_checkpoint`, :func:`stored_record` and :func:`open_checkpoint` do."""
    if not is_id(text):
        return open_checkpoint(text, storage_root=deployment.storage_root)
    return open_checkpoint(stored_record(deployment, text).directory, own=True, storage_root=deployment.storage_root)


def stored_record(deployment: Deployment, text: str) -> CheckpointRecord:
    """The record of ``<pipeline>/<id>``; InvalidRequestError (``not-completed``) unless it is complete, or is kept for
    inspection."""
    record = deployment.catalog().get(*parse_checkpoint(text))
    if record.state not in (CheckpointState.COMPLETED, CheckpointState.QUARANTINED):
        reason = f": {why(record)}" if record.reason else ""
        raise InvalidRequestError(
            f"checkpoint {text} is {record.state.lower()}{reason}",
            kind="not-completed",
            hint="statelib checkpoints list shows those that are complete",
        )
    return record


def is_id(text: str) -> bool:
    """Whether the text is meant as ``<pipeline>/<id>``; what begins like a path or a URI is not."""
    return not text.startswith(("/", ".")) and ":" not in text


def parse_checkpoint(text: str) -> tuple[PipelineName, CheckpointId]:
    """``<pipeline>/<id>``; InvalidRequestError (``ambiguous-id``, ``bad-checkpoint``, ``bad-name``)."""
    pipeline, _, number = text.rpartition("/")
    if text.isdecimal():
        raise InvalidRequestError(
            f"checkpoint {text!r}: ids count per pipeline", kind="ambiguous-id", hint=f"write <pipeline>/{text}"
        )
    if not (number.isascii() and number.isdecimal() and 0 < int(number[:20]) < 1 << 63) or not pipeline:
        raise InvalidRequestError(
            f"checkpoint {text!r}: expected <pipeline>/<id>, such as aircraft_activity/4, or an absolute path",
            kind="bad-checkpoint",
            hint="statelib checkpoints list shows the ids",
        )
    return pipeline_name(pipeline), CheckpointId(int(number))


def check_pipeline(deployment: Deployment, name: str) -> PipelineName:
    """The name, once it is sure that there are checkpoints or a file of that pipeline.

    Raises NotFoundError (``no-pipeline``)."""
    known = set(deployment.catalog().pipelines())
    if name not in known:
        known |= {PipelineName(p.name) for p in deployment.pipelines()}
    if name not in known:
        raise NotFoundError(
            f"pipeline {name!r} is neither in the catalog nor in {deployment.pipelines_directory}: "
            f"known are {', '.join(sorted(known)) or 'none'}",
            kind="no-pipeline",
        )
    return PipelineName(name)


def lineage_of_head(deployment: Deployment, pipeline: PipelineName) -> tuple[CheckpointId, ...]:
    """The checkpoints that the pipeline's present state was built through, newest first."""
    catalog = deployment.catalog()
    head = catalog.head(pipeline)
    return tuple(r.checkpoint_id for r in catalog.lineage(pipeline, head.head)) if head.head is not None else ()


def completed(deployment: Deployment, pipeline: PipelineName | None) -> list[CheckpointRecord]:
    return [r for r in deployment.catalog().list(pipeline) if r.state is CheckpointState.COMPLETED]


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


@dataclass(frozen=True)
class LineFormat:
    """How entries of keyed state, and parts of operator state, become lines."""

    entries: Callable[[str, KeyedStateSchema, StateDescriptor, StateRows], Iterator[str]]
    operator: OperatorLines


TYPED = LineFormat(typed_json.entry_lines, typed_json.operator_lines)
LINE_FORMATS = {"typed-jsonl": TYPED, "jsonl": LineFormat(natural_json.entry_lines, natural_json.operator_lines)}


Skip = Callable[[str], None]
"""The receiver of why something cannot be written as text."""


def export_all_lines(
    opened: Checkpoint,
    state: str | None,
    scratch: str | None = None,
    form: LineFormat = TYPED,
    skip: Skip | None = None,
) -> Iterator[str]:
    """As :func:`export_lines`, then the elements of operator state. ``skip``: go on past state that cannot be written
    as text, and say here which and why; without it, UnsupportedError is raised."""
    operator_states = {
        s[0] for o in opened.operators for _, held in o.subtasks if held.operator for s in held.operator.states
    }
    if state not in operator_states:
        yield from export_lines(opened, state, scratch, form, skip)
    yield from export_operator_lines(opened, state, form.operator, skip)


def export_lines(
    opened: Checkpoint,
    state: str | None,
    scratch: str | None = None,
    form: LineFormat = TYPED,
    skip: Skip | None = None,
) -> Iterator[str]:
    """Every entry as a line of JSON, of every operator with keyed state unless one is selected.

    Raises InvalidRequestError (``unknown-state``), and UnsupportedError for types that are not known, before the
    first line, unless there is a ``skip`` as of :func:`export_all_lines`."""
    parts = [part for part in opened.each_operator() if opened.selected in (None, part.selected)]
    schemas = [(part, part.schema()) for part in parts if _is_readable(part, skip)]
    if state is not None:
        schemas = _with_state(schemas, state)
    for part, schema in schemas:
        for name in _passes(schema, state, skip):
            with _skipping(skip):
                yield from _lines_of(part, schema, name, scratch, form)


def _lines_of(
    part: Checkpoint, schema: KeyedStateSchema, state: str | None, scratch: str | None, form: LineFormat
) -> Iterator[str]:
    name = part.operator_name(part.keyed_operator())
    for descriptor, rows in part.entries(state, scratch):
        with located(f"{part.directory}: state {descriptor.name}"):
            yield from form.entries(name, schema, descriptor, rows)


def _is_readable(part: Checkpoint, skip: Skip | None) -> bool:
    with _skipping(skip):
        part.schema()
        return True
    return False


def _passes(schema: KeyedStateSchema, state: str | None, skip: Skip | None) -> Sequence[str | None]:
    """The states to be read in one pass each, None = all in one. Values that only a user's class can read may keep
    the others of a stream from being read: then each state is read for itself."""
    types = [t for s in schema.states for t in (s.value_type, s.user_key_type, s.namespace_type) if t is not None]
    apart = skip is not None and state is None and any(map(holds_opaque, (schema.key_type, *types)))
    return [s.name for s in schema.states] if apart else [state]


@contextmanager
def _skipping(skip: Skip | None) -> Iterator[None]:
    try:
        yield
    except UnsupportedError as error:
        if skip is None:
            raise
        skip(error.message)


def _with_state(
    schemas: list[tuple[Checkpoint, KeyedStateSchema]], state: str
) -> list[tuple[Checkpoint, KeyedStateSchema]]:
    found = [(part, schema) for part, schema in schemas if state in {s.name for s in schema.states}]
    if not found:
        known = sorted({s.name for _, schema in schemas for s in schema.states})
        raise InvalidRequestError(
            f"state {state!r} is not in the snapshot: known states are {', '.join(known) or 'none'}",
            kind="unknown-state",
        )
    return found


def export_parquet(opened: Checkpoint, state: str | None, target: Path, scratch: str | None = None) -> list[Path]:
    """One Parquet file a state, ``<target>/<state>.parquet``, of the operator with keyed state.

    Raises InvalidRequestError (``target-exists``, ``bad-target``, ``unknown-state``): refuses to overwrite a file.
    """
    schema = opened.schema()
    wanted = schema.states if state is None else (schema.state(state),)
    paths = {descriptor.name: target / file_name(descriptor.name) for descriptor in wanted}
    for path in paths.values():
        if path.exists():
            raise InvalidRequestError(f"{path} exists already", kind="target-exists", hint="choose an empty directory")
    with writing(target):
        target.mkdir(parents=True, exist_ok=True)
    for name, path in paths.items():
        table = storable(opened.to_arrow(name, scratch))
        with writing(path), path.open("xb") as file:
            pq.write_table(table, file, compression="zstd")
    return list(paths.values())


def file_name(state: str) -> str:
    """Flink allows any text as a name of a state; a file gets one that stays in its directory."""
    return state.replace("%", "%25").replace("/", "%2F").replace("\0", "%00") + ".parquet"


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turns what the operating system says of a user's output into InvalidRequestError (``bad-target``,
    ``target-exists``)."""
    try:
        yield
    except FileExistsError as error:
        raise InvalidRequestError(f"{path} exists already", kind="target-exists", hint="choose another") from error
    except OSError as error:
        raise InvalidRequestError(f"writing {path}: {error.strerror or error}", kind="bad-target") from error
