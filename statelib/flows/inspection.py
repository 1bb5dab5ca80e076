"""Look at what is there: list, show, inspect, verify, export. Changes nothing."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from statelib.errors import InvalidRequestError, StatelibError
from statelib.flows.facts import read_statistics
from statelib.flows.opened import Checkpoint, open_checkpoint
from statelib.flows.wiring import Deployment
from statelib.formats.typed_json import entry_lines
from statelib.model.ids import CheckpointId, PipelineName
from statelib.model.record import CheckpointRecord, CheckpointState
from statelib.storage.inventory import verify_files


@dataclass(frozen=True)
class Verification:
    """What :func:`verify` found of one snapshot; no problems = whole."""

    directory: str
    files: int
    size_bytes: int
    entries: int
    problems: tuple[str, ...]


def resolve(deployment: Deployment, text: str) -> Checkpoint:
    """A snapshot by ``<pipeline>/<id>``, or by the path of its directory or ``_metadata`` file."""
    pipeline, _, number = text.rpartition("/")
    if number.isdecimal() and pipeline and "/" not in pipeline:
        record = deployment.catalog().get(PipelineName(pipeline), CheckpointId(int(number)))
        return open_checkpoint(record.directory, own=True)
    if number.isdecimal() and not pipeline:
        raise InvalidRequestError(
            f"checkpoint {text!r}: ids count per pipeline", kind="ambiguous-id", hint=f"write <pipeline>/{text}"
        )
    return open_checkpoint(text)


def lineage_of_head(deployment: Deployment, pipeline: PipelineName) -> tuple[CheckpointId, ...]:
    """The checkpoints that the pipeline's present state was built through, newest first."""
    catalog = deployment.catalog()
    head = catalog.head(pipeline)
    return tuple(r.checkpoint_id for r in catalog.lineage(pipeline, head.head)) if head.head is not None else ()


def completed(deployment: Deployment, pipeline: PipelineName | None) -> list[CheckpointRecord]:
    return [r for r in deployment.catalog().list(pipeline) if r.state is CheckpointState.COMPLETED]


def verify(opened: Checkpoint, *, read_data: bool = True, scratch: str | None = None) -> Verification:
    """Check that every file is there with its size; with ``read_data`` also every checksum, and
    every entry's count and digest, key group by key group."""
    files = opened.manifest.files if opened.manifest else ()
    findings = verify_files(opened.directory, files, read_data=read_data)
    problems = [
        f"{f.path} (key groups {f.key_group_range}): {f.problem}, "
        f"expected {f.expected_size} bytes, found {f.actual_size}"
        for f in findings
        if f.problem
    ]
    entries = sum(s.total_entries for s in opened.manifest.statistics) if opened.manifest else 0
    if read_data and not problems:
        read, entries = _read_back(opened, scratch)
        problems += read
    size = opened.metadata_size_bytes + sum(f.size_bytes for f in files)
    return Verification(opened.directory, len(files) + 1, size, entries, tuple(problems))


def _read_back(opened: Checkpoint, scratch: str | None) -> tuple[list[str], int]:
    try:
        found = read_statistics(opened, scratch)
    except StatelibError as error:
        return [str(error)], 0
    total = sum(s.total_entries for s in found)
    recorded = opened.manifest.statistics if opened.manifest else found
    problems = [
        f"state {descriptor.name}: entries or digests differ from the manifest "
        f"({expected.total_entries} entries recorded, {actual.total_entries} found)"
        for descriptor, expected, actual in zip(opened.schema().states, recorded, found, strict=True)
        if not expected.same_content(actual)
    ]
    return problems, total


def export_lines(opened: Checkpoint, state: str | None, scratch: str | None = None) -> Iterator[str]:
    """Every entry as a typed JSON line."""
    schema = opened.schema()
    operator = opened.keyed_operator()
    name = operator.uid or (opened.manifest.pipeline if opened.manifest else operator.operator_id.hex())
    for state_name, table in opened.tables(state, scratch):
        yield from entry_lines(name, schema, schema.state(state_name), table)


def export_parquet(opened: Checkpoint, state: str | None, target: Path, scratch: str | None = None) -> list[Path]:
    """One Parquet file a state, ``<target>/<state>.parquet``; refuses to overwrite one."""
    schema = opened.schema()
    names = [s.name for s in schema.states if state in (None, s.name)]
    paths = {name: target / f"{name}.parquet" for name in names}
    for path in paths.values():
        if path.exists():
            raise InvalidRequestError(f"{path} exists already", kind="target-exists", hint="choose an empty directory")
    target.mkdir(parents=True, exist_ok=True)
    for name, path in paths.items():
        _write(path, opened.to_arrow(name, scratch))
    return list(paths.values())


def _write(path: Path, table: pa.Table) -> None:
    pq.write_table(table, path, compression="zstd")
