"""``statelib pipelines seed``: begin a pipeline with state that exists, instead of with its first events."""

from collections.abc import Iterator
from typing import Annotated, Any

import typer

from statelib.cli.ending import confirmed, errors
from statelib.cli.options import Json, Master, PipelineArgument, PlanOnly, SparkSettings, Yes
from statelib.cli.pairs import pairs_of
from statelib.cli.presenters.blocks import Block, Fields, Line, Note, present, show
from statelib.cli.presenters.console import ProgressBar
from statelib.cli.presenters.values import when
from statelib.cli.spark_session import session
from statelib.definition.pipeline import Pipeline
from statelib.definition.source.intervals import moment
from statelib.extras import require
from statelib.flows import wiring
from statelib.flows.savepoint.seeds import completed_seed, seed_interval
from statelib.model.amounts import keys_and_entries
from statelib.model.record import CheckpointRecord

OWNER = "statelib pipelines seed"
Place = Annotated[
    str,
    typer.Option(
        "--from",
        metavar="TABLE|PATH",
        help="A table or view of Spark's catalog, or a path, which has a / or comes with --format.",
    ),
]
Until = Annotated[
    str,
    typer.Option(
        help="The table has all events before this time, in the pipeline's schedule.time_zone unless it has an offset. "
        "The next interval begins here."
    ),
]
Mapped = Annotated[
    list[str] | None,
    typer.Option(
        "--map",
        metavar="FIELD=COLUMN",
        help="The column, or SQL expression, for a column of the key, a state, a field STATE.FIELD or a part of one, "
        "such as STATE.FIELD.sum of an average. Default: the column of the field's name. Repeatable.",
    ),
]
Without = Annotated[
    list[str] | None, typer.Option("--without", metavar="STATE", help="Begin with this state empty. Repeatable.")
]
Format = Annotated[str, typer.Option("--format", help="Format of the files under a path. Default: parquet.")]
Where = Annotated[str, typer.Option("--where", help="A condition in SQL: only these rows are taken.")]
SourceOption = Annotated[
    list[str] | None,
    typer.Option(
        "--option", metavar="NAME=VALUE", help="An option of Spark's reader, such as header=true. Repeatable."
    ),
]


def seed(
    pipeline: PipelineArgument,
    *,
    place: Place,
    until: Until,
    mapped: Mapped = None,
    without: Without = None,
    file_format: Format = "",
    where: Where = "",
    option: SourceOption = None,
    dry_run: PlanOnly = False,
    yes: Yes = False,
    master: Master = "local[*]",
    conf: SparkSettings = None,
    as_json: Json = False,
) -> None:
    """Begin a pipeline with a table that exists, instead of with its first events.

    The table has one row per key, with what the pipeline would have computed from all events before --until. It becomes
    the pipeline's first checkpoint, proved and registered like any other; the next run applies the interval that
    begins at --until. A pipeline that has state already is refused."""
    with errors(as_json):
        deployment = wiring.deployment()
        definition = deployment.pipeline(pipeline)
        until_ms = moment(until, definition.zone)
        seed_interval(definition, until_ms)
        require("spark", "quality")
        from statelib.spark.imports.seed import SeedTable, mapped_table, seed_from_table  # others start without Spark

        options, mapping = pairs_of("--option", option), pairs_of("--map", mapped)
        file_format = file_format or ("parquet" if "/" in place else "")
        table = SeedTable(place, file_format, options, where, mapping, tuple(without or ()))
        with wiring.planning_deployment() as planner:
            completed_seed(planner, definition, until_ms, str(table))
        result: tuple[CheckpointRecord, bool] | None = None
        with session(f"{pipeline} seed", master, conf) as spark:
            rows = mapped_table(spark, definition, table)
            plan = {"from": str(table), "until_ms": until_ms, "states": list(rows.states), "mapping": rows.expressions}
            if not as_json:
                show(_plan_view(definition, place, plan))
            if not dry_run:
                confirmed("Seed?", yes, as_json)
                with ProgressBar(1) as progress:
                    step = progress.next_piece(f"seed of {pipeline}")
                    result = seed_from_table(
                        spark, deployment, definition, table, until_ms, owner=OWNER, step=step, mapped=rows
                    )
    present(_document(plan, dry_run, result), _result_view(definition, until_ms, result), as_json)


def _document(plan: dict[str, Any], dry_run: bool, result: tuple[CheckpointRecord, bool] | None) -> dict[str, Any]:
    record, existed = result or (None, False)
    return {"plan": plan, "dry_run": dry_run, "checkpoint": record, "already_completed": existed}


def _plan_view(pipeline: Pipeline, place: str, plan: dict[str, Any]) -> Iterator[Block]:
    empty = [name for name in pipeline.states if name not in plan["states"]]
    yield Fields(
        [
            ("seed", f"{pipeline.name} with all events before {when(plan['until_ms'])} UTC"),
            ("from", place),
            *(("fills", f"{path} with {text}") for path, text in plan["mapping"].items()),
            *(("begins empty", name) for name in empty),
        ]
    )


def _result_view(pipeline: Pipeline, until_ms: int, result: tuple[CheckpointRecord, bool] | None) -> Iterator[Block]:
    yield Line()
    if result is None:
        yield Note("dry run: nothing was changed")
        return
    record, existed = result
    name = f"{record.pipeline}/{record.checkpoint_id}"
    if existed:
        yield Line(f"{name} is this seed already: nothing was changed")
    else:
        yield Line(
            f"the head of {record.pipeline} is {name}, with {keys_and_entries(record.keys, record.entries or 0)}"
        )
    yield Line(f"next: the run of {pipeline.name}.checkpoint that starts at {when(until_ms)} UTC")
