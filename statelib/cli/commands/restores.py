"""``statelib restore``: show what a restore would do, then do it."""

import json
from contextlib import nullcontext
from typing import Annotated, Any

import typer

from statelib.cli import completion
from statelib.cli.output import (
    Column,
    Json,
    confirmed,
    count,
    errors,
    line,
    note,
    print_json,
    size,
    table,
    when,
    working,
)
from statelib.cli.places import path_of, taken_for_id
from statelib.definition.pipeline import Pipeline
from statelib.definition.source.intervals import intervals
from statelib.errors import ConflictError, CorruptStateError, InvalidRequestError
from statelib.flows.restore.holding import holding_source
from statelib.flows.restore.plan import AFTER_DRAINING, RestorePlan
from statelib.flows.restore.steps import apply_restore, plan_restore
from statelib.flows.views.inspection import parse_checkpoint
from statelib.flows.views.metrics import counting_aborted, restored
from statelib.flows.wiring import Deployment, deployment, planning_deployment, telemetry
from statelib.model.amounts import amount
from statelib.model.record import ClaimMode, PipelineHead
from statelib.savepoints.verification import verify_at
from statelib.storage.registry import new_attempt

OWNER = "statelib restore"
_CLAIM_MODES = {"no-claim": ClaimMode.NO_CLAIM, "claim": ClaimMode.CLAIM}


def restore(
    pipeline: Annotated[str, typer.Argument(help="Name of the pipeline.", autocompletion=completion.pipelines)],
    checkpoint: Annotated[
        str,
        typer.Argument(
            help="Id, <pipeline>/<id>, or the path of a snapshot directory.", autocompletion=completion.of_pipeline
        ),
    ],
    *,
    parallelism: Annotated[
        int | None, typer.Option("--parallelism", help="Parallelism from now on; as it is if absent.")
    ] = None,
    claim_mode: Annotated[
        str, typer.Option("--claim-mode", help="claim: the files become the system's, to delete in time; or no-claim.")
    ] = "no-claim",
    allow_non_restored_state: Annotated[
        bool, typer.Option("--allow-non-restored-state", help="Leave out stored states that the pipeline has no more.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", "-n", help="Show the plan, change nothing.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    verify: Annotated[bool, typer.Option(help="Read the whole snapshot first, to prove it.")] = True,
    as_json: Json = False,
) -> None:
    """Let a pipeline go on from one of its checkpoints or savepoints; the next run builds on it."""
    with errors(as_json):
        here = deployment()
        definition = here.pipeline(pipeline)
        if allow_non_restored_state:
            definition = definition.allowing_non_restored_state()
        mode = _claim_mode(claim_mode)
        chosen = _checkpoint(pipeline, checkpoint)
        if chosen.isdecimal():
            here.existing_catalog()
        with planning_deployment() as planner:
            plan = plan_restore(planner, definition, chosen, parallelism, mode)
        if not as_json:
            _print_plan(plan)
        head = None
        if not dry_run:
            with holding_source(here, plan, f"{OWNER} {new_attempt()}"):
                confirmed("Restore?", yes, as_json)
                _prove(here, plan, verify)
                head = _apply(here, definition, plan, plan_restore(here, definition, chosen, parallelism, mode))
    _print_result(definition, plan, head, as_json)


def _apply(here: Deployment, definition: Pipeline, plan: RestorePlan, present: RestorePlan) -> PipelineHead:
    """Do what ``plan`` says, if that is the plan at ``present`` too."""
    if present != plan:
        raise ConflictError(
            f"pipeline {plan.pipeline} moved on while you were asked: nothing was changed",
            kind="plan-changed",
            hint="look at the new plan, and try again",
        )
    with telemetry() as receiver:
        with counting_aborted(receiver, here.catalog(), plan.pipeline):
            head = apply_restore(here, definition, plan, OWNER)
        restored(receiver, plan.pipeline)
    return head


def _claim_mode(text: str) -> ClaimMode:
    if text not in _CLAIM_MODES:
        raise InvalidRequestError(f"claim mode {text!r}: expected claim or no-claim", kind="bad-claim-mode")
    return _CLAIM_MODES[text]


def _checkpoint(pipeline: str, text: str) -> str:
    """An id of the pipeline, or an absolute path, as :func:`plan_restore` takes it."""
    path = "" if text.isdecimal() else path_of(text)
    if path:
        return path
    with nullcontext() if text.isdecimal() else taken_for_id(text):
        name, checkpoint_id = parse_checkpoint(f"{pipeline}/{text}" if text.isdecimal() else text)
    if name != pipeline:
        raise InvalidRequestError(
            f"{text} is a checkpoint of pipeline {name}, not of {pipeline}",
            kind="other-pipeline",
            hint=f"statelib checkpoints list -p {pipeline}",
        )
    return str(checkpoint_id)


def _prove(here: Deployment, plan: RestorePlan, verify: bool) -> None:
    if not verify:
        return
    with working(f"reading {plan.directory}"):
        found = verify_at(plan.directory, own=True, scratch=here.scratch(), storage_root=here.storage_root)
    problems = found.problems
    if problems:
        raise CorruptStateError(
            f"{problems[0]} ({amount(len(problems), 'problem')}): nothing was changed",
            kind="damaged-snapshot",
            hint="statelib verify names all of them; restore an older checkpoint",
        )


def _print_plan(plan: RestorePlan) -> None:
    name = plan.directory if plan.checkpoint_id is None else f"{plan.pipeline}/{plan.checkpoint_id}"
    for field, value in (
        ("restore", f"{plan.pipeline} to {name}"),
        ("directory", plan.directory),
        ("claim mode", plan.claim_mode.lower().replace("_", "-")),
        ("keys", count(plan.keys)),
        ("entries", count(plan.entries)),
        ("slowest", f"subtask restores in {plan.estimate()}" if plan.estimate_ms is not None else plan.estimate()),
        ("parallelism", f"{plan.old_parallelism} to {plan.parallelism}"),
        ("leaves", ", ".join(f"{plan.pipeline}/{n}" for n in plan.abandoned) or "nothing behind"),
        ("aborts", ", ".join(f"{plan.pipeline}/{n}, which is under way" for n in plan.aborts) or "nothing"),
    ):
        line(f"{field:<12} {value}")
    if plan.drained:
        line(f"{'drained':<12} {AFTER_DRAINING}")
    for label, texts in (("state", plan.states), ("not restored", plan.non_restored)):
        for text in texts:
            line(f"{label:<12} {text.removeprefix('state ')}")
    rows = [
        [str(r.subtask), r.key_groups, ", ".join(r.handles) or "-", size(r.size_bytes), count(r.entries)]
        for r in plan.reads
    ]
    columns = [Column("subtask", right=True), Column("key groups"), Column("reads handles", wraps=True)]
    table("Subtasks", [*columns, Column("size", right=True), Column("entries", right=True)], rows)


def _print_result(pipeline: Pipeline, plan: RestorePlan, head: PipelineHead | None, as_json: bool) -> None:
    following = _next(pipeline, plan)
    if as_json:
        told: dict[str, Any] = {"plan": json.loads(plan.to_json()), "applied": head is not None, "head": head}
        print_json({**told, "next": following})
        return
    line()
    if head is None:
        note("dry run: nothing was changed")
    else:
        line(f"{plan.pipeline} stands on {plan.pipeline}/{head.head}, generation {head.generation}")
    line(f"next: {following}")
    by_hand = _by_hand(pipeline, plan)
    if by_hand:
        line(f"or:   {by_hand}")
    if plan.non_restored:
        note("the next run leaves state out only if the pipeline file says 'allow_non_restored_state: true'")


def _next(pipeline: Pipeline, plan: RestorePlan) -> str:
    """What to run once the restore is done."""
    dag, first, last = f"{plan.pipeline}.checkpoint", plan.replay_from_ms, plan.replay_until_ms
    if first is None:
        start = pipeline.schedule.start.strftime("%Y-%m-%d") if pipeline.schedule else "the first interval"
        return f"the state holds no events yet: run {dag} from {start} on"
    if last is None or last < first:
        return f"nothing to replay: the next run of {dag} is that of {when(first)} UTC"
    return (
        f"airflow backfill create --dag-id {dag} --from-date {_instant(first)} --to-date {_instant(last)} "
        "--reprocess-behavior completed --max-active-runs 1"
    )


def _by_hand(pipeline: Pipeline, plan: RestorePlan) -> str:
    """The same without Airflow; '' where there is nothing to replay, or no schedule that says until when."""
    first, last, schedule = plan.replay_from_ms, plan.replay_until_ms, pipeline.schedule
    if schedule is None or first is None or last is None or last < first:
        return ""
    try:
        (interval,) = intervals(schedule.cron, last)
    except InvalidRequestError:
        return ""
    return f"statelib run {plan.pipeline} --end {when(interval.end_ms).replace(' ', 'T')}"


def _instant(epoch_ms: int) -> str:
    return when(epoch_ms).replace(" ", "T") + "Z"
