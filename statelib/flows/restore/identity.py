"""Find the catalog's row of a snapshot by the attempt in its manifest, whatever path led to the snapshot."""

from dataclasses import dataclass

from statelib.errors import StatelibError
from statelib.flows.wiring import Deployment
from statelib.model.checkpoint import CheckpointManifest
from statelib.model.ids import CheckpointId, PipelineName
from statelib.model.record import CheckpointRecord, CheckpointState
from statelib.savepoints.opened import Checkpoint
from statelib.savepoints.verification.snapshots import wrong_files
from statelib.storage.names import checkpoint_directory, savepoint_directory
from statelib.storage.registry import PLACES


def row_of(deployment: Deployment, pipeline: PipelineName, opened: Checkpoint) -> CheckpointRecord | None:
    """Return the catalog's row of a snapshot, that of ``pipeline`` if there are several. None if it has no row, or is a
    copy of a snapshot that has one.

    The row has the snapshot's attempt and the same directory, whatever link, mount or spelling led to it. A row of that
    directory with another attempt is of a snapshot that was there before. If the storage cannot compare the
    directories, the row is the snapshot's if its directory has the same ``_metadata`` and all files. A restore of
    either then gives the same state, and the row's files are those that the system manages."""
    manifest = opened.manifest
    if manifest is None:
        return None
    writer, place = manifest.pipeline, opened.directory.rstrip("/")
    named = [
        r
        for name in (pipeline, writer)
        for r in deployment.catalog().list(name)
        if r.directory.rstrip("/") == place and _describes(r, manifest)
    ]
    if named:
        # Of several rows, one that was deleted says nothing: the snapshot is still there for another one.
        return min(named, key=lambda r: r.state is not CheckpointState.COMPLETED)
    records = deployment.catalog().cleanup.of_attempt(manifest.attempt)
    first = (pipeline, writer)
    records.sort(key=lambda r: first.index(r.pipeline) if r.pipeline in first else len(first))
    return next((record for record in records if _is_row(deployment, record, opened)), None)


def _describes(record: CheckpointRecord, manifest: CheckpointManifest) -> bool:
    """Return whether the row of a directory is of the snapshot with this manifest. A row that was never registered may
    have the attempt of a later try, or none, so its pipeline and id decide."""
    if record.state in (CheckpointState.PENDING, CheckpointState.ABORTED):
        return (record.pipeline, record.checkpoint_id) == (manifest.pipeline, manifest.checkpoint_id)
    return record.attempt == manifest.attempt


def _is_row(deployment: Deployment, record: CheckpointRecord, opened: Checkpoint) -> bool:
    if record.state is CheckpointState.DELETED:
        return False
    same = PLACES.same_place(record.directory, opened.directory)
    return _is_whole(deployment, record, opened.metadata_bytes) if same is None else same


def _is_whole(deployment: Deployment, record: CheckpointRecord, metadata: bytes) -> bool:
    """Return whether the row's directory has this ``_metadata``, and every file that it lists with its size."""
    try:
        stored = deployment.open_at(record.directory)
        files = stored.manifest.files if stored.manifest else ()
        return stored.metadata_bytes == metadata and not wrong_files(stored, files, ())
    except StatelibError:
        return False


@dataclass(frozen=True)
class Twins:
    """The checkpoints of one pipeline that may be the same snapshot as another row, under another path.

    ``originals``: the checkpoints that were written in the directory of their row, by id, each with the other row.
    Nothing of them may be deleted as long as the other row exists. ``imported``: the ids of the others. Their rows may
    be deleted, their files stay."""

    originals: dict[CheckpointId, CheckpointRecord]
    imported: frozenset[CheckpointId]


def twins_of(deployment: Deployment, pipeline: PipelineName) -> Twins:
    """Return the twins among the pipeline's checkpoints: rows with the attempt of another row. Usually there are
    none."""
    records = deployment.catalog().cleanup.twins()
    others = [record for record in records if record.state is not CheckpointState.DELETING]
    originals, imported = {}, set()
    for record in (record for record in records if record.pipeline == pipeline):
        twin = next((other for other in others if _is_twin(record, other)), None)
        if twin is not None and _is_original(record):
            originals[record.checkpoint_id] = twin
        elif twin is not None:
            imported.add(record.checkpoint_id)
    return Twins(originals, frozenset(imported))


def _is_original(record: CheckpointRecord) -> bool:
    name = record.directory.rstrip("/").rpartition("/")[2]
    number = record.checkpoint_id
    return name in (checkpoint_directory(number), savepoint_directory(record.pipeline, number))


def _is_twin(record: CheckpointRecord, other: CheckpointRecord) -> bool:
    """Return whether two rows may be one snapshot under two paths. Rows with the same path are no twins: the references
    to their files protect them already."""
    if record.attempt != other.attempt or record.directory.rstrip("/") == other.directory.rstrip("/"):
        return False
    return PLACES.same_place(record.directory, other.directory) is not False
