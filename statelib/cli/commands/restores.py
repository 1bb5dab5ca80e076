"""``statelib restore``: show what a restore would do, then do it."""

import json
import re
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Annotated

import typer

from statelib.cli import completion
from statelib.cli.ending import confirmed, errors
from statelib.cli.options import Json, PipelineArgument, PlanOnly, Yes
from statelib.cli.paths import explained_as_id, path_of
from statelib.cli.presenters.blocks import Block, Fields, Line, Note, TableColumn, TextTable, present, show
from statelib.cli.presenters.console import working
from statelib.cli.presenters.values import count, size, when
from statelib.definition.pipeline import Pipeline
from statelib.definition.source.intervals import intervals
from statelib.errors import ConflictError, CorruptStateError, InvalidRequestError
from statelib.flows import wiring
from statelib.flows.restore.holding import holding_source
from statelib.flows.restore.plan import AFTER_DRAINING, RestorePlan
from statelib.flows.restore.steps import apply_restore, plan_restore
from statelib.flows.views.inspection import HEAD, LATEST, named_checkpoint
from statelib.flows.views.metrics import counting_aborted, restored
from statelib.flows.wiring import Deployment
from statelib.model.amounts import amount
from statelib.model.record import ClaimMode, PipelineHead
from statelib.savepoints.verification.snapshots import verify_at
from statelib.storage.registry import new_attempt

OWNER = "statelib restore"
_TIME = re.compile(r"\d{4}-\d\d-\d\d[^/@]*")
_CLAIM_MODES = {"no-claim": ClaimMode.NO_CLAIM, "claim": ClaimMode.CLAIM}


Source = Annotated[
    str,
    typer.Argument(
        metavar="CHECKPOINT",
        help="<id>, head, latest, <pipeline>/<id>, <pipeline>@<moment>, or the path of a snapshot directory.",
        autocompletion=completion.ids_of_pipeline,
    ),
]
Parallelism = Annotated[
    int | None, typer.Option("--parallelism", help="New parallelism of the pipeline. Default: the present one.")
]
ClaimModeName = Annotated[
    str,
    typer.Option(
        "--claim-mode",
        help="claim: statelib owns the files from now on, and deletes them when nothing needs them; no-claim: they stay"
        " yours.",
    ),
]
AllowNonRestored = Annotated[
    bool,
    typer.Option("--allow-non-restored-state", help="Leave out stored states that the pipeline no longer has."),
]


def restore(
    pipeline: PipelineArgument,
    checkpoint: Source,
    *,
    parallelism: Parallelism = None,
    claim_mode: ClaimModeName = "no-claim",
    allow_non_restored_state: AllowNonRestored = False,
    dry_run: PlanOnly = False,
    yes: Yes = False,
    verify: Annotated[bool, typer.Option(help="First read the whole snapshot, to prove that it is undamaged.")] = True,
    as_json: Json = False,
) -> None:
    """Make a checkpoint or savepoint the state that the next run of a pipeline builds on."""
    with errors(as_json):
        deployment = wiring.deployment()
        definition = deployment.pipeline(pipeline)
        if allow_non_restored_state:
            definition = definition.allowing_non_restored_state()
        mode = _claim_mode(claim_mode)
        source = _source(deployment, pipeline, checkpoint)
        if source.isdecimal():
            deployment.existing_catalog()
        with wiring.planning_deployment() as planner:
            plan = plan_restore(planner, definition, source, parallelism, mode)
        if not as_json:
            show(_plan_view(plan))
        head = None
        if not dry_run:
            with holding_source(deployment, plan, f"{OWNER} {new_attempt()}"):
                confirmed("Restore?", yes, as_json)
                _verify(deployment, plan, verify)
                present_plan = plan_restore(deployment, definition, source, parallelism, mode)
                head = _apply(deployment, definition, plan, present_plan)
    next_step = _next_step(definition, plan)
    command = _command_without_airflow(definition, plan)
    document = {"plan": json.loads(plan.to_json()), "applied": head is not None, "head": head, "next": next_step}
    document |= {"command": command, "mend_again": plan.mend_again()}
    present(document, _result_view(plan, head, next_step, command), as_json)


def _apply(deployment: Deployment, definition: Pipeline, plan: RestorePlan, present_plan: RestorePlan) -> PipelineHead:
    """Carry out ``plan``. Raise ConflictError (``plan-changed``) if the plan would be another one by now."""
    if present_plan != plan:
        raise ConflictError(
            f"pipeline {plan.pipeline} moved on while you were asked: nothing was changed",
            kind="plan-changed",
            hint="look at the new plan, and try again",
        )
    with wiring.telemetry() as receiver:
        with counting_aborted(receiver, deployment.catalog(), plan.pipeline):
            head = apply_restore(deployment, definition, plan, OWNER, approved=True)
        restored(receiver, plan.pipeline)
    return head


def _claim_mode(text: str) -> ClaimMode:
    if text not in _CLAIM_MODES:
        raise InvalidRequestError(f"claim mode {text!r}: expected claim or no-claim", kind="bad-claim-mode")
    return _CLAIM_MODES[text]


def _source(deployment: Deployment, pipeline: str, text: str) -> str:
    """Return the id of one of the pipeline's checkpoints, or an absolute path, for :func:`plan_restore`."""
    alone = text.isdecimal() or text in (HEAD, LATEST)
    path = "" if alone else path_of(text)
    if path:
        return path
    if _TIME.fullmatch(text):
        raise InvalidRequestError(
            f"{text}: expected a checkpoint of {pipeline}, found a time", kind="bad-checkpoint",
            hint=f"write {pipeline}@{text} for the state as of then",
        )  # fmt: skip
    with nullcontext() if alone else explained_as_id(text):
        name, checkpoint_id = named_checkpoint(deployment, f"{pipeline}/{text}" if alone else text)
    if name != pipeline:
        raise InvalidRequestError(
            f"{text} is a checkpoint of pipeline {name}, not of {pipeline}",
            kind="other-pipeline",
            hint=f"statelib checkpoints list -p {pipeline}",
        )
    return str(checkpoint_id)


def _verify(deployment: Deployment, plan: RestorePlan, verify: bool) -> None:
    if not verify:
        return
    with working(f"reading {plan.directory}"):
        result = verify_at(plan.directory, own=True, scratch=deployment.scratch(), storage_root=deployment.storage_root)
    if result.problems:
        raise CorruptStateError(
            f"{result.problems[0]} ({amount(len(result.problems), 'problem')}): nothing was changed",
            kind="damaged-snapshot",
            hint="statelib verify names all of them; restore an older checkpoint",
        )


def _plan_view(plan: RestorePlan) -> Iterator[Block]:
    name = plan.directory if plan.checkpoint_id is None else f"{plan.pipeline}/{plan.checkpoint_id}"
    yield Fields(
        [
            ("restore", f"{plan.pipeline} to {name}"),
            ("directory", plan.directory),
            ("claim mode", plan.claim_mode.lower().replace("_", "-")),
            ("keys", count(plan.keys)),
            ("entries", count(plan.entries)),
            ("slowest", f"subtask restores in {plan.estimate()}" if plan.estimate_ms is not None else plan.estimate()),
            ("parallelism", f"{plan.old_parallelism} to {plan.parallelism}"),
            ("leaves", ", ".join(f"{plan.pipeline}/{n}" for n in plan.abandoned) or "nothing behind"),
            ("aborts", ", ".join(f"{plan.pipeline}/{n}, which is under way" for n in plan.aborts) or "nothing"),
            *(("undoes", f"a correction that no replay repeats: {command}") for command in plan.mend_again()),
            *([("drained", AFTER_DRAINING)] if plan.drained else []),
            *(("state", text.removeprefix("state ")) for text in plan.states),
            *(("not restored", text.removeprefix("state ")) for text in plan.non_restored),
        ]
    )
    rows = [
        [str(r.subtask), r.key_groups, ", ".join(r.handles) or "-", size(r.size_bytes), count(r.entries)]
        for r in plan.reads
    ]
    columns = [
        TableColumn("subtask", right=True), TableColumn("key groups"), TableColumn("reads handles", wraps=True),
        TableColumn("size", right=True), TableColumn("entries", right=True),
    ]  # fmt: skip
    yield TextTable("Subtasks", columns, rows)


def _result_view(plan: RestorePlan, head: PipelineHead | None, next_step: str, command: str) -> Iterator[Block]:
    yield Line()
    if head is None:
        yield Note("dry run: nothing was changed")
    else:
        yield Line(f"the head of {plan.pipeline} is {plan.pipeline}/{head.head}, generation {head.generation}")
    yield Line(f"next: {next_step}")
    if command:
        yield Line(f"or:   {command}")
    for again in plan.mend_again():
        yield Line(f"to correct again: {again}")
    if plan.non_restored:
        yield Note("the next run leaves state out only if the pipeline file says 'allow_non_restored_state: true'")


def _next_step(pipeline: Pipeline, plan: RestorePlan) -> str:
    """Return what to run after the restore."""
    dag, first, last = pipeline.checkpoint_dag, plan.replay_from_ms, plan.replay_until_ms
    if first is None:
        schedule = pipeline.schedule
        start = f"{schedule.start.astimezone(schedule.zone):%Y-%m-%d}" if schedule else "the first interval"
        return f"the state holds no events yet: run {dag} from {start} on"
    if last is None or last < first:
        return f"nothing to replay: the next run of {dag} is that of {when(first)} UTC"
    if pipeline.cron_schedule is None:  # Airflow makes no backfill of such a DAG
        return (
            f"clear the runs of {dag} whose intervals start from {when(first)} to {when(last)} UTC, the oldest first, "
            f"or apply each with statelib run {plan.pipeline} --start ... --end ..."
        )
    return (
        f"airflow backfill create --dag-id {dag} --from-date {_instant(first)} --to-date {_instant(last)} "
        "--reprocess-behavior completed --max-active-runs 1"
    )


def _command_without_airflow(pipeline: Pipeline, plan: RestorePlan) -> str:
    """Return the ``statelib run`` command that replays the intervals after the restored state. Return '' if there is
    nothing to replay, or no schedule that has intervals."""
    first, last, schedule = plan.replay_from_ms, plan.replay_until_ms, pipeline.cron_schedule
    if schedule is None or first is None or last is None or last < first:
        return ""
    try:
        (interval,) = intervals(schedule, last)
    except InvalidRequestError:
        return ""
    return f"statelib run {plan.pipeline} --end {schedule.local_text(interval.end_ms)}"


def _instant(epoch_ms: int) -> str:
    return when(epoch_ms).replace(" ", "T") + "Z"
