"""``statelib pipelines seed``: begin a pipeline with state that exists, instead of with its first events."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Annotated, Any

import typer

from statelib.cli.ending import confirmed, errors
from statelib.cli.options import Json, Master, PipelineArgument, PlanOnly, SparkSettings, Yes
from statelib.cli.pairs import pairs_of
from statelib.cli.paths import absolute_target
from statelib.cli.presenters.blocks import Block, Fields, Line, Note, present, show
from statelib.cli.presenters.console import ProgressBar
from statelib.cli.presenters.values import when
from statelib.cli.spark_session import require_for_runs, session
from statelib.definition.pipeline import Pipeline
from statelib.definition.source.intervals import moment
from statelib.errors import InvalidRequestError
from statelib.flows import wiring
from statelib.flows.savepoint.seeds import completed_seed, seed_interval, snapshot_for_seed
from statelib.flows.wiring import Deployment
from statelib.model.amounts import keys_and_entries
from statelib.model.record import CheckpointRecord

OWNER = "statelib pipelines seed"
Result = tuple[CheckpointRecord, bool]
Place = Annotated[
    str,
    typer.Option(
        "--from",
        metavar="TABLE|PATH",
        help="A table or view of Spark's catalog, a path, which has a / or comes with --format, or with --operator the "
        "path of a savepoint.",
    ),
]
Until = Annotated[
    str,
    typer.Option(
        help="The state has all events before this time, in the pipeline's schedule.time_zone unless it has an offset. "
        "The next interval begins here."
    ),
]
Operator = Annotated[
    str,
    typer.Option("--operator", metavar="UID", help="Begin with this operator of a Flink savepoint: its uid or its id."),
]
AllowNonRestored = Annotated[
    bool,
    typer.Option(
        "--allow-non-restored-state", help="Leave out states of the savepoint that the pipeline does not have."
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
    typer.Option("--option", metavar="NAME=VALUE", help="An option of Spark's reader. Repeatable."),
]


@dataclass(frozen=True)
class _Seeding:
    """A seed before Spark has started: the pipeline, the end of its events, and its source. ``rows``: the options of
    the table; empty for a savepoint."""

    deployment: Deployment
    pipeline: Pipeline
    until_ms: int
    place: str
    operator: str = ""
    rows: dict[str, Any] = field(default_factory=dict)


def seed(
    pipeline: PipelineArgument,
    *,
    place: Place,
    until: Until,
    operator: Operator = "",
    allow_non_restored_state: AllowNonRestored = False,
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
    """Begin a pipeline with a table that exists or with a Flink savepoint, instead of with its first events.

    A table has one row per key, with what the pipeline would have computed from all events before --until. The state
    becomes the pipeline's first checkpoint, proved and registered like any other; the next run applies the interval
    that begins at --until. A pipeline that has state already is refused."""
    with errors(as_json):
        deployment = wiring.deployment()
        definition = deployment.pipeline(pipeline)
        if allow_non_restored_state:
            definition = definition.allowing_non_restored_state()
        until_ms = moment(until, definition.zone)
        seed_interval(definition, until_ms)
        rows = {
            "format": file_format, "options": pairs_of("--option", option, may_be_empty=True), "where": where,
            "mapping": pairs_of("--map", mapped), "without": tuple(without or ()),
        }  # fmt: skip
        if operator and any(rows.values()):
            raise InvalidRequestError(
                "--map, --without, --format, --where and --option belong to a table, and --operator to a savepoint",
                kind="bad-mapping",
            )
        require_for_runs([definition])
        chosen = _Seeding(deployment, definition, until_ms, place, operator, {} if operator else rows)
        plan, result = _seeded(chosen, (master, conf), dry_run=dry_run, yes=yes, as_json=as_json)
    record, existed = result or (None, False)
    document = {"plan": plan, "dry_run": dry_run, "checkpoint": record, "already_completed": existed}
    present(document, _result_view(definition, until_ms, result), as_json)


def _seeded(
    chosen: _Seeding, spark: tuple[str, list[str] | None], *, dry_run: bool, yes: bool, as_json: bool
) -> tuple[dict[str, Any], Result | None]:
    """Show the plan, and carry it out unless it is a dry run. Return (plan, what became of it)."""
    text, prepare = _of_savepoint(chosen) if chosen.operator else _of_table(chosen)
    with wiring.planning_deployment() as planner:
        completed_seed(planner, chosen.pipeline, chosen.until_ms, text)
    with session(f"{chosen.pipeline.name} seed", *spark) as running:
        facts, run = prepare(running)
        plan = {"from": text, "until_ms": chosen.until_ms, "mapping": {}, "restores": [], "not_restored": [], **facts}
        if not as_json:
            show(_plan_view(chosen, plan))
        if dry_run:
            return plan, None
        confirmed("Seed?", yes, as_json)
        with ProgressBar(1) as progress:
            return plan, run(progress.next_piece(f"seed of {chosen.pipeline.name}"))


Run = Callable[[Callable[[str], None]], Result]
Prepared = tuple[dict[str, Any], Run]
"""Facts of the plan, and the function that carries it out. Its argument is called with the name of each step."""


def _of_table(chosen: _Seeding) -> tuple[str, Callable[[Any], Prepared]]:
    from statelib.spark.imports.seed import SeedTable, mapped_table, seed_from_table  # others start without Spark

    default = "parquet" if "/" in chosen.place else ""
    table = SeedTable(chosen.place, **{**chosen.rows, "format": chosen.rows["format"] or default})

    def prepare(spark: Any) -> Prepared:
        rows = mapped_table(spark, chosen.deployment, chosen.pipeline, table)
        return {"states": list(rows.states), "mapping": dict(rows.expressions)}, lambda step: seed_from_table(
            spark, chosen.deployment, chosen.pipeline, table, chosen.until_ms, owner=OWNER, step=step, mapped=rows
        )

    return str(table), prepare


def _of_savepoint(chosen: _Seeding) -> tuple[str, Callable[[Any], Prepared]]:
    from statelib.spark.snapshot.runs.whole_run import seed_pipeline
    from statelib.spark.snapshot.seed import Seed  # here, so that other commands start without Spark

    source = snapshot_for_seed(
        chosen.deployment, chosen.pipeline, absolute_target(chosen.place), chosen.operator, chosen.until_ms
    )
    restored = Seed(f"{source.opened.directory} operator {chosen.operator}", snapshot=source.opened)
    restores, left_out = list(source.resolutions()), list(source.non_restored())
    facts = {"states": list(chosen.pipeline.states), "restores": restores, "not_restored": left_out}

    def prepare(spark: Any) -> Prepared:
        return facts, lambda step: seed_pipeline(
            spark, chosen.deployment, chosen.pipeline, restored, chosen.until_ms, owner=OWNER, step=step
        )

    return restored.text, prepare


def _plan_view(chosen: _Seeding, plan: dict[str, Any]) -> Iterator[Block]:
    empty = [name for name in chosen.pipeline.states if name not in plan["states"]]
    yield Fields(
        [
            ("seed", f"{chosen.pipeline.name} with all events before {when(chosen.until_ms)} UTC"),
            ("from", f"{chosen.place} operator {chosen.operator}" if chosen.operator else chosen.place),
            *(("fills", f"{path} with {text}") for path, text in plan["mapping"].items()),
            *(("state", text.removeprefix("state ")) for text in plan["restores"]),
            *(("not restored", text.removeprefix("state ")) for text in plan["not_restored"]),
            *(("begins empty", name) for name in empty),
        ]
    )


def _result_view(pipeline: Pipeline, until_ms: int, result: Result | None) -> Iterator[Block]:
    yield Line()
    if result is None:
        yield Note("dry run: nothing was changed")
        return
    record, existed = result
    name = f"{record.pipeline}/{record.checkpoint_id}"
    if existed:
        yield Line(f"{name} is this seed already: nothing was changed")
    else:
        contents = keys_and_entries(record.keys, record.entries)
        yield Line(f"the head of {record.pipeline} is {name}, with {contents}")
    yield Line(f"next: the run of {pipeline.checkpoint_dag} that starts at {when(until_ms)} UTC")
