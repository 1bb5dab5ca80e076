"""``statelib mend``: correct one interval of a state, without a replay of the intervals after it."""

import json
from collections.abc import Iterator
from typing import Annotated, Any

import typer

from statelib.cli.ending import confirmed, errors
from statelib.cli.options import Json, Master, PipelineArgument, SparkSettings, Yes
from statelib.cli.presenters.blocks import Block, Line, Note, TableColumn, TextTable, present, show
from statelib.cli.presenters.console import ProgressBar, working
from statelib.cli.presenters.differences import differences_table
from statelib.cli.presenters.values import count, minute
from statelib.cli.spark_session import require_for_runs, session
from statelib.definition.source.intervals import moment
from statelib.flows import wiring
from statelib.flows.mending.differences import Differences
from statelib.flows.mending.plan import MendPlan
from statelib.flows.mending.steps import interval_to_mend, plan_mend
from statelib.model.amounts import amount
from statelib.model.record import CheckpointRecord
from statelib.savepoints.diff.changes import WORDS

OWNER = "statelib mend"
Interval = Annotated[
    str,
    typer.Option(
        "--interval",
        "-i",
        help="Start of the interval to correct, in the pipeline's schedule.time_zone unless it has an offset.",
    ),
]


def mend(
    pipeline: PipelineArgument,
    *,
    interval: Interval,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", "-n", help="Show the plan and what would differ, and change nothing.")
    ] = False,
    yes: Yes = False,
    master: Master = "local[*]",
    conf: SparkSettings = None,
    as_json: Json = False,
) -> None:
    """Correct one interval whose source has changed, without a replay of the intervals after it.

    The events of this interval alone are read again. The result goes through the gate like any checkpoint and becomes
    the head; its base is the present head. Before you are asked, the plan and the differences are shown; with --yes
    the differences are not computed."""
    with errors(as_json):
        deployment = wiring.deployment()
        definition = deployment.pipeline(pipeline)
        deployment.existing_catalog()
        with wiring.planning_deployment() as planner:
            chosen = interval_to_mend(planner, definition, moment(interval, definition.zone))
            plan = plan_mend(planner, definition, chosen)
        if not as_json:
            show(_plan_view(plan))
        require_for_runs([definition])
        record, differences = None, None
        with session(f"{pipeline} mend", master, conf) as spark:
            from statelib.spark.snapshot.mend_preview import preview_mend  # other commands start without Spark
            from statelib.spark.snapshot.runs.whole_run import mend_interval

            if dry_run or not yes:
                with working(f"comparing {minute(chosen.start_ms)}"):
                    differences = preview_mend(spark, deployment, definition, plan)
                if not as_json:
                    show(_differences_view(differences))
            if not dry_run:
                confirmed("Mend?", yes, as_json)
                with ProgressBar(1) as progress:
                    step = progress.next_piece(f"{pipeline} {minute(chosen.start_ms)}")
                    record = mend_interval(spark, deployment, definition, plan, owner=OWNER, step=step)
    document = {"plan": json.loads(plan.to_json()), "states": _states(differences), "checkpoint": record}
    present(document, _result_view(plan, record), as_json)


def _plan_view(plan: MendPlan) -> Iterator[Block]:
    yield Line(f"mend {plan.pipeline}")
    for line in plan.lines():
        yield Line(f"  {line}")


def _states(differences: Differences | None) -> list[dict[str, Any]]:
    states = differences.states if differences else ()
    return [{"name": each.state, **each.counts, "sample": each.sample} for each in states]


def _differences_view(differences: Differences) -> Iterator[Block]:
    columns = [TableColumn("state"), *(TableColumn(word, right=True) for word in WORDS)]
    rows = [[each.state, *(count(each.counts[word]) for word in WORDS)] for each in differences.states]
    yield TextTable(f"Differences, by {amount(differences.events, 'event')}", columns, rows)
    for each in differences.states:
        if each.sample:
            yield differences_table(each.state, each.sample)


def _result_view(plan: MendPlan, record: CheckpointRecord | None) -> Iterator[Block]:
    if record is None:
        yield Note("dry run: nothing was changed")
        return
    name = f"{record.pipeline}/{record.checkpoint_id}"
    yield Line(f"the head of {record.pipeline} is {name}, which {record.note}")
    yield Line(f"what changed: statelib checkpoints diff {plan.pipeline}/{plan.checkpoint_id} {name}")
    yield Line(f"undo: statelib restore {plan.pipeline} {plan.checkpoint_id}")
