"""The lineage of a checkpoint: the datasets that it was made of and the dataset that it is, named as OpenLineage
does."""

from dataclasses import dataclass
from urllib.parse import urlsplit

from statelib.definition.pipeline import Pipeline
from statelib.definition.source.parts import SourcePart, source_parts
from statelib.flows.wiring import Deployment
from statelib.model.checkpoint import CheckpointManifest, DataInterval, SnapshotKind
from statelib.model.moments import moment_of
from statelib.model.record import CheckpointRecord
from statelib.model.types import Row, StateType
from statelib.telemetry.logs import hidden


@dataclass(frozen=True)
class LineageField:
    """A field of a dataset: a column, or a state with the fields of its rows. ``about``: a description."""

    name: str
    type: str
    about: str = ""
    fields: tuple["LineageField", ...] = ()


@dataclass(frozen=True)
class LineageDataset:
    """A dataset: an input or the output of a checkpoint. None means that a number is not known.

    ``version``: the checkpoint's id, '' for data without versions. ``rows``: the number of distinct keys.
    ``rows_by_field``: the number of entries per state. ``touched``: the number of events that were read from it, or of
    keys that were changed in it."""

    namespace: str
    name: str
    fields: tuple[LineageField, ...] = ()
    version: str = ""
    rows: int | None = None
    size_bytes: int | None = None
    files: int | None = None
    rows_by_field: tuple[tuple[str, int], ...] = ()
    touched: int | None = None
    written_bytes: int | None = None
    updated_at: str = ""


@dataclass(frozen=True)
class Lineage:
    """The input and output datasets of a checkpoint."""

    inputs: tuple[LineageDataset, ...]
    outputs: tuple[LineageDataset, ...]


def lineage_of(deployment: Deployment, pipeline: Pipeline, record: CheckpointRecord) -> Lineage:
    """Return the lineage of a registered checkpoint: its inputs are the source of its interval and the state of its
    base, its output is the new state. A savepoint has the state as its only input, and a dataset of its own as output.

    Raises as :meth:`Deployment.open`."""
    manifest = deployment.open(record).manifest
    interval = record.mends or record.interval
    inputs = [] if interval is None else _sources(deployment, pipeline, record, interval)
    if record.base is not None:
        inputs.append(LineageDataset(*state_name(pipeline.name), version=str(record.base)))
    return Lineage(tuple(inputs), (_state(pipeline, record, manifest),))


def state_name(pipeline: str) -> tuple[str, str]:
    """Return the namespace and the name of a pipeline's state. Joined, they are the URI of the DAG's asset."""
    return f"statelib://{pipeline}", "state"


def _sources(
    deployment: Deployment, pipeline: Pipeline, record: CheckpointRecord, interval: DataInterval
) -> list[LineageDataset]:
    """Return one dataset per place of the interval's events. The number of events is known if there is only one."""
    parts = source_parts(pipeline, deployment.data, interval)
    read = record.events.read if record.events and len(parts) == 1 else None
    return [LineageDataset(*_input_name(part), fields=_columns(part), touched=read) for part in parts]


def _columns(part: SourcePart) -> tuple[LineageField, ...]:
    return tuple(LineageField(name, type_) for name, type_ in part.source.types().items())


def _input_name(part: SourcePart) -> tuple[str, str]:
    """Return the namespace and the name of what one part of an interval reads: a path, a table, or the URL of a
    database and the table or query in it."""
    if part.path is not None:
        return dataset_name(part.path)
    if part.table is not None:
        return "spark", part.table
    options = {name.lower(): text for name, text in part.options}
    url = options.get("url", part.source.file_format)
    return hidden(url), options.get("dbtable", options.get("query", part.source.file_format))


def dataset_name(path: str) -> tuple[str, str]:
    """Return the namespace and the name of a path or URI by OpenLineage's rules: ``file`` and the absolute path, or
    ``s3://bucket`` and the key. Passwords are hidden."""
    parts = urlsplit(hidden(path))
    if parts.scheme in ("", "file"):
        return "file", parts.path
    scheme = "s3" if parts.scheme in ("s3a", "s3n") else parts.scheme
    return f"{scheme}://{parts.netloc}", parts.path.lstrip("/") or "/"


def _state(pipeline: Pipeline, record: CheckpointRecord, manifest: CheckpointManifest | None) -> LineageDataset:
    schema, cost = pipeline.schema(), record.measured
    key = LineageField("key", str(schema.key_type), f"key: {', '.join(pipeline.key)}")
    states = [LineageField(d.name, str(d.value_type), f"{d.kind} state", _fields(d.value_type)) for d in schema.states]
    done_ms = record.completed_at_ms
    own_place = record.kind is SnapshotKind.SAVEPOINT
    return LineageDataset(
        *(dataset_name(record.directory) if own_place else state_name(pipeline.name)),
        fields=(key, *states),
        version=str(record.checkpoint_id),
        rows=record.keys,
        size_bytes=record.size_bytes,
        files=None if manifest is None else len(manifest.files),
        rows_by_field=() if manifest is None else manifest.entries_by_state(),
        touched=cost.keys_changed if cost else None,
        written_bytes=cost.uploaded_bytes if cost else None,
        updated_at="" if done_ms is None else moment_of(done_ms).isoformat(),
    )


def _fields(value_type: StateType) -> tuple[LineageField, ...]:
    if not isinstance(value_type, Row):
        return ()
    return tuple(LineageField(f.name, str(f.type), fields=_fields(f.type)) for f in value_type.fields)
