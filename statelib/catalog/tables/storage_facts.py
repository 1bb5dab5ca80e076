"""The catalog's records of files on storage, for the orphan sweep, and to show which checkpoints need a file."""

from dataclasses import dataclass

from sqlalchemy import Connection, select, union

from statelib.catalog.tables.row_checks import checked
from statelib.catalog.tables.schema import ATTEMPT, CHECKPOINT, FILE, REF
from statelib.coordinator.orphans import CatalogRecords
from statelib.model.ids import ATTEMPT_PREFIX, CheckpointId, PipelineName
from statelib.model.record import CheckpointState, Owner

_ENDED = ("WON", "LOST", "ABORTED")


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
    rows = connection.execute(select(CHECKPOINT).where(CHECKPOINT.c.pipeline == pipeline)).all()
    checkpoints = [checked(CHECKPOINT, row) for row in rows]
    return CatalogRecords(
        files=frozenset(files),
        open_attempts=frozenset(a[:ATTEMPT_PREFIX] for a, state in attempts if state not in _ENDED),
        ended_attempts=frozenset(a[:ATTEMPT_PREFIX] for a, state in attempts if state in _ENDED),
        checkpoints={
            v["directory"].rstrip("/"): (CheckpointId(v["checkpoint_id"]), CheckpointState(v["state"]))
            for v in checkpoints
        },
    )


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
