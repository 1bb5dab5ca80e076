"""The orphan sweep: find files that attempts left behind and that no checkpoint will ever refer to, and delete them."""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from statelib.coordinator.orphans import REMOVABLE, CatalogRecords, ClassifiedFile, Listed, Verdict, classify
from statelib.crash_points import crash_point
from statelib.errors import ConflictError, CorruptStateError, InvalidRequestError, NotFoundError
from statelib.flows.catalog_behind import survey_before_deleting
from statelib.flows.cleanup.each_pipeline import Troubles, for_each, names
from statelib.flows.cleanup.garbage import Point, is_savepoint_named_by_us
from statelib.flows.wiring import Deployment, now_ms
from statelib.model.amounts import number_of
from statelib.model.ids import ATTEMPT_PREFIX, SAVEPOINTS_DIRECTORY, CheckpointId, PipelineName
from statelib.model.moments import HOUR_MS
from statelib.model.record import CheckpointState
from statelib.storage.names import (
    METADATA_NAME,
    checkpoint_directory,
    checkpoint_number,
    savepoint_directory,
)
from statelib.storage.ports.removal import CheckpointRemover
from statelib.storage.registry import PLACES

DEFAULT_GRACE_MS = 7 * 24 * HOUR_MS


MIN_GRACE_MS = 24 * HOUR_MS


_ENDED = (CheckpointState.ABORTED, CheckpointState.DELETED)


MAX_UNKNOWN_SHARE = 0.25
"""The maximum share of files whose attempts the catalog does not have. A larger share suggests that rows were lost."""


@dataclass(frozen=True)
class Orphans:
    """The files of one pipeline that nothing will ever refer to. ``deleted``: whether the sweep deleted them.
    ``young``: of attempts that the catalog does not have, within the grace period. ``foreign``: files with names that
    statelib does not use, of other deployments, or of a deleted savepoint that its user has put back. The last two are
    never deleted."""

    pipeline: PipelineName
    files: tuple[str, ...]
    size_bytes: int
    young: tuple[str, ...]
    foreign: tuple[str, ...]
    deleted: bool


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
    """Find the files that aborted and crashed attempts left behind, temporary files included, and delete them unless
    ``dry_run``.

    A file of an attempt that has ended is deleted at once. A file whose attempt the catalog does not have is deleted
    after ``grace_ms`` by the storage's clock. Reading that clock writes a file; ``dry_run`` writes nothing and uses
    this host's clock. Errors of one pipeline go to ``troubles``, as
    :func:`~statelib.flows.cleanup.each_pipeline.for_each` describes.

    Raises InvalidRequestError (``grace-too-short``, ``too-many-orphans``), both of which ``force`` turns off, and
    ConflictError (``catalog-behind-storage``), which it does not.
    """
    if grace_ms < MIN_GRACE_MS and not dry_run and not force:
        raise InvalidRequestError(
            f"grace period of {grace_ms // HOUR_MS}h: expected at least {MIN_GRACE_MS // HOUR_MS}h, because a task may "
            "still be writing",
            kind="grace-too-short",
            hint="--force, if nothing is running",
        )
    chosen = names(deployment, pipeline)
    survey_of_all = survey_before_deleting(deployment, chosen)

    def sweep(name: PipelineName) -> Orphans:
        survey_of_all.check(name)
        return _sweep(deployment, name, grace_ms, dry_run, force, at)

    return for_each(chosen, sweep, troubles)


def _sweep(  # noqa: PLR0917 - the options of the function above
    deployment: Deployment, name: PipelineName, grace_ms: int, dry_run: bool, force: bool, at: Point
) -> Orphans:
    classified = survey(deployment, name, grace_ms, looks_only=dry_run)
    unregistered = [f.file.uri for f in classified if f.verdict is Verdict.UNKNOWN_CHECKPOINT]
    if unregistered:
        raise ConflictError(
            f"{name}: {unregistered[0]} belongs to a checkpoint that is not in the catalog: the catalog is older"
            " than the storage",
            kind="catalog-behind-storage",
            hint=_advice(name, unregistered[0].rpartition("/")[0].rpartition("/")[2]),
        )
    chosen = [f for f in classified if f.verdict in REMOVABLE]
    if not dry_run:
        if not force:
            _check_share(name, classified)
        _remove(deployment, name, chosen, at)
    return Orphans(
        name,
        tuple(f.file.uri for f in chosen),
        sum(f.file.size_bytes for f in chosen),
        tuple(f.file.uri for f in classified if f.verdict is Verdict.YOUNG),
        tuple(f.file.uri for f in classified if f.verdict is Verdict.FOREIGN),
        not dry_run,
    )


def _advice(name: PipelineName, directory: str) -> str:
    number = checkpoint_number(directory)
    if number is None:
        return f"move it elsewhere: only checkpoints of {name} may be in its directory"
    return (
        f"statelib catalog rebuild --merge -p {name} registers it; if it is left out there, add --give-up"
        f" {name}/{number}"
    )


def survey(
    deployment: Deployment, name: PipelineName, grace_ms: int, *, looks_only: bool
) -> tuple[ClassifiedFile, ...]:
    """Return a verdict on every file of a pipeline. The files are listed before the catalog is read: the attempt that
    wrote a listed file was recorded in the catalog before it wrote. ``looks_only``: nothing is written, not even a
    probe of the storage's clock; the ages of files are then computed with this host's clock."""
    remover, catalog = deployment.remover(), deployment.catalog()
    listed: dict[str, Listed] = {}
    for place in _places(deployment, name):
        with _gone_is_empty(deployment, place):
            for file in remover.list_files(place):
                uri = f"{place}/{file.path}"
                listed[uri] = Listed(uri, file.size_bytes, file.modified_at_ms)
    reached_ms = now_ms() if looks_only else _storage_now_ms(remover, listed)
    if reached_ms is None:
        return ()
    records = catalog.cleanup.records(name)
    classified = classify(list(listed.values()), records, reached_ms, grace_ms)
    others = {_directory_of(each) for each in classified if _is_of_others(deployment, each, records)}
    put_back = {_directory_of(each) for each in classified if _is_put_back(deployment, each, records)}
    return tuple(
        replace(each, verdict=Verdict.FOREIGN)
        if _directory_of(each) in put_back
        or (_directory_of(each) in others and (_is_metadata(each) or each.verdict in _UNKNOWN))
        else each
        for each in classified
    )


@contextlib.contextmanager
def _gone_is_empty(deployment: Deployment, place: str) -> Iterator[None]:
    """Ignore that the bucket of a savepoint that a user put elsewhere no longer exists: none of its files is left."""
    try:
        yield
    except NotFoundError:
        if PLACES.is_below(place, (deployment.root_uri(),)):
            raise


_UNKNOWN = (Verdict.YOUNG, Verdict.UNKNOWN_ATTEMPT)


def _directory_of(each: ClassifiedFile) -> str:
    return each.file.uri.rpartition("/")[0]


def _is_metadata(each: ClassifiedFile) -> bool:
    return each.file.uri.endswith(f"/{METADATA_NAME}")


def _is_put_back(deployment: Deployment, each: ClassifiedFile, records: CatalogRecords) -> bool:
    """Return whether a ``_metadata`` was put into a place that users chose after its savepoint was deleted: gc deletes
    the ``_metadata`` before the row becomes DELETED."""
    if not _is_metadata(each) or PLACES.is_below(each.file.uri, (deployment.root_uri(),)):
        return False
    checkpoint = records.checkpoints.get(_directory_of(each))
    return checkpoint is not None and checkpoint[1] is CheckpointState.DELETED


def _is_of_others(deployment: Deployment, each: ClassifiedFile, records: CatalogRecords) -> bool:
    """Return whether an unneeded ``_metadata`` is of another deployment's savepoint: in a place that users chose, its
    savepoint of the same name and number may have got the directory in which an aborted one of ours was begun."""
    if each.verdict is not Verdict.ORPHAN or not _is_metadata(each):
        return False
    if PLACES.is_below(each.file.uri, (deployment.root_uri(),)):
        return False
    try:
        manifest = deployment.open_at(_directory_of(each)).manifest
    except (CorruptStateError, NotFoundError):
        return False
    return manifest is None or manifest.attempt[:ATTEMPT_PREFIX] not in records.ended_attempts


def _storage_now_ms(remover: CheckpointRemover, listed: Iterable[str]) -> int | None:
    """Return the time by the storage's clock, read in the first directory of a listed file that still exists. None if
    none exists, because gc has deleted them meanwhile."""
    for directory in dict.fromkeys(uri.rpartition("/")[0] for uri in listed):
        with contextlib.suppress(NotFoundError):
            return remover.now_ms(directory)
    return None


def _places(deployment: Deployment, name: PipelineName) -> list[str]:
    """Return the pipeline's directory, and the directories of its savepoints that statelib named and that have
    ended."""
    pipeline = f"{deployment.root_uri()}/{name}"
    ended = (r for r in deployment.catalog().list(name) if r.state is not CheckpointState.PENDING)
    return [pipeline, *(r.directory for r in ended if is_savepoint_named_by_us(r))]


def _check_share(name: PipelineName, classified: Sequence[ClassifiedFile]) -> None:
    unknown = sum(f.verdict is Verdict.UNKNOWN_ATTEMPT for f in classified)
    if unknown > MAX_UNKNOWN_SHARE * len(classified):
        raise InvalidRequestError(
            f"{name}: {unknown} of {number_of(len(classified), 'file')} belong to attempts that are not in the catalog,"
            f" expected at most {MAX_UNKNOWN_SHARE:.0%}: nothing was deleted",
            kind="too-many-orphans",
            hint="if the catalog is whole, add --force",
        )


def _remove(deployment: Deployment, name: PipelineName, chosen: Sequence[ClassifiedFile], at: Point) -> None:
    """Delete the chosen files, ``_metadata`` first, and then the directories that this may have emptied."""
    remover, places = deployment.remover(), _places(deployment, name)
    uris = sorted((f.file.uri for f in chosen), key=lambda uri: (not uri.endswith(f"/{METADATA_NAME}"), uri))
    for start in range(0, len(uris), remover.files_at_once):
        at("before orphan")
        remover.remove_files(uris[start : start + remover.files_at_once], places)
    at("orphans deleted")
    _remove_directories(deployment, name, places, at)


def _remove_directories(deployment: Deployment, name: PipelineName, places: Sequence[str], at: Point) -> None:
    """Delete empty directories of checkpoints that have ended, and of begins that failed before their commit: their ids
    were allocated again, to checkpoints in other directories."""
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
