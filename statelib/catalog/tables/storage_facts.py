"""The catalog's records of files on storage, for the orphan sweep, and to show which checkpoints need a file."""

from dataclasses import dataclass

from sqlalchemy import Connection, select, union

from statelib.catalog.tables.row_checks import checked
from statelib.catalog.tables.schema import ATTEMPT, CHECKPOINT, FILE, REF
from statelib.coordinator.orphans import CatalogRecords
from statelib.model.ids import ATTEMPT_PREFIX, CheckpointId, PipelineName
from statelib.model.record import CheckpointState, Owner

_ENDED = ("WON", "LOST", "ABORTED")
_OVER = (CheckpointState.ABORTED, CheckpointState.DELETED)
LIVING = (CheckpointState.PENDING, CheckpointState.COMPLETED, CheckpointState.QUARANTINED)


@dataclass(frozen=True)
class Reference:
    """A checkpoint that refers to a file."""

    pipeline: PipelineName
    checkpoint_id: CheckpointId
    state: CheckpointState


@dataclass(frozen=True)
class FileFacts:
    """The catalog's row of a file, and the checkpoints that refer to it. ``state``: LIVE, CONDEMNED or DELETED."""

    uri: str
    pipeline: PipelineName
    size_bytes: int
    state: str
    owner: Owner
    created_by: CheckpointId
    references: tuple[Reference, ...]


def catalog_records(connection: Connection, pipeline: PipelineName) -> CatalogRecords:
    """Return the files, attempts and checkpoints that :func:`statelib.coordinator.orphans.classify` compares storage
    with. ``connection`` must be one transaction that sees one state of the catalog."""
    # Files and attempts of all pipelines: a checkpoint of one pipeline may refer to a file of another. In doubt, as
    # for a damaged row, a file is needed: if it is not DELETED, or has a reference, or its attempt has not ended.
    stored = select(FILE.c.file_id).where(FILE.c.state != "DELETED")
    files = connection.execute(union(stored, select(REF.c.file_id))).scalars().all()
    for attempt_row in connection.execute(select(ATTEMPT).where(ATTEMPT.c.pipeline == pipeline)).all():
        checked(ATTEMPT, attempt_row)
    attempts = [(str(a), state) for a, state in connection.execute(select(ATTEMPT.c.attempt, ATTEMPT.c.state)).all()]
    return CatalogRecords(
        files=frozenset(files),
        open_attempts=frozenset(a[:ATTEMPT_PREFIX] for a, state in attempts if state not in _ENDED),
        ended_attempts=frozenset(a[:ATTEMPT_PREFIX] for a, state in attempts if state in _ENDED),
        checkpoints=_by_directory(connection, pipeline),
    )


def _by_directory(connection: Connection, pipeline: PipelineName) -> dict[str, tuple[CheckpointId, CheckpointState]]:
    """Return id and state of the checkpoint in each of the pipeline's directories. A snapshot that was restored by its
    path has two rows: if one of them has ended, the other one, of any pipeline, still needs the snapshot."""
    c, has_ended = CHECKPOINT.c, CHECKPOINT.c.state.in_(_OVER)
    own = connection.execute(select(CHECKPOINT).where(c.pipeline == pipeline).order_by(has_ended)).all()
    by_directory: dict[str, tuple[CheckpointId, CheckpointState]] = {}
    for values in (checked(CHECKPOINT, row) for row in own):
        checkpoint = CheckpointId(values["checkpoint_id"]), CheckpointState(values["state"])
        by_directory.setdefault(values["directory"].rstrip("/"), checkpoint)
    others = select(c.directory, c.checkpoint_id, c.state).where(c.pipeline != pipeline, c.state.in_(LIVING))
    for directory, number, state in connection.execute(others).all():
        place = str(directory).rstrip("/")
        if place in by_directory and by_directory[place][1] in _OVER:
            by_directory[place] = CheckpointId(number), CheckpointState(state)
    return by_directory


def foreign_holders(connection: Connection, pipeline: PipelineName) -> list[tuple[PipelineName, CheckpointId, Owner]]:
    """Return the stored checkpoints and savepoints of other pipelines that refer to files of this one."""
    statement = (
        select(CHECKPOINT.c.pipeline, CHECKPOINT.c.checkpoint_id, CHECKPOINT.c.owner)
        .join(REF, (CHECKPOINT.c.pipeline == REF.c.pipeline) & (CHECKPOINT.c.checkpoint_id == REF.c.checkpoint_id))
        .join(FILE, FILE.c.file_id == REF.c.file_id)
        .where(FILE.c.pipeline == pipeline, REF.c.pipeline != pipeline, CHECKPOINT.c.state.in_(LIVING))
        .distinct()
        .order_by(CHECKPOINT.c.pipeline, CHECKPOINT.c.checkpoint_id)
    )
    return [
        (PipelineName(row.pipeline), CheckpointId(row.checkpoint_id), Owner(row.owner))
        for row in connection.execute(statement)
    ]


def file_facts(connection: Connection, uri: str) -> FileFacts | None:
    """Return the row of one file with the checkpoints that refer to it, or None if the catalog never recorded it."""
    row = connection.execute(select(FILE).where(FILE.c.file_id == uri)).first()
    if row is None:
        return None
    referring = (
        select(CHECKPOINT.c.pipeline, CHECKPOINT.c.checkpoint_id, CHECKPOINT.c.state)
        .join(
            CHECKPOINT,
            (CHECKPOINT.c.pipeline == REF.c.pipeline) & (CHECKPOINT.c.checkpoint_id == REF.c.checkpoint_id),
        )
        .where(REF.c.file_id == uri)
        .order_by(REF.c.pipeline, REF.c.checkpoint_id)
    )
    checkpoints = [checked(CHECKPOINT, checkpoint_row) for checkpoint_row in connection.execute(referring).all()]
    references = tuple(
        Reference(PipelineName(v["pipeline"]), CheckpointId(v["checkpoint_id"]), CheckpointState(v["state"]))
        for v in checkpoints
    )
    v = checked(FILE, row)
    return FileFacts(
        uri, PipelineName(v["pipeline"]), v["size_bytes"], v["state"], Owner(v["owner"]),
        CheckpointId(v["created_by"]), references,
    )  # fmt: skip
