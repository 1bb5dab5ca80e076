"""What the catalog knows of the files on storage: for the orphan sweep, and to say why a file is there."""

from dataclasses import dataclass

from sqlalchemy import Connection, select

from statelib.catalog.schema import ATTEMPT, CHECKPOINT, FILE, REF
from statelib.coordinator.orphans import ATTEMPT_PREFIX, Known
from statelib.model.ids import CheckpointId, PipelineName
from statelib.model.record import CheckpointState, Owner

_OPEN = "OPEN"


@dataclass(frozen=True)
class Reference:
    """A checkpoint that refers to a file."""

    pipeline: PipelineName
    checkpoint_id: CheckpointId
    state: CheckpointState


@dataclass(frozen=True)
class FileFacts:
    """The catalog's row of a file. ``state``: LIVE, CONDEMNED, DELETED."""

    uri: str
    pipeline: PipelineName
    size_bytes: int
    state: str
    owner: Owner
    created_by: CheckpointId
    references: tuple[Reference, ...]


def known(connection: Connection, pipeline: PipelineName) -> Known:
    """What :func:`statelib.coordinator.orphans.classify` needs; all of it from one transaction."""
    # Files and directories of every pipeline: one pipeline's checkpoint may refer to another's file.
    files = connection.execute(select(FILE.c.file_id).where(FILE.c.state.in_(("LIVE", "CONDEMNED")))).scalars().all()
    attempts = connection.execute(select(ATTEMPT.c.attempt, ATTEMPT.c.state)).all()
    columns = (CHECKPOINT.c.directory, CHECKPOINT.c.checkpoint_id, CHECKPOINT.c.state)
    places = connection.execute(select(*columns).where(CHECKPOINT.c.pipeline == pipeline)).all()
    return Known(
        files=frozenset(files),
        open_attempts=frozenset(a[:ATTEMPT_PREFIX] for a, state in attempts if state == _OPEN),
        ended_attempts=frozenset(a[:ATTEMPT_PREFIX] for a, state in attempts if state != _OPEN),
        checkpoints={d.rstrip("/"): (CheckpointId(n), CheckpointState(s)) for d, n, s in places},
    )


def file_facts(connection: Connection, uri: str) -> FileFacts | None:
    """The row of one file, and who refers to it; None where the catalog never recorded it."""
    row = connection.execute(select(FILE).where(FILE.c.file_id == uri)).first()
    if row is None:
        return None
    held = (
        select(REF.c.pipeline, REF.c.checkpoint_id, CHECKPOINT.c.state)
        .join(
            CHECKPOINT,
            (CHECKPOINT.c.pipeline == REF.c.pipeline) & (CHECKPOINT.c.checkpoint_id == REF.c.checkpoint_id),
        )
        .where(REF.c.file_id == uri)
        .order_by(REF.c.pipeline, REF.c.checkpoint_id)
    )
    references = tuple(
        Reference(PipelineName(p), CheckpointId(n), CheckpointState(s)) for p, n, s in connection.execute(held)
    )
    v = row._mapping
    return FileFacts(
        uri, PipelineName(v["pipeline"]), v["size_bytes"], v["state"], Owner(v["owner"]),
        CheckpointId(v["created_by"]), references,
    )  # fmt: skip
