"""``statelib catalog``: migrate the catalog's schema, check its rows, or rebuild it from the storage."""

from collections.abc import Iterator
from dataclasses import asdict
from typing import Annotated, Any

import typer

from statelib.cli import completion
from statelib.cli.ending import confirmed, errors
from statelib.cli.options import Json, PipelineOption, PlanOnly, Yes
from statelib.cli.paths import absolute_target
from statelib.cli.presenters.blocks import Block, Line, Note, TableColumn, TextTable, present, show
from statelib.cli.presenters.console import working
from statelib.cli.presenters.values import count, minute, size
from statelib.coordinator.rebuilding import Proof
from statelib.flows import wiring
from statelib.flows.recovery.pipeline_rebuild import EnteredSnapshot, PipelinePlan
from statelib.flows.recovery.rebuild import RebuildPlan, apply_rebuild, plan_rebuild
from statelib.flows.views.inspection import parse_checkpoint
from statelib.model.amounts import amount

app = typer.Typer(no_args_is_help=True, help="The catalog: the database that records checkpoints.")

LeaveOut = Annotated[
    list[str] | None,
    typer.Option(
        "--leave-out",
        metavar="CHECKPOINT",
        help="<pipeline>/<id> that is not entered. Repeatable.",
        autocompletion=completion.checkpoints,
    ),
]
Take = Annotated[
    list[str] | None,
    typer.Option(
        "--take",
        metavar="CHECKPOINT",
        help="<pipeline>/<id> that is entered as complete, although the quality gate refuses it or cannot judge it."
        " Repeatable.",
        autocompletion=completion.checkpoints,
    ),
]
GiveUp = Annotated[
    list[str] | None,
    typer.Option(
        "--give-up",
        metavar="CHECKPOINT",
        help="<pipeline>/<id> of a snapshot that is left out: it is entered as aborted, so that statelib orphans finds"
        " its files. Repeatable.",
        autocompletion=completion.checkpoints,
    ),
]


@app.command(epilog="Example: statelib catalog migrate")
def migrate(as_json: Json = False) -> None:
    """Bring the catalog to the schema of this version. A current catalog is left as it is."""
    with errors(as_json):
        wiring.deployment().migrate_catalog()
    present({"catalog": "current"}, [Line("catalog is current")], as_json)


@app.command(epilog="Example: statelib catalog check --json")
def check(as_json: Json = False) -> None:
    """Check every row of the catalog and the history of each pipeline. Exit status 1 if there is a fault."""
    with errors(as_json):
        rows, faults = wiring.deployment().existing_catalog().browsing.check()
    view: list[Block] = [
        *(Line(f"{f.row}: {f.column}: expected {f.expected}, found {f.found}") for f in faults),
        Note(f"{amount(rows, 'row')}, {amount(len(faults), 'fault')}"),
    ]
    present({"rows": rows, "faults": faults}, view, as_json)
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
        list[str] | None,
        typer.Option("--also", metavar="DIRECTORY", help="Directory of savepoints outside the storage. Repeatable."),
    ] = None,
    leave_out: LeaveOut = None,
    take: Take = None,
    give_up: GiveUp = None,
    merge: Annotated[
        bool,
        typer.Option("--merge", help="Add to a catalog that is older than the storage. Outdated rows are completed."),
    ] = False,
    dry_run: PlanOnly = False,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Enter the snapshots on the storage into a catalog that was lost, or that comes from an old backup.

    Stop all runs first. Heads, references and history are read from the snapshots. What only the catalog recorded is
    lost: aborted and deleted checkpoints, notes, reports, claims, and a restore that no run followed. Checkpoints that
    no other one was built on are judged again by the pipeline file: those that do not pass, or that cannot be judged,
    go into quarantine. Exit status 1 if a snapshot is damaged, and therefore left out."""
    with errors(as_json):
        places = [absolute_target(text) for text in also or ()]
        ids = [[parse_checkpoint(text) for text in texts or ()] for texts in (leave_out, take, give_up)]
        with working("reading snapshots that nothing was built on"), wiring.planning_deployment() as planner:
            plan = plan_rebuild(
                planner, pipeline=pipeline, also=places, leave_out=ids[0], take=ids[1], give_up=ids[2],
                merge=merge,
            )  # fmt: skip
        if not as_json:
            show(_plan_view(plan))
        if not dry_run:
            confirmed("Enter them?", yes, as_json)
            apply_rebuild(wiring.deployment(), plan)
    snapshots = amount(sum(len(p.entered) for p in plan.pipelines), "snapshot")
    outcome = f"dry run: {snapshots} would be entered" if dry_run else f"{snapshots} entered"
    present(_document(plan, applied=not dry_run), [Note(outcome)], as_json)
    if plan.damaged():
        raise typer.Exit(1)


def _document(plan: RebuildPlan, *, applied: bool) -> dict[str, Any]:
    pipelines = [
        {
            "pipeline": p.pipeline,
            "entered": [asdict(t.record) | {"known_because": t.proof, "state_because": _because(t)} for t in p.entered],
            "already_known": p.registered,
            "left_out": p.left_out,
            "given_up": p.given_up,
            "missing_bases": p.missing_bases,
            "head": p.rebuilt.head,
            "next_id": p.rebuilt.next_id,
        }
        for p in plan.pipelines
    ]
    return {"applied": applied, "pipelines": pipelines, "left_out": plan.left_out}


_COLUMNS = (
    TableColumn("id", right=True), TableColumn("kind"), TableColumn("generation", right=True),
    TableColumn("base", right=True), TableColumn("interval (UTC)"), TableColumn("size", right=True),
    TableColumn("state"), TableColumn("because", wraps=True),
)  # fmt: skip


def _plan_view(plan: RebuildPlan) -> Iterator[Block]:
    for p in plan.pipelines:
        if p.entered:
            yield TextTable(p.pipeline, _COLUMNS, [_cells(snapshot) for snapshot in p.entered])
        yield from _pipeline_view(p)
    given_up = {record.directory for p in plan.pipelines for record in p.given_up}
    for left_out in plan.left_out:
        if left_out.directory not in given_up:
            yield Note(f"left out: {left_out.directory}: {left_out.reason}")
    if not plan.pipelines:
        yield Line("no snapshots of a pipeline lie on the storage")


def _cells(snapshot: EnteredSnapshot) -> list[str]:
    record = snapshot.record
    return [
        str(record.checkpoint_id),
        record.kind.lower(),
        str(record.generation),
        "-" if record.base is None else str(record.base),
        minute(record.interval.start_ms) if record.interval else "-",
        size(snapshot.facts.size_bytes),
        record.state.lower(),
        _because(snapshot),
    ]


def _because(snapshot: EnteredSnapshot) -> str:
    """Return the reason for the state in which a snapshot is entered."""
    if snapshot.judgement is not None:
        return snapshot.record.note or snapshot.judgement.reason or "all of it was read, and it passes the gate"
    return "all of it was read" if snapshot.proof is Proof.UNKNOWN else str(snapshot.proof)


def _pipeline_view(plan: PipelinePlan) -> Iterator[Block]:
    """Yield the head of a pipeline after the rebuild, then the notes on snapshots that need attention."""
    head, next_id = plan.rebuilt.head, plan.rebuilt.next_id
    checkpoint = "none" if head.head is None else f"{plan.pipeline}/{head.head}"
    rescaled = "" if head.parallelism is None else f", parallelism {head.parallelism}"
    yield Line(
        f"the head of {plan.pipeline} is {checkpoint}, generation {head.generation}{rescaled}; the next id is {next_id}"
    )
    if plan.registered:
        stay = "is" if len(plan.registered) == 1 else "are"
        yield Line(f"{count(len(plan.registered))} {stay} in the catalog already, without any change")
    for snapshot in plan.entered:
        if not snapshot.completed:
            name = f"{plan.pipeline}/{snapshot.record.checkpoint_id}"
            yield Note(f"goes into quarantine: {name}; --take {name} takes it as good")
    for record in plan.given_up:
        yield Note(f"given up: {record.pipeline}/{record.checkpoint_id}: {record.reason.partition(': ')[2]}")
    for number in plan.missing_bases:
        yield Note(f"not there any more: {plan.pipeline}/{number}, on which another one was built")
    for left_out in plan.left_out:
        yield Note(f"left out: {left_out.directory}: {left_out.reason}")
