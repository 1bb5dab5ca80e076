"""Which of the catalog's checkpoints a snapshot is: told by what it says it is, not by the path that led to it."""

from dataclasses import dataclass

from statelib.errors import StatelibError
from statelib.flows.wiring import Deployment
from statelib.model.ids import CheckpointId, PipelineName
from statelib.model.record import CheckpointRecord, CheckpointState
from statelib.savepoints.opened import Checkpoint, open_checkpoint
from statelib.savepoints.verification import wrong_files
from statelib.storage.names import checkpoint_directory, savepoint_directory
from statelib.storage.registry import PLACES


def row_of(deployment: Deployment, pipeline: PipelineName, opened: Checkpoint) -> CheckpointRecord | None:
    """The catalog's row of a snapshot, that of ``pipeline`` if there are several; None where it is in no catalog, or is
    a copy.

    The row has its attempt, and lies in the same directory, whatever link, mount or spelling led there. Where only the
    content tells, it is the same if what the row names is there, whole and the same: a restore of either has the same
    state then, and the row's files are those that the system looks after."""
    writer = opened.manifest.pipeline if opened.manifest else pipeline
    place = opened.directory.rstrip("/")
    named = [
        r for name in (pipeline, writer) for r in deployment.catalog().list(name) if r.directory.rstrip("/") == place
    ]
    if named or opened.manifest is None:
        return named[0] if named else None
    found = deployment.catalog().cleanup.of_attempt(opened.manifest.attempt)
    first = (pipeline, writer)
    found.sort(key=lambda r: first.index(r.pipeline) if r.pipeline in first else len(first))
    return next((record for record in found if _is_row(deployment, record, opened)), None)


def _is_row(deployment: Deployment, record: CheckpointRecord, opened: Checkpoint) -> bool:
    if record.state is CheckpointState.DELETED:
        return False
    same = PLACES.same_place(record.directory, opened.directory)
    return _is_whole(deployment, record, opened.metadata_bytes) if same is None else same


def _is_whole(deployment: Deployment, record: CheckpointRecord, metadata: bytes) -> bool:
    """Whether the row's directory holds this very ``_metadata``, and every file that it names with its size."""
    try:
        there = open_checkpoint(record.directory, storage_root=deployment.storage_root)
        files = there.manifest.files if there.manifest else ()
        return there.metadata_bytes == metadata and not wrong_files(there, files, ())
    except StatelibError:
        return False


@dataclass(frozen=True)
class Twins:
    """Of one pipeline, the checkpoints that another living row may be the same snapshot as, under another path.
    ``originals``: the ones that were written as what their row says, by id, with the other row: nothing of them may go
    as long as the other one is there. ``imported``: ids of the rest; their rows may go, their files then stay."""

    originals: dict[CheckpointId, CheckpointRecord]
    imported: frozenset[CheckpointId]


def twins_of(deployment: Deployment, pipeline: PipelineName) -> Twins:
    """Find them among the rows that have the attempt of another one; mostly there are none."""
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
    """Rows of one directory, as it is written, are looked after by the references to its files."""
    if record.attempt != other.attempt or record.directory.rstrip("/") == other.directory.rstrip("/"):
        return False
    return PLACES.same_place(record.directory, other.directory) is not False
