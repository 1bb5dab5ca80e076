"""The rows that belong to a checkpoint: its attempts, its files, and its references to files."""

from collections.abc import Sequence

from sqlalchemy import Connection, Select, and_, case, delete, insert, literal, select, text, update

from statelib.catalog.tables.schema import ATTEMPT, CHECKPOINT, FILE, REF
from statelib.catalog.tables.storage_facts import LIVING
from statelib.errors import ConflictError
from statelib.model.checkpoint import FileRecord
from statelib.model.ids import AttemptId, CheckpointId, PipelineName
from statelib.model.record import Owner

_INSERT_FILE = text(
    "INSERT INTO file (file_id, pipeline, size_bytes, crc32c, created_by, state, owner) "
    "VALUES (:file_id, :pipeline, :size_bytes, :crc32c, :created_by, 'LIVE', :owner) "
    "ON CONFLICT (file_id) DO NOTHING"
)


def open_attempt(
    connection: Connection, pipeline: PipelineName, checkpoint_id: CheckpointId, attempt: AttemptId, now_ms: int
) -> None:
    """Record an attempt before it writes its first byte. A second call changes nothing.

    Raises ConflictError (``attempt-reused``) if another checkpoint has an attempt of this id.
    """
    row = connection.execute(
        select(ATTEMPT.c.pipeline, ATTEMPT.c.checkpoint_id).where(ATTEMPT.c.attempt == attempt)
    ).first()
    if row is None:
        connection.execute(
            insert(ATTEMPT).values(
                attempt=attempt, pipeline=pipeline, checkpoint_id=checkpoint_id, state="OPEN", created_at_ms=now_ms
            )
        )
    elif (row[0], row[1]) != (pipeline, checkpoint_id):
        raise ConflictError(
            f"attempt {attempt} of checkpoint {pipeline}/{checkpoint_id}: {row[0]}/{row[1]} has an attempt of this id "
            "already",
            kind="attempt-reused",
        )


def close_attempts(
    connection: Connection, pipeline: PipelineName, checkpoint_id: CheckpointId, winner: AttemptId
) -> None:
    """Mark one attempt at a checkpoint as WON, and its other attempts as LOST."""
    connection.execute(
        update(ATTEMPT)
        .where(and_(ATTEMPT.c.pipeline == pipeline, ATTEMPT.c.checkpoint_id == checkpoint_id))
        .values(state=case((ATTEMPT.c.attempt == winner, "WON"), else_="LOST"))
    )


def reserve(
    connection: Connection, pipeline: PipelineName, checkpoint_id: CheckpointId, base: CheckpointId | None
) -> None:
    """Give a checkpoint that begins a reference to each LIVE file of its base, so that gc deletes none of them while
    the checkpoint is pending, even if the base itself is deleted."""
    held = (
        select(literal(pipeline), literal(checkpoint_id), REF.c.file_id)
        .join(FILE, FILE.c.file_id == REF.c.file_id)
        .where(REF.c.pipeline == pipeline, REF.c.checkpoint_id == base, FILE.c.state == "LIVE")
    )
    connection.execute(insert(REF).from_select(["pipeline", "checkpoint_id", "file_id"], held))


def record_files(
    connection: Connection,
    pipeline: PipelineName,
    checkpoint_id: CheckpointId,
    files: Sequence[FileRecord],
    owner: Owner,
) -> None:
    """Insert the files that are new, and replace the checkpoint's references by one per file in ``files``.

    Raises ConflictError: ``file-changed`` if the catalog has a file of that name with another size or checksum,
    ``file-condemned`` if gc has begun to delete it.
    """
    connection.execute(delete(REF).where(REF.c.pipeline == pipeline, REF.c.checkpoint_id == checkpoint_id))
    if not files:
        return
    rows = [
        {
            "file_id": f.path,
            "pipeline": pipeline,
            "size_bytes": f.size_bytes,
            "crc32c": f.crc32c,
            "created_by": checkpoint_id,
            "owner": owner,
        }
        for f in files
    ]
    connection.execute(_INSERT_FILE, rows)
    refs = [{"pipeline": pipeline, "checkpoint_id": checkpoint_id, "file_id": f.path} for f in files]
    connection.execute(insert(REF), refs)
    _check_files(connection, pipeline, checkpoint_id, files)


def living(directory: str) -> Select[str, int]:
    """Return the statement that selects pipeline and id of the PENDING, COMPLETED and QUARANTINED checkpoints and
    savepoints in a directory, of any pipeline."""
    place = directory.rstrip("/")
    return select(CHECKPOINT.c.pipeline, CHECKPOINT.c.checkpoint_id).where(
        CHECKPOINT.c.directory.in_((place, f"{place}/")),
        CHECKPOINT.c.state.in_(LIVING),
    )


def claim(connection: Connection, pipeline: PipelineName, checkpoint_id: CheckpointId) -> None:
    """Make the system the owner of a checkpoint and of the files it refers to."""
    held = select(REF.c.file_id).where(REF.c.pipeline == pipeline, REF.c.checkpoint_id == checkpoint_id)
    connection.execute(update(FILE).where(FILE.c.file_id.in_(held)).values(owner=Owner.SYSTEM))
    connection.execute(
        update(CHECKPOINT)
        .where(CHECKPOINT.c.pipeline == pipeline, CHECKPOINT.c.checkpoint_id == checkpoint_id)
        .values(owner=Owner.SYSTEM)
    )


def _check_files(
    connection: Connection, pipeline: PipelineName, checkpoint_id: CheckpointId, files: Sequence[FileRecord]
) -> None:
    expected = {f.path: (f.size_bytes, f.crc32c) for f in files}
    held = (
        select(FILE.c.file_id, FILE.c.size_bytes, FILE.c.crc32c, FILE.c.state)
        .join(REF, REF.c.file_id == FILE.c.file_id)
        .where(REF.c.pipeline == pipeline, REF.c.checkpoint_id == checkpoint_id)
    )
    for path, size_bytes, checksum, state in connection.execute(held):
        if (size_bytes, checksum) != expected[path]:
            raise ConflictError(
                f"file {path}: expected size and crc32c {(size_bytes, checksum)} as in the catalog, "
                f"found {expected[path]}",
                kind="file-changed",
            )
        if state != "LIVE":
            raise ConflictError(f"file {path} is {state}: it cannot be referenced again", kind="file-condemned")
