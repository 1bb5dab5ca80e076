"""Rebuild a catalog that was lost or is older than the storage, from the snapshots on storage.

A manifest says what its snapshot is, but not whether it was registered. The checkpoints that were built on a snapshot
prove that (``coordinator/rebuilding.py``); only the system's own checkpoints count. A checkpoint that nothing was built
on may be one that the gate refused. It is read whole and judged again (``flows/recovery/rejudging.py``), and goes into
quarantine if it does not pass. What only the catalog recorded is lost: aborted and deleted checkpoints, notes, reports,
claims, and a restore that no run followed.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from statelib.catalog.commit.rebuilding import Entry
from statelib.errors import ConflictError, InvalidRequestError, NotFoundError
from statelib.flows.recovery.pipeline_rebuild import Name, PipelinePlan, PipelineRebuild
from statelib.flows.recovery.published import LeftOut, on_storage
from statelib.flows.wiring import Deployment


@dataclass(frozen=True)
class RebuildPlan:
    pipelines: tuple[PipelinePlan, ...]
    left_out: tuple[LeftOut, ...]
    entries: tuple[Entry, ...]

    def damaged(self) -> list[LeftOut]:
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
    """What a rebuild would enter; nothing is changed. ``also``: directories with savepoints elsewhere.
    ``take``: what is entered as COMPLETED whatever the gate says of it, if it is whole. ``give_up``: what is entered as
    ABORTED, of what is left out. ``reading`` is told of each snapshot that is read whole.

    Raises InvalidRequestError (``nothing-to-take``, ``nothing-to-give-up``); ConflictError (``catalog-not-empty``) for
    pipelines that the catalog knows, unless ``merge``: then what it has rows of stays as it is. NotFoundError
    (``no-pipeline``) where that one has no snapshots."""
    stored = on_storage(deployment, also)
    there = {f.manifest.pipeline for f in stored.found} | {name for name, _ in give_up if name in stored.highest}
    names = sorted(name for name in there if pipeline in (None, name))
    if pipeline is not None and not names:
        raise NotFoundError(
            f"no snapshot of pipeline {pipeline} lies below {deployment.root_uri()}",
            kind="no-pipeline",
            hint="--also names directories with savepoints elsewhere",
        )
    catalog = deployment.catalog()
    in_catalog = [name for name in names if catalog.rebuilding.next_id(name) > 1]
    if in_catalog and not merge:
        raise ConflictError(
            f"the catalog knows {', '.join(in_catalog)} already",
            kind="catalog-not-empty",
            hint="--merge adds what it has no rows of and changes none; statelib checkpoints list shows what it has",
        )
    plans, entries = [], []
    for name in names:
        plan = PipelineRebuild(
            deployment, name, stored, reading, leave_out=leave_out, take=take, give_up=give_up
        ).plan()
        plans.append(plan)
        entries += [Entry(t.record, t.facts, t.judgement.results if t.judgement else ()) for t in plan.taken]
    _check_taken(plans, take)
    _check_given_up(plans, give_up)
    return RebuildPlan(tuple(plans), stored.left_out, tuple(entries))


def apply_rebuild(deployment: Deployment, plan: RebuildPlan) -> None:
    """Enter it, all in one transaction. Raises as :meth:`statelib.catalog.commit.rebuilding.Rebuilding.enter`."""
    given_up = [record for p in plan.pipelines for record in p.given_up]
    deployment.catalog().rebuilding.enter([p.standing for p in plan.pipelines], plan.entries, given_up)


def _check_taken(plans: Sequence[PipelinePlan], take: Collection[Name]) -> None:
    judged = {(p.pipeline, t.record.checkpoint_id) for p in plans for t in p.taken if t.judgement}
    for pipeline, number in sorted(set(take) - judged):
        raise InvalidRequestError(
            f"{pipeline}/{number} is none of the checkpoints that were judged again: there is nothing to take",
            kind="nothing-to-take",
            hint="statelib catalog rebuild --dry-run shows those that would go into quarantine",
        )


def _check_given_up(plans: Sequence[PipelinePlan], give_up: Collection[Name]) -> None:
    done = {(p.pipeline, record.checkpoint_id) for p in plans for record in p.given_up}
    for pipeline, number in sorted(set(give_up) - done):
        raise InvalidRequestError(
            f"{pipeline}/{number} is none of the snapshots that are left out: it is not given up",
            kind="nothing-to-give-up",
            hint=f"statelib catalog rebuild --dry-run shows them; --leave-out {pipeline}/{number} makes it one",
        )
