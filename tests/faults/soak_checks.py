"""The properties that a pipeline has whenever no process works on it, whatever process was killed before."""

import shutil
from pathlib import Path

from sqlalchemy import create_engine, select

from statelib.catalog.tables.schema import FILE
from statelib.coordinator.invariants import history_violations
from statelib.flows.checkpoint.steps import abort
from statelib.flows.cleanup.garbage import collect_garbage
from statelib.flows.cleanup.orphans import orphans
from statelib.flows.cleanup.retention import retire
from statelib.flows.views.inspection import resolve
from statelib.flows.wiring import Deployment
from statelib.model.checkpoint import SnapshotKind
from statelib.model.record import CheckpointRecord, CheckpointState
from statelib.savepoints.verification.snapshots import verify
from statelib.storage.names import METADATA_NAME
from statelib.storage.registry import PLACES
from tests.faults.soak_lane import Journal, Lane
from tests.faults.soak_worker import content_of

COMPLETED = CheckpointState.COMPLETED
AGAIN = 0.1
ROUNDS = 4
"""The number of rounds after which gc must have nothing left to do."""


def check_lane(lane: Lane, restored: bool) -> None:
    """Check a pipeline. ``restored``: whether a restore was begun since the last check."""
    deployment, journal = lane.deployment(), lane.journal
    journal.read()
    records = {int(r.checkpoint_id): r for r in deployment.catalog().list(lane.name)}
    head = deployment.catalog().head(lane.name)
    problems: list[str] = []
    if records:
        problems += history_violations(head, list(records.values()))
        problems += lost(lane, journal, records, head.head, restored)
        problems += forked(journal, records, head.head, head.generation)
    for number, record in records.items():
        if record.state is COMPLETED:
            problems += wrong(lane, deployment, number)
            journal.write("looked at", number)
    for problem in problems:
        journal.write("violation", problem)


def wrong(lane: Lane, deployment: Deployment, number: int) -> list[str]:
    """Return the problems of a snapshot. It is read whole if it was not read before, or at random; otherwise its files
    are only looked up, with their sizes."""
    if number not in lane.journal.snapshots:
        return [f"checkpoint {number} is COMPLETED, and nobody began it"]
    opened = resolve(deployment, f"{lane.name}/{number}")
    again = lane.chance.random() < AGAIN
    problems = list(verify(opened, read_data=again, scratch=deployment.work_directory).problems)
    if number in lane.journal.was_read and not again:
        return problems
    lane.journal.write("read", number)
    content = content_of(opened, deployment.work_directory)
    if content != lane.content(number):
        problems.append(f"checkpoint {number}: {content}, expected {lane.content(number)}")
    return problems


def lost(
    lane: Lane, journal: Journal, records: dict[int, CheckpointRecord], head: int | None, restored: bool
) -> list[str]:
    """Return the registered snapshots that are missing although they must exist: the newest ones of the head's
    history that the pipeline keeps, its user's savepoints, and the head."""
    history = [n for n in chain(records, head) if records[n].kind is SnapshotKind.CHECKPOINT]
    keep = set() if restored else set(history[: lane.options.retain])
    keep |= {n for n in journal.done - journal.excused if records[n].kind is SnapshotKind.SAVEPOINT}
    keep |= {head} if head is not None else set()
    gone = [n for n in keep if records[n].state is not COMPLETED and n not in journal.gone]
    never = [n for n in journal.done if records[n].state in (CheckpointState.PENDING, CheckpointState.ABORTED)]
    for number in sorted(journal.snapshots.keys() - journal.gone):
        if records[number].state in (CheckpointState.DELETING, CheckpointState.DELETED):
            journal.write("gone", number)
    return [f"checkpoint {n} was registered, and is {records[n].state}" for n in (*gone, *never)]


def forked(journal: Journal, records: dict[int, CheckpointRecord], head: int | None, generation: int) -> list[str]:
    """Return the checkpoints that were registered since the last restore and are not in the history of the head."""
    history = chain(records, head)
    mine = [n for n in journal.done if journal.snapshots[n].kind == "CHECKPOINT"]
    aside = [n for n in mine if journal.snapshots[n].generation == generation and n not in history]
    return [f"checkpoint {n} was registered in generation {generation}, and is no part of its history" for n in aside]


def chain(records: dict[int, CheckpointRecord], head: int | None) -> list[int]:
    """Return the head, its base and so on."""
    ids: list[int] = []
    at = head
    while at is not None:
        ids.append(at)
        at = records[at].base
    return ids


def check_nothing_left(lane: Lane) -> None:
    """Assert that after recovery and gc to a fixed point storage contains exactly the files of living rows."""
    deployment, journal = lane.deployment(), lane.journal
    for record in deployment.catalog().list(lane.name, (CheckpointState.PENDING,)):
        abort(deployment, lane.name, record.checkpoint_id, "the soak's recovery")
    for _ in range(ROUNDS):
        before = listing(lane, deployment)
        orphans(deployment, lane.name, grace_ms=0, dry_run=False, force=True)
        retire(deployment, lane.name)
        collect_garbage(deployment, lane.name)
        if listing(lane, deployment) == before:
            break
    stored, rows, named = listing(lane, deployment), living(lane, deployment), manifests(lane, deployment)
    for what, named_files in (("rows", rows), ("manifests", named)):
        if stored != named_files:
            too_many, missing = sorted(stored - named_files), sorted(named_files - stored)
            journal.write("violation", f"storage against {what}: too many {too_many}, missing {missing}")
    journal.write("fixed point", len(stored))
    shutil.rmtree(deployment.work_directory)  # These are files that tasks of killed processes left on their own host.
    Path(deployment.work_directory).mkdir()


def listing(lane: Lane, deployment: Deployment) -> set[str]:
    """Return every file of the pipeline, including the directories of its users' savepoints."""
    savepoints = [f"{deployment.root_uri()}/savepoints", PLACES.kind("/").normalised(str(lane.root / "savepoints"))]
    files = {
        f"{place}/{file.path}"
        for place in savepoints
        for file in deployment.remover().list_files(place)
        if file.path.startswith(f"savepoint-{lane.name}-")
    }
    place = f"{deployment.root_uri()}/{lane.name}"
    return files | {f"{place}/{file.path}" for file in deployment.remover().list_files(place)}


def living(lane: Lane, deployment: Deployment) -> set[str]:
    engine = create_engine(deployment.catalog_url)
    with engine.connect() as connection:
        rows = select(FILE.c.file_id).where(FILE.c.state == "LIVE", FILE.c.pipeline == lane.name)
        files = set(connection.execute(rows).scalars())
    engine.dispose()
    return files | {f"{r.directory}/{METADATA_NAME}" for r in deployment.catalog().list(lane.name, (COMPLETED,))}


def manifests(lane: Lane, deployment: Deployment) -> set[str]:
    """Return the files that the manifests of the snapshots name."""
    named: set[str] = set()
    for record in deployment.catalog().list(lane.name, (COMPLETED,)):
        opened = resolve(deployment, f"{lane.name}/{record.checkpoint_id}")
        assert opened.manifest is not None
        named |= {PLACES.file_uri(record.directory, f.path) for f in opened.manifest.files}
        named.add(f"{record.directory}/{METADATA_NAME}")
    return named
