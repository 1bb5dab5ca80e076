"""The publishing of registered checkpoints as the tables of a pipeline file.

The catalog is not involved: each table's newest commit names the checkpoint that it is the state of, so a publishing
that was killed is repeated by whoever comes next, and none is done twice.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from statelib.definition.pipeline import Pipeline
from statelib.definition.published_columns import published_state
from statelib.errors import (
    ConflictError,
    CorruptStateError,
    InvalidRequestError,
    NotFoundError,
    RetryableError,
    StatelibError,
)
from statelib.flows.publication.content import PublishedContent, check_same_form
from statelib.flows.publication.newest_commit import followed_commit, record_of
from statelib.flows.publication.outputs import output_changes, output_content
from statelib.flows.publication.targets import open_target
from statelib.flows.wiring import Deployment
from statelib.model.checkpoint import DataInterval
from statelib.model.ids import CheckpointId, PipelineName
from statelib.model.moments import HOUR_MS
from statelib.model.record import CheckpointRecord, CheckpointState
from statelib.publication.target import COMMIT_TAKEN, Commit, FeedContent, TableTarget, snapshot_hash
from statelib.savepoints.opened import Checkpoint
from statelib.storage.registry import new_attempt

log = logging.getLogger(__name__)

HOLD_MS = 24 * HOUR_MS
"""The time in milliseconds after which retention may delete what a publisher reads that never ended."""
_TRIES = 5


@dataclass(frozen=True)
class TableStanding:
    """The position of a published table. ``checkpoint_id``: the checkpoint of its newest commit. ``interval``: the one
    that this checkpoint applied; None if there is none. ``mends``: the earlier interval that it corrects, in place of
    ``interval``. ``behind``: the number of checkpoints that are registered and not published. ``error``: why the table
    cannot be read, and then ``behind`` is 0; or ''."""

    table: str
    target: str
    mode: str
    format: str
    checkpoint_id: CheckpointId | None = None
    interval: DataInterval | None = None
    mends: DataInterval | None = None
    commit: int = 0
    behind: int = 0
    error: str = ""


@dataclass(frozen=True)
class PublishedCommit:
    """One commit that was added to a table. ``rows``: the number of rows that it wrote. ``lost``: the checkpoints whose
    rows of an output it cannot have, because they were deleted before their rows were published."""

    table: str
    target: str
    commit: int
    checkpoint_id: CheckpointId
    interval: DataInterval | None
    rows: int
    lost: tuple[CheckpointId, ...] = ()


def publish_tables(deployment: Deployment, pipeline: Pipeline, tables: tuple[str, ...] = ()) -> list[PublishedCommit]:
    """Publish every registered checkpoint that is not published yet to the tables of the pipeline file, and return the
    commits. ``tables``: the names of the only tables to publish to.

    An error of one table does not stop the others. It is raised at the end. Raises NotFoundError (``no-table``)."""
    commits: list[PublishedCommit] = []
    errors: list[StatelibError] = []
    for name in _chosen(pipeline, tables):
        try:
            commits += _caught_up(deployment, pipeline, name)
        except StatelibError as error:
            errors.append(_of_table(error, pipeline, name))
    if errors:
        raise errors[0] if len(errors) == 1 else _joined(errors)
    return commits


def standings(deployment: Deployment, pipeline: Pipeline, tables: tuple[str, ...] = ()) -> tuple[TableStanding, ...]:
    """Return how far each table of the pipeline file is behind the head. Nothing is changed. ``tables``: the names of
    the only tables to look at. Raises NotFoundError (``no-table``)."""
    return tuple(_standing(deployment, pipeline, name) for name in _chosen(pipeline, tables))


def _chosen(pipeline: Pipeline, tables: tuple[str, ...]) -> list[str]:
    """Return the names of these tables, or of all, in the order of the pipeline file."""
    for name in tables:
        if name not in pipeline.publish:
            names = ", ".join(pipeline.publish) or "none"
            raise NotFoundError(
                f"{pipeline.name} publishes no table {name!r}: its tables are {names}",
                kind="no-table",
                hint=f"'publish' in {pipeline.path or 'the pipeline file'} has the tables",
            )
    return [name for name in pipeline.publish if name in tables or not tables]


def _standing(deployment: Deployment, pipeline: Pipeline, name: str) -> TableStanding:
    publication = pipeline.publish[name]
    target = publication.target.format(data=deployment.data)
    standing = TableStanding(name, target, publication.mode, publication.format)
    try:
        newest = open_target(deployment, pipeline, name, new_attempt()).newest()
        followed = followed_commit(deployment, pipeline, newest)
        behind = len(_unpublished(deployment, pipeline, followed))
        if newest is None:
            return replace(standing, behind=behind)
        record = record_of(deployment, pipeline, followed) if followed and newest.interval is None else None
    except StatelibError as error:
        return replace(standing, error=error.message)
    return replace(
        standing,
        checkpoint_id=newest.checkpoint_id,
        interval=newest.interval or (record.interval if record else None),
        mends=record.mends if record else None,
        commit=newest.number,
        behind=behind,
    )


def _caught_up(deployment: Deployment, pipeline: Pipeline, name: str) -> Iterator[PublishedCommit]:
    """Publish to one table, oldest checkpoint first, until it has the state of the head. Yield the commits. A damaged
    checkpoint before the head is left out: the next commit has its changes, too."""
    tries, tried, readable, damaged = 0, 0, True, set[CheckpointId]()
    while True:
        attempt = new_attempt()
        target = open_target(deployment, pipeline, name, attempt)
        newest = target.newest()
        followed = followed_commit(deployment, pipeline, newest)
        missing = [each for each in _unpublished(deployment, pipeline, followed) if each.checkpoint_id not in damaged]
        if not missing:
            target.tidy()
            return
        number, record = newest.number + 1 if newest else 1, _next(deployment, pipeline, name, missing)
        try:
            with _holding(deployment, record, followed if readable else None, f"publish:{attempt}") as base:
                content, lost = _content(
                    deployment, pipeline, name, record, base=base, newest=newest, followed=followed, target=target
                )
                snapshot = snapshot_hash(record.attempt)
                commit = target.commit(Commit(number, record.checkpoint_id, record.interval, 0, snapshot), content)
        except (ConflictError, InvalidRequestError) as error:
            # Another publisher was faster, maybe for many commits; or retention has deleted what was listed.
            tries, tried = tries + 1 if number == tried else 1, number
            if error.kind not in (COMMIT_TAKEN, "not-completed") or tries == _TRIES:
                raise
            continue
        except (CorruptStateError, NotFoundError) as error:
            if followed is not None and readable:
                log.warning("%s: table %s: compared with its own rows: %s", pipeline.name, name, error.message)
                readable = False  # the checkpoint of the newest commit may be damaged: the commit needs no base
                continue
            if record is missing[-1] or pipeline.publish[name].output is not None:
                raise
            log.warning("%s: table %s: checkpoint %d is left out: %s", pipeline.name, name, record.checkpoint_id, error)
            damaged.add(record.checkpoint_id)
            readable = True
            continue
        readable = True
        where = pipeline.publish[name].target.format(data=deployment.data)
        yield PublishedCommit(name, where, commit.number, commit.checkpoint_id, commit.interval, commit.rows, lost)


def _content(
    deployment: Deployment,
    pipeline: Pipeline,
    name: str,
    record: CheckpointRecord,
    *,
    base: Checkpoint | None,
    newest: Commit | None,
    followed: Commit | None,
    target: TableTarget,
) -> tuple[FeedContent, tuple[CheckpointId, ...]]:
    """Return (content of the next commit of a table, checkpoints whose rows are lost). ``followed``: ``newest``, or
    None if that is of another history. A state is then compared with the rows of the table.

    Raises InvalidRequestError (``foreign-target``) for an output then, whose rows only their checkpoints identify."""
    if pipeline.publish[name].output is not None:
        if newest is not None and followed is None:
            raise InvalidRequestError(
                f"{pipeline.publish[name].target.format(data=deployment.data)}: commit {newest.number} has the rows of "
                f"a checkpoint {newest.checkpoint_id} that this deployment does not have: another one published it, "
                "the state began anew, or the pipeline was renamed",
                kind="foreign-target",
                hint=f"nothing was changed: move it away, or let publish.{name}.target name another directory",
            )
        changes = output_changes(deployment, record, newest, target.feed_rows)
        for lost in changes.lost:
            log.warning(
                "%s: table %s: checkpoint %d was deleted before it was published, with the rows that it had, if any",
                pipeline.name,
                name,
                lost,
            )
        return output_content(deployment, pipeline, name, changes, target.feed_rows), changes.lost
    content = PublishedContent(
        pipeline,
        pipeline.publish[name],
        deployment.open(record),
        base=base,
        follows=followed is not None and record.base == followed.checkpoint_id,
        identities=target.identities if newest else None,
        scratch=deployment.scratch(),
    )
    return content, ()


@contextmanager
def _holding(
    deployment: Deployment, record: CheckpointRecord, newest: Commit | None, holder: str
) -> Iterator[Checkpoint | None]:
    """Yield the checkpoint of the newest commit, None if it is gone. Both checkpoints are protected from retention
    while the block runs."""
    cleanup = deployment.catalog().cleanup
    cleanup.pin(record.pipeline, record.checkpoint_id, holder, HOLD_MS)
    try:
        yield _base(deployment, record.pipeline, newest, holder)
    finally:
        cleanup.unpin(record.pipeline, holder)


def _base(deployment: Deployment, pipeline: PipelineName, newest: Commit | None, holder: str) -> Checkpoint | None:
    if newest is None:
        return None
    catalog = deployment.catalog()
    try:
        catalog.cleanup.pin(pipeline, newest.checkpoint_id, holder, HOLD_MS)
    except (NotFoundError, InvalidRequestError) as error:
        if error.kind not in ("no-checkpoint", "not-completed"):
            raise
        return None
    return deployment.open(catalog.get(pipeline, newest.checkpoint_id))


def _unpublished(deployment: Deployment, pipeline: Pipeline, newest: Commit | None) -> list[CheckpointRecord]:
    """Return the checkpoints to publish, oldest first: those in the lineage of the head that are newer than the newest
    commit's, or the head itself if it is none of them, as after a restore. A new table begins with the head."""
    catalog, name = deployment.catalog(), pipeline.name
    head = catalog.head(name).head
    if head is None or (newest is not None and newest.checkpoint_id == head):
        return []
    lineage = catalog.lineage(name, head)
    if newest is None:
        return lineage[:1]
    newer = [
        record
        for record in reversed(lineage)
        if record.checkpoint_id > newest.checkpoint_id and record.state is CheckpointState.COMPLETED
    ]
    return newer or lineage[:1]


def _next(deployment: Deployment, pipeline: Pipeline, name: str, missing: list[CheckpointRecord]) -> CheckpointRecord:
    """Return the first checkpoint that has the published state in the form of the pipeline file, or else the last one.
    One before a change of the state cannot be published any more. An output has no such form."""
    if pipeline.publish[name].output is not None:
        return missing[0]
    state = published_state(pipeline, pipeline.publish[name]).name
    for record in missing[:-1]:
        try:
            check_same_form(pipeline, state, deployment.open(record))
        except InvalidRequestError:
            continue
        except (CorruptStateError, NotFoundError):
            pass  # publishing it says so
        return record
    return missing[-1]


def _of_table(error: StatelibError, pipeline: Pipeline, name: str) -> StatelibError:
    """Return the error with the name of the table, and what the reader needs most: no checkpoint is lost."""
    text = f"{pipeline.name}: table {name} is not published: {error.message}"
    again = f"the checkpoint is registered; statelib publish {pipeline.name} publishes it"
    return type(error)(text, kind=error.kind, hint="; ".join(filter(None, (error.hint, again))))


def _joined(errors: list[StatelibError]) -> StatelibError:
    cls = RetryableError if any(isinstance(error, RetryableError) for error in errors) else type(errors[0])
    advice = dict.fromkeys(part for error in errors for part in error.hint.split("; "))
    return cls("; ".join(error.message for error in errors), kind="tables-in-trouble", hint="; ".join(advice))
