"""Fork a pipeline: a new pipeline begins with the state of another pipeline's checkpoint, with or without a copy.

The fork gets a first checkpoint of its own. Without a copy, the handles in its ``_metadata`` name the other pipeline's
files, and rows of the catalog refer to them, so that gc keeps them as long as the fork needs them, even if the source
is deleted. With a copy, the fork has its own files and does not depend on its source. A pin protects the source until
the rows are written. After a crash, a pending checkpoint is left, as after any begin.
"""

from statelib.catalog.catalog import Catalog
from statelib.crash_points import crash_point
from statelib.definition.pipeline import Pipeline
from statelib.errors import ConflictError, CorruptStateError, InvalidRequestError, StatelibError
from statelib.flows.restore.continuation import as_own
from statelib.flows.restore.holding import HOLD_MS
from statelib.flows.restore.layout import lay_out
from statelib.flows.restore.quarantine import check_not_quarantined
from statelib.flows.restore.steps import check_state
from statelib.flows.savepoint.copied_files import copied_files
from statelib.flows.savepoint.forked_metadata import forked, origins_of
from statelib.flows.wiring import Deployment
from statelib.formats.manifest.trailer import append_manifest
from statelib.formats.metadata.metadata_file import encode_metadata
from statelib.model.checkpoint import (
    DataInterval,
    SnapshotKind,
)
from statelib.model.ids import CheckpointId, PipelineName
from statelib.model.record import BeginRequest, CheckpointRecord, CheckpointState
from statelib.savepoints.commit_facts import commit_facts
from statelib.savepoints.emitted_outputs import without_outputs
from statelib.savepoints.opened import Checkpoint
from statelib.savepoints.own_directories import origin_directories
from statelib.savepoints.verification.snapshots import verify
from statelib.storage.ports.views import StorageReference
from statelib.storage.registry import PLACES, new_attempt


def fork(
    deployment: Deployment,
    pipeline: Pipeline,
    source: CheckpointRecord,
    owner: str,
    *,
    read_data: bool = True,
    copy: bool = False,
) -> CheckpointRecord:
    """Give ``pipeline``, which has no history yet, the state of a COMPLETED checkpoint of another pipeline. Return its
    first checkpoint, from which its next run continues.

    ``read_data``: prove the state by reading all of it. ``copy``: copy the files of the source instead of referring to
    them. Raises InvalidRequestError (``not-completed``, ``same-pipeline``, ``nothing-to-fork``, ``outside-root``, and
    as a restore for schema and backend), ConflictError (``has-history``, ``head-moved``, ``fenced``), UnsupportedError
    (``foreign-snapshot``), CorruptStateError (``damaged-snapshot``).
    """
    catalog, name = deployment.catalog(), pipeline.name
    head = catalog.head(name)
    interval, opened = _check(deployment, pipeline, source, copy)
    holder = f"fork:{name}"
    catalog.cleanup.pin(source.pipeline, source.checkpoint_id, holder, HOLD_MS)
    try:
        request = BeginRequest(
            pipeline=name,
            kind=SnapshotKind.CHECKPOINT,
            interval=interval,
            strategy=source.strategy,
            parallelism=opened.keyed_operator().parallelism,
            owner=owner,
            key=f"{holder}:{source.pipeline}/{source.checkpoint_id}",
            note=f"fork of {source.pipeline}/{source.checkpoint_id}",
            decided_at=head,
        )
        storage = deployment.storage(pipeline)
        record = catalog.begin(request, lambda number: storage.initialize_location(number).directory)
        _check_new(name, record.checkpoint_id if record.state is CheckpointState.COMPLETED else None)
        try:
            return _complete(deployment, pipeline, opened, record, read_data=read_data, copy=copy)
        except StatelibError as error:
            catalog.abort(name, record.checkpoint_id, error.message)
            raise
    finally:
        catalog.cleanup.unpin(source.pipeline, holder)


def _check(
    deployment: Deployment, pipeline: Pipeline, source: CheckpointRecord, copy: bool
) -> tuple[DataInterval, Checkpoint]:
    name, source_name = pipeline.name, f"{source.pipeline}/{source.checkpoint_id}"
    if name == source.pipeline:
        raise InvalidRequestError(
            f"{source_name} belongs to {name} itself: expected a checkpoint of another pipeline",
            kind="same-pipeline",
            hint="statelib restore",
        )
    _check_new(name, deployment.catalog().head(name).head)
    check_not_quarantined(source)
    if source.state is not CheckpointState.COMPLETED:
        raise InvalidRequestError(
            f"{source_name} is {source.state}: only a COMPLETED checkpoint can be forked", kind="not-completed"
        )
    opened = deployment.open(source)
    opened = without_outputs(as_own(pipeline, opened))
    check_state(pipeline, opened)
    lay_out(opened, pipeline.parallelism, pipeline)
    if not copy:
        _check_files(deployment, opened)
    position = opened.position()
    if position is None or position.interval is None:
        raise InvalidRequestError(f"{source_name} contains no interval yet", kind="nothing-to-fork")
    return position.interval, opened


def _check_files(deployment: Deployment, source: Checkpoint) -> None:
    """Raise InvalidRequestError (``outside-root``) if a file of the source is outside the storage: gc could not protect
    it."""
    assert source.manifest is not None
    allowed = origin_directories(deployment.root_uri(), origins_of(source.manifest))
    uris = [PLACES.file_uri(source.directory, f.path) for f in source.manifest.files]
    elsewhere = [uri for uri in uris if not PLACES.is_below(uri, allowed)]
    if elsewhere:
        raise InvalidRequestError(
            f"{source.directory} has files outside the checkpoint storage, such as {elsewhere[0]}: "
            "a fork could lose them",
            kind="outside-root",
            hint="copy its files with --copy, or fork a checkpoint, or a savepoint in the storage's directory",
        )


def _check_new(name: PipelineName, head: CheckpointId | None) -> None:
    if head is not None:
        raise ConflictError(
            f"pipeline {name} has a history already, its newest checkpoint is {name}/{head}: expected a new pipeline",
            kind="has-history",
            hint="give the fork a pipeline file with a name of its own",
        )


def _complete(
    deployment: Deployment,
    pipeline: Pipeline,
    source: Checkpoint,
    record: CheckpointRecord,
    *,
    read_data: bool,
    copy: bool,
) -> CheckpointRecord:
    catalog: Catalog = deployment.catalog()
    attempt = new_attempt()
    catalog.record_attempt(record.pipeline, record.checkpoint_id, attempt)
    copies = copied_files(deployment, pipeline, source, record, attempt) if copy else None
    metadata, manifest = forked(source, record, attempt, copies)
    data = append_manifest(encode_metadata(metadata), manifest)
    published = deployment.storage(pipeline).publish_metadata(StorageReference(record.directory), data)
    crash_point("fork: published")
    opened = deployment.open(record)
    problems = verify(opened, read_data=read_data, scratch=deployment.scratch()).problems
    if problems or published != data:
        reason = problems[0] if problems else "another attempt published first"
        raise CorruptStateError(
            f"fork {record.pipeline}/{record.checkpoint_id} of {source.directory}: {reason}", kind="damaged-snapshot"
        )
    return catalog.commit(record.pipeline, record.checkpoint_id, record.epoch, commit_facts(opened, ""))
