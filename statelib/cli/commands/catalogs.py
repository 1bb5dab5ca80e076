"""``statelib catalog``: bring it to this version's schema, or make it again from what lies on storage."""

from dataclasses import asdict
from typing import Annotated, Any

import typer

from statelib.cli import completion
from statelib.cli.output import (
    Column,
    Json,
    PipelineOption,
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
from statelib.cli.places import path_of
from statelib.coordinator.rebuilding import Proof
from statelib.flows.recovery.pipeline_rebuild import EnteredSnapshot, PipelinePlan
from statelib.flows.recovery.rebuild import RebuildPlan, apply_rebuild, plan_rebuild
from statelib.flows.views.inspection import parse_checkpoint
from statelib.flows.wiring import deployment, planning_deployment
from statelib.model.amounts import amount

app = typer.Typer(no_args_is_help=True, help="The catalog itself.")

LeaveOut = Annotated[
    list[str] | None,
    typer.Option(
        "--leave-out",
        help="<pipeline>/<id> that must not be entered; repeatable.",
        autocompletion=completion.checkpoints,
    ),
]
Take = Annotated[
    list[str] | None,
    typer.Option(
        "--take",
        help="<pipeline>/<id> to be entered as complete though the gate refuses it or cannot judge it; repeatable.",
        autocompletion=completion.checkpoints,
    ),
]
GiveUp = Annotated[
    list[str] | None,
    typer.Option(
        "--give-up",
        help="<pipeline>/<id> of what is left out, to be entered as aborted: statelib orphans finds its files then; "
        "repeatable.",
        autocompletion=completion.checkpoints,
    ),
]


@app.command(epilog="Example: statelib catalog migrate")
def migrate(as_json: Json = False) -> None:
    """Bring the catalog to the schema of this version; does nothing if it is there already."""
    with errors(as_json):
        deployment().migrate_catalog()
    if as_json:
        print_json({"catalog": "current"})
    else:
        line("catalog is current")


@app.command(epilog="Example: statelib catalog check --json")
def check(as_json: Json = False) -> None:
    """Look at every row of the catalog and at each pipeline's history. Exit status 1 if something is wrong with one."""
    with errors(as_json):
        rows, faults = deployment().existing_catalog().browsing.check()
    if as_json:
        print_json({"rows": rows, "faults": [asdict(fault) for fault in faults]})
    else:
        for fault in faults:
            line(f"{fault.row}: {fault.column}: expected {fault.expected}, found {fault.found}")
        note(f"{count(rows)} rows, {count(len(faults))} faults")
    if faults:
        raise typer.Exit(1)


@app.command(
    epilog="Examples: statelib catalog rebuild --dry-run\n\n"
    "statelib catalog rebuild --also /backups/savepoints --yes\n\n"
    "statelib catalog rebuild --merge -p sales --leave-out sales/17"
)
def rebuild(
    pipeline: PipelineOption = None,
    *,
    also: Annotated[
        list[str] | None, typer.Option("--also", help="Directory with savepoints outside the storage; repeatable.")
    ] = None,
    leave_out: LeaveOut = None,
    take: Take = None,
    give_up: GiveUp = None,
    merge: Annotated[
        bool, typer.Option("--merge", help="Add to a catalog that is older than the storage; its rows stay.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", "-n", help="Show the plan, change nothing.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: Json = False,
) -> None:
    """Enter what lies on storage into a catalog that was lost, or was put back from an old backup. Stop all runs first.

    Heads, references and history become what the snapshots tell; what only the catalog knew is gone: aborted and
    deleted checkpoints, notes, reports, claims, and a restore that no run followed. Checkpoints that nothing was
    built on are judged again by the pipeline file: what does not pass, or cannot be judged, goes into quarantine. Exit
    status 1 if a snapshot is damaged, and left out."""  # fmt: skip
    with errors(as_json):
        here = deployment()
        places = [path_of(text) or text for text in also or ()]
        unwanted = [parse_checkpoint(text) for text in leave_out or ()]
        wanted = [parse_checkpoint(text) for text in take or ()]
        given_up = [parse_checkpoint(text) for text in give_up or ()]
        with working("reading snapshots that nothing was built on"), planning_deployment() as planner:
            plan = plan_rebuild(
                planner, pipeline=pipeline, also=places, leave_out=unwanted, take=wanted, give_up=given_up, merge=merge
            )
        if not as_json:
            _print_plan(plan)
        if not dry_run:
            confirmed("Enter them?", yes, as_json)
            apply_rebuild(here, plan)
    if as_json:
        print_json(_told(plan, applied=not dry_run))
    else:
        total = sum(len(p.entered) for p in plan.pipelines)
        note(
            f"dry run: {amount(total, 'snapshot')} would be entered"
            if dry_run
            else f"{amount(total, 'snapshot')} entered"
        )
    if plan.damaged():
        raise typer.Exit(1)


def _told(plan: RebuildPlan, *, applied: bool) -> dict[str, Any]:
    pipelines = [
        {
            "pipeline": p.pipeline,
            "entered": [asdict(t.record) | {"known_because": t.proof} for t in p.entered],
            "already_known": p.registered,
            "left_out": [asdict(left) for left in p.left_out],
            "given_up": [asdict(record) for record in p.given_up],
            "missing_bases": p.missing_bases,
            "head": asdict(p.rebuilt.head),
            "next_id": p.rebuilt.next_id,
        }
        for p in plan.pipelines
    ]
    return {"applied": applied, "pipelines": pipelines, "left_out": [asdict(left) for left in plan.left_out]}


_COLUMNS = (
    Column("id", right=True), Column("kind"), Column("generation", right=True), Column("base", right=True),
    Column("interval (UTC)"), Column("size", right=True), Column("state"), Column("because", wraps=True),
)  # fmt: skip


def _print_plan(plan: RebuildPlan) -> None:
    for p in plan.pipelines:
        rows = [
            [
                str(t.record.checkpoint_id), t.record.kind.lower(), str(t.record.generation),
                "-" if t.record.base is None else str(t.record.base),
                when(t.record.interval.start_ms)[:16] if t.record.interval else "-",
                size(t.facts.size_bytes), t.record.state.lower(),
                _because(t),
            ]
            for t in p.entered
        ]  # fmt: skip
        if rows:
            table(p.pipeline, _COLUMNS, rows)
        _print_rebuilt(p)
    gone = {record.directory for p in plan.pipelines for record in p.given_up}
    for left in plan.left_out:
        if left.directory not in gone:
            note(f"left out: {left.directory}: {left.reason}")
    if not plan.pipelines:
        line("no snapshots of a pipeline lie on the storage")


def _because(taken: EnteredSnapshot) -> str:
    if taken.judgement is not None:
        return taken.record.note or taken.judgement.reason or "all of it was read, and it passes the gate"
    return "all of it was read" if taken.proof is Proof.UNKNOWN else str(taken.proof)


def _print_rebuilt(plan: PipelinePlan) -> None:
    head, next_id = plan.rebuilt.head, plan.rebuilt.next_id
    state = "nothing" if head.head is None else f"{plan.pipeline}/{head.head}"
    rescaled = "" if head.parallelism is None else f", parallelism {head.parallelism}"
    line(f"{plan.pipeline} stands on {state}, generation {head.generation}{rescaled}; the next id is {next_id}")
    if plan.registered:
        line(f"{count(len(plan.registered))} are in the catalog already, and stay as they are there")
    for taken in plan.entered:
        if not taken.completed:
            name = f"{plan.pipeline}/{taken.record.checkpoint_id}"
            note(f"goes into quarantine: {name}; --take {name} takes it as good")
    for record in plan.given_up:
        note(f"given up: {record.pipeline}/{record.checkpoint_id}: {record.reason.partition(': ')[2]}")
    for number in plan.missing_bases:
        note(f"not there any more: {plan.pipeline}/{number}, on which another one was built")
    for left in plan.left_out:
        note(f"left out: {left.directory}: {left.reason}")
