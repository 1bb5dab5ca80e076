"""The orphan sweep, and why a file is there: what lies on storage, judged by what the catalog knows."""

import contextlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from statelib.coordinator.orphans import METADATA_NAME, REMOVABLE, Found, Listed, Verdict, classify
from statelib.crash_points import crash_point
from statelib.errors import ConflictError, InvalidRequestError, NotFoundError
from statelib.flows.cleanup.each_pipeline import Troubles, for_each, names
from statelib.flows.cleanup.garbage import Point, is_savepoint_named_by_us
from statelib.flows.recovery.catalog_behind import survey_before_deleting
from statelib.flows.wiring import Deployment, now_ms
from statelib.model.amounts import number_of
from statelib.model.ids import CheckpointId, PipelineName
from statelib.model.record import CheckpointState
from statelib.storage.filesystem.removal import CheckpointRemover
from statelib.storage.names import (
    SAVEPOINTS_DIRECTORY,
    checkpoint_directory,
    checkpoint_number,
    savepoint_directory,
)

HOUR_MS = 3_600_000


DEFAULT_GRACE_MS = 7 * 24 * HOUR_MS


MIN_GRACE_MS = 24 * HOUR_MS


_ENDED = (CheckpointState.ABORTED, CheckpointState.DELETED)


MAX_UNKNOWN_SHARE = 0.25
"""More files of unknown attempts than this look like a catalog that has lost its memory."""


@dataclass(frozen=True)
class Orphans:
    """One pipeline's files that nobody will ever refer to; ``deleted`` tells whether they are gone.
    ``young``: of attempts that the catalog does not know, still within the grace period.
    ``task_owned``: state that tasks keep and remove by themselves; ``foreign``: not named by statelib. Neither is
    ever deleted."""

    pipeline: PipelineName
    files: tuple[str, ...]
    size_bytes: int
    young: tuple[str, ...]
    foreign: tuple[str, ...]
    deleted: bool
    task_owned: tuple[str, ...] = ()


def orphans(
    deployment: Deployment,
    pipeline: str | None = None,
    *,
    grace_ms: int = DEFAULT_GRACE_MS,
    dry_run: bool = True,
    force: bool = False,
    at: Point = crash_point,
    troubles: Troubles | None = None,
) -> list[Orphans]:
    """Find what aborted and crashed attempts left behind, also temporary files; delete it unless ``dry_run``.

    A file of an attempt that has ended goes at once; one that leads to nothing in the catalog goes
    after ``grace_ms`` by the storage's clock. To read that clock something is written; ``dry_run`` writes nothing
    and goes by this host's. Raises InvalidRequestError (``grace-too-short``,
    ``too-many-orphans``: both yield to ``force``) and ConflictError (``catalog-behind-storage``,
    which does not); what fails of one pipeline goes to ``troubles``, as
    :func:`~statelib.flows.cleanup.each_pipeline.for_each` says.
    """
    if grace_ms < MIN_GRACE_MS and not dry_run and not force:
        raise InvalidRequestError(
            f"grace period of {grace_ms} ms: expected at least {MIN_GRACE_MS}, because a task may still be writing",
            kind="grace-too-short",
            hint="--force, if nothing is running",
        )
    chosen = names(deployment, pipeline)
    survey_of_all = survey_before_deleting(deployment, chosen)

    def sweep(name: PipelineName) -> Orphans:
        survey_of_all.check(name)
        return _sweep(deployment, name, grace_ms, dry_run, force, at)

    return for_each(chosen, sweep, troubles)


def _sweep(  # noqa: PLR0917 - the options of the call above, one pipeline at a time
    deployment: Deployment, name: PipelineName, grace_ms: int, dry_run: bool, force: bool, at: Point
) -> Orphans:
    found = survey(deployment, name, grace_ms, looks_only=dry_run)
    forgotten = [f.file.uri for f in found if f.verdict is Verdict.UNKNOWN_CHECKPOINT]
    if forgotten:
        raise ConflictError(
            f"{name}: {forgotten[0]} is of a checkpoint that the catalog does not know: it is older than the storage",
            kind="catalog-behind-storage",
            hint=_brought_up_to_date(name, forgotten[0].rpartition("/")[0].rpartition("/")[2]),
        )
    chosen = [f for f in found if f.verdict in REMOVABLE]
    if not dry_run:
        if not force:
            _check_share(name, found)
        _remove(deployment, name, chosen, at)
    return Orphans(
        name,
        tuple(f.file.uri for f in chosen),
        sum(f.file.size_bytes for f in chosen),
        tuple(f.file.uri for f in found if f.verdict is Verdict.YOUNG),
        tuple(f.file.uri for f in found if f.verdict is Verdict.FOREIGN),
        not dry_run,
        tuple(f.file.uri for f in found if f.verdict is Verdict.TASK_OWNED),
    )


def _brought_up_to_date(name: PipelineName, directory: str) -> str:
    number = checkpoint_number(directory)
    if number is None:
        return f"move it elsewhere: the directory of {name} is for its own checkpoints"
    return (
        f"statelib catalog rebuild --merge -p {name} enters it; if it is left out there, add --give-up {name}/{number}"
    )


def survey(deployment: Deployment, name: PipelineName, grace_ms: int, *, looks_only: bool) -> tuple[Found, ...]:
    """A verdict on every file of a pipeline. Listed first, and only then is the catalog asked: whoever
    wrote a listed file had told the catalog of the attempt before. ``looks_only``: nothing is written, not even a
    probe of the storage's clock; the age of a file is then only as right as this host's clock."""
    remover, catalog = deployment.remover(), deployment.catalog()
    listed: dict[str, Listed] = {}
    for place in _places(deployment, name):
        for file in remover.list_files(place):
            uri = f"{place}/{file.path}"
            listed[uri] = Listed(uri, file.size_bytes, file.modified_at_ms)
    reached_ms = now_ms() if looks_only else _storage_now_ms(remover, listed)
    if reached_ms is None:
        return ()
    return classify(list(listed.values()), catalog.cleanup.known(name), reached_ms, grace_ms)


def _storage_now_ms(remover: CheckpointRemover, listed: Iterable[str]) -> int | None:
    """By the clock of the first listed file's directory that is still there; None if none is: gc was at work beside."""
    for directory in dict.fromkeys(uri.rpartition("/")[0] for uri in listed):
        with contextlib.suppress(NotFoundError):
            return remover.now_ms(directory)
    return None


def _places(deployment: Deployment, name: PipelineName) -> list[str]:
    """The pipeline's directory, and those of the savepoints that statelib made and that have ended."""
    pipeline = f"{deployment.root_uri()}/{name}"
    ended = (r for r in deployment.catalog().list(name) if r.state is not CheckpointState.PENDING)
    return [pipeline, *(r.directory for r in ended if is_savepoint_named_by_us(r))]


def _check_share(name: PipelineName, found: Sequence[Found]) -> None:
    unknown = sum(f.verdict is Verdict.UNKNOWN_ATTEMPT for f in found)
    if unknown > MAX_UNKNOWN_SHARE * len(found):
        raise InvalidRequestError(
            f"{name}: {unknown} of {number_of(len(found), 'file')} are of attempts that the catalog does not"
            " know, expected at "
            f"most {MAX_UNKNOWN_SHARE:.0%}: nothing was deleted",
            kind="too-many-orphans",
            hint="if the catalog is whole, add --force",
        )


def _remove(deployment: Deployment, name: PipelineName, chosen: Sequence[Found], at: Point) -> None:
    """``_metadata`` first, here too; then the directories that this may have emptied."""
    remover, places = deployment.remover(), _places(deployment, name)
    uris = sorted((f.file.uri for f in chosen), key=lambda uri: (not uri.endswith(f"/{METADATA_NAME}"), uri))
    for start in range(0, len(uris), remover.files_at_once):
        at("before orphan")
        remover.remove_files(uris[start : start + remover.files_at_once], places)
    at("orphans deleted")
    _remove_directories(deployment, name, places, at)


def _remove_directories(deployment: Deployment, name: PipelineName, places: Sequence[str], at: Point) -> None:
    """Those of checkpoints that ended, and those whose ``begin`` died before it was committed: their number was given
    away again, to what lies elsewhere. Only empty ones go."""
    records, remover = deployment.catalog().list(name), deployment.remover()
    numbers = range(1, 1 + max((r.checkpoint_id for r in records), default=0))
    used = {r.directory for r in records if r.state not in _ENDED}
    own: dict[str, Callable[[CheckpointId], str]] = {
        places[0]: checkpoint_directory,
        f"{deployment.root_uri()}/{SAVEPOINTS_DIRECTORY}": partial(savepoint_directory, name),
    }
    for parent, named_for in own.items():
        named = {f"{parent}/{named_for(CheckpointId(number))}" for number in numbers} - used
        for directory in sorted(named & remover.list_directories(parent)):
            at("before orphan directory")
            remover.remove_directory(directory, [parent])
    for record in records:
        parent = record.directory.rpartition("/")[0]
        if record.state in _ENDED and record.directory in places and parent not in own:
            remover.remove_directory(record.directory, [parent])
