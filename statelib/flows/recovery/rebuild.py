"""Rebuild a catalog that was lost or is older than the storage, from the snapshots on storage.

A manifest says what its snapshot is, but not whether it was registered. The checkpoints that were built on a snapshot
prove that (``coordinator/rebuilding.py``); only the system's own checkpoints count. A checkpoint that nothing was built
on may be one that the gate refused. It is read whole and judged again (``flows/recovery/rejudging.py``), and goes into
quarantine if it does not pass. What only the catalog recorded is lost: aborted and deleted checkpoints, notes, reports,
claims, and a restore that no run followed.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

from statelib.catalog.commit.rebuilding import RebuiltCheckpoint
from statelib.errors import ConflictError, InvalidRequestError, NotFoundError
from statelib.flows.recovery.pipeline_rebuild import Name, PipelinePlan, PipelineRebuild
from statelib.flows.recovery.published import LeftOut, on_storage
from statelib.flows.wiring import Deployment
from statelib.model.ids import PipelineName


@dataclass(frozen=True)
class RebuildPlan:
    """The plan of a rebuild. ``left_out``: directories whose snapshots belong to no pipeline's plan."""

    pipelines: tuple[PipelinePlan, ...]
    left_out: tuple[LeftOut, ...]

    def damaged(self) -> list[LeftOut]:
        """Return the directories that are left out because of damage, and that are not given up."""
        given_up = {record.directory for p in self.pipelines for record in p.given_up}
        every = [*self.left_out, *(left for p in self.pipelines for left in p.left_out)]
        every = [left for left in every if left.directory not in given_up]
        return [left for left in every if left.damaged]


def plan_rebuild(
    deployment: Deployment,
    *,
    pipeline: str | None = None,
    also: Sequence[str] = (),
    leave_out: Collection[Name] = (),
    take: Collection[Name] = (),
    give_up: Collection[Name] = (),
    merge: bool = False,
    reading: Callable[[str], None] = lambda _name: None,
) -> RebuildPlan:
    """Return the plan of a rebuild; nothing is changed.

    Args:
        pipeline: The only pipeline that is rebuilt; None for all.
        also: Directories outside the storage that contain savepoints.
        leave_out: Snapshots that are not registered.
        take: Snapshots that are registered as COMPLETED even if the gate refuses them, as long as they are whole.
        give_up: Snapshots that are left out, and are registered as ABORTED.
        merge: Whether pipelines that the catalog has are rebuilt too. Only those existing rows change that the storage
            shows to be outdated: a PENDING one whose snapshot is published, and a QUARANTINED one that was
            released.
        reading: A callback that receives the name of each snapshot that is read whole.

    Raises InvalidRequestError (``nothing-to-take``, ``nothing-to-give-up``); ConflictError (``catalog-not-empty``) if
    the catalog has one of the pipelines, without ``merge``; NotFoundError (``no-pipeline``) if ``pipeline`` has no
    snapshots.
    """
    stored = on_storage(deployment, also)
    stored_names = {s.manifest.pipeline for s in stored.snapshots}
    stored_names |= {name for name, _ in give_up if name in stored.highest}
    names = sorted(name for name in stored_names if pipeline in (None, name))
    if pipeline is not None and not names:
        raise NotFoundError(
            f"no snapshot of pipeline {pipeline} is below {deployment.root_uri()}",
            kind="no-pipeline",
            hint="--also names directories with savepoints elsewhere",
        )
    if not merge:
        _check_not_in_catalog(deployment, names)
    options = {"leave_out": leave_out, "take": take, "give_up": give_up}
    plans = [PipelineRebuild(deployment, name, stored, reading, **options).plan() for name in names]
    _check_taken(plans, take)
    _check_given_up(plans, give_up)
    return RebuildPlan(tuple(plans), stored.left_out)


def apply_rebuild(deployment: Deployment, plan: RebuildPlan) -> None:
    """Write the plan to the catalog in one transaction. Raises as
    :meth:`statelib.catalog.commit.rebuilding.Rebuilding.enter`."""
    entered = [
        RebuiltCheckpoint(each.record, each.facts, each.judgement.results if each.judgement else (), each.replaces)
        for p in plan.pipelines
        for each in p.entered
    ]
    given_up = [record for p in plan.pipelines for record in p.given_up]
    deployment.catalog().rebuilding.enter([p.rebuilt for p in plan.pipelines], entered, given_up)


def _check_not_in_catalog(deployment: Deployment, names: Iterable[PipelineName]) -> None:
    rebuilding = deployment.catalog().rebuilding
    in_catalog = [name for name in names if rebuilding.next_id(name) > 1]
    if in_catalog:
        raise ConflictError(
            f"the catalog has rows of {', '.join(in_catalog)} already",
            kind="catalog-not-empty",
            hint="--merge adds the missing rows and completes outdated ones; statelib checkpoints list shows all rows",
        )


def _check_taken(plans: Sequence[PipelinePlan], take: Collection[Name]) -> None:
    judged = {(p.pipeline, t.record.checkpoint_id) for p in plans for t in p.entered if t.judgement}
    for pipeline, number in sorted(set(take) - judged):
        raise InvalidRequestError(
            f"{pipeline}/{number} is not one of the checkpoints that were judged again: there is nothing to take",
            kind="nothing-to-take",
            hint="statelib catalog rebuild --dry-run shows those that would go into quarantine",
        )


def _check_given_up(plans: Sequence[PipelinePlan], give_up: Collection[Name]) -> None:
    done = {(p.pipeline, record.checkpoint_id) for p in plans for record in p.given_up}
    for pipeline, number in sorted(set(give_up) - done):
        raise InvalidRequestError(
            f"{pipeline}/{number} is not one of the snapshots that are left out: it is not given up",
            kind="nothing-to-give-up",
            hint=f"statelib catalog rebuild --dry-run shows them; --leave-out {pipeline}/{number} makes it one",
        )
