"""The cleanup story: retention lets go, gc condemns and deletes, the orphan sweep finds what never belonged.

Each step may die anywhere and be run again: what is decided is written down before the first byte
goes, what is gone counts as deleted, and only then is it written down as gone. ``at`` is called
with the name of each point where that matters; the tests end the process there.
"""

import contextlib
from dataclasses import dataclass

from statelib.catalog.commit.cleanup import Situation
from statelib.coordinator.retention import RetentionPolicy, retained, subsumed
from statelib.definition.pipeline import Pipeline
from statelib.errors import ConflictError, CorruptStateError
from statelib.flows.cleanup.each_pipeline import Troubles, for_each, names
from statelib.flows.lifecycle.suspension import status_of
from statelib.flows.recovery.catalog_behind import survey_before_deleting
from statelib.flows.restore.identity import twins_of
from statelib.flows.wiring import Deployment
from statelib.model.ids import CheckpointId, PipelineName
from statelib.model.record import CheckpointState
from statelib.model.termination import JobStatus
from statelib.savepoints.verification import verify_at

_TRIES = 3


@dataclass(frozen=True)
class Stays:
    """A checkpoint or savepoint that retention keeps, and why."""

    checkpoint_id: CheckpointId
    because: str


@dataclass(frozen=True)
class Retired:
    """What retention let go of in one pipeline, and what it keeps, newest first. ``policy`` None: no valid pipeline
    file says what to keep, and nothing was done."""

    pipeline: PipelineName
    policy: RetentionPolicy | None
    checkpoints: tuple[CheckpointId, ...]
    status: JobStatus = JobStatus.RUNNING
    kept: tuple[Stays, ...] = ()


def retire(
    deployment: Deployment,
    pipeline: str | None = None,
    *,
    dry_run: bool = False,
    troubles: Troubles | None = None,
) -> list[Retired]:
    """Apply ``checkpoint.retain`` of the pipeline files: what it lets go of becomes DELETING, gc's to remove.

    Each pipeline is handled by itself; errors of one go to ``troubles``, as :func:`for_each` says. Raises
    ConflictError: ``catalog-behind-storage`` where a checkpoint lies that the catalog never heard of, also one of
    another pipeline that needs files of these; ``fenced`` or ``in-use`` if the pipeline keeps changing underneath.
    CorruptStateError (``damaged-head``): where older ones would go, ``_metadata`` of the head must open and every file
    that it names be there with its size.
    """
    files, chosen = {p.name: p for p in deployment.pipelines()}, names(deployment, pipeline)
    survey = survey_before_deleting(deployment, chosen)

    def of_one(name: PipelineName) -> Retired:
        survey.check(name)
        return _retire(deployment, name, files.get(name), dry_run)

    return for_each(chosen, of_one, troubles)


def _retire(deployment: Deployment, name: PipelineName, file: Pipeline | None, dry_run: bool) -> Retired:
    if file is None:
        return Retired(name, None, ())
    for _ in range(_TRIES - 1):
        # A checkpoint that began or was registered in between changes what may go: decide again.
        with contextlib.suppress(ConflictError):
            return _let_go(deployment, name, file, dry_run)
    return _let_go(deployment, name, file, dry_run)


def _let_go(deployment: Deployment, name: PipelineName, file: Pipeline, dry_run: bool) -> Retired:
    retain = file.checkpoint.retain
    policy = RetentionPolicy(retain.count, retain.days, retain.after_termination)
    situation = deployment.catalog().cleanup.situation(name)
    status = status_of(file, situation)
    in_use = situation.in_use | twins_of(deployment, name).originals.keys()
    facts = (policy, situation.records, situation.head.head, in_use, status)
    chosen = subsumed(*facts)
    ended = policy.discards_all(status)
    if chosen and not ended:
        _check_head(deployment, situation)
    if chosen and not dry_run:
        deployment.catalog().cleanup.subsume(name, chosen, situation.head.epoch, terminated=ended)
    kept = tuple(Stays(number, reason) for number, reason in retained(*facts).items())
    return Retired(name, policy, chosen, status, kept)


def _check_head(deployment: Deployment, situation: Situation) -> None:
    """Older checkpoints are what is left to go back to where the head cannot be read: then none of them may go."""
    head = next((r for r in situation.records if r.checkpoint_id == situation.head.head), None)
    if head is None or head.state is not CheckpointState.COMPLETED:
        return
    found = verify_at(head.directory, own=True, read_data=False, storage_root=deployment.storage_root)
    if found.problems:
        name = f"{head.pipeline}/{head.checkpoint_id}"
        raise CorruptStateError(
            f"{name} is damaged, and {head.pipeline} stands on it: {found.problems[0]}; nothing older was let go of",
            kind="damaged-head",
            hint=f"statelib verify {name} names what is wrong; statelib restore {head.pipeline} goes back to an older "
            "one",
        )
