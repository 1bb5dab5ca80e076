"""``statelib run`` and ``statelib savepoint create``: what the DAGs of a pipeline do, without Airflow."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import Annotated

import typer

from statelib.cli import completion
from statelib.cli.commands.running.group_runs import GroupRun, execute_group, planned_group
from statelib.cli.ending import errors, fail
from statelib.cli.options import Json, Master, PipelineArgument, SparkSettings
from statelib.cli.paths import absolute_target
from statelib.cli.presenters.blocks import Block, Line, Note, TableColumn, TextTable, present, show
from statelib.cli.presenters.console import ProgressBar
from statelib.cli.presenters.values import count, minute, size, when
from statelib.cli.spark_session import require_for_runs, session
from statelib.definition.pipeline import Pipeline
from statelib.definition.source.intervals import moment
from statelib.errors import InvalidRequestError, StatelibError
from statelib.flows import wiring
from statelib.flows.checkpoint.next_intervals import check_over, next_intervals
from statelib.flows.publication.steps import publish_tables
from statelib.flows.savepoint.steps import FORMATS
from statelib.flows.wiring import Deployment
from statelib.model.amounts import amount, keys_and_entries
from statelib.model.checkpoint import DataInterval
from statelib.model.record import CheckpointRecord
from statelib.model.termination import StopMode

Results = list[tuple[CheckpointRecord, bool]]
"""The completed checkpoints of a run. The flag beside a record: the checkpoint existed before the run."""

OWNER, SAVEPOINT_OWNER = "statelib run", "statelib savepoint create"
Target = Annotated[
    str | None,
    typer.Option(
        "--target",
        "-t",
        help="Directory or URI under which the savepoint's directory is made. Default: savepoints in the storage.",
    ),
]
Form = Annotated[
    str,
    typer.Option("--format", help="canonical, which every backend and Flink restore; or native."),
]
Start = Annotated[
    str | None,
    typer.Option(
        "--start",
        help="Start of the first interval, in the pipeline's schedule.time_zone unless it has an offset. Default: "
        "where the state ends.",
    ),
]
End = Annotated[
    str | None,
    typer.Option("--end", help="Apply all intervals that end by this time, written like --start. Default: one."),
]
Whole = Annotated[bool, typer.Option("--whole", help="Apply the range from --start to --end as one interval.")]
AssumeReady = Annotated[
    bool,
    typer.Option(
        "--assume-ready",
        help="Do not check `ready` of the sources, nor whether an interval is over: the events are complete.",
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", "-n", help="List the intervals, and apply none.")]
OptionalPipeline = Annotated[
    str | None, typer.Argument(metavar="PIPELINE", help="Name of the pipeline.", autocompletion=completion.pipelines)
]
Group = Annotated[
    str | None,
    typer.Option("--group", "-g", help="Run all pipelines of this group, in one Spark job, in place of a single one."),
]
Remark = Annotated[str, typer.Option("--note", help="The purpose of the savepoint. It is kept with it.")]


def run(
    pipeline: OptionalPipeline = None,
    *,
    group: Group = None,
    start: Start = None,
    end: End = None,
    whole: Whole = False,
    assume_ready: AssumeReady = False,
    dry_run: DryRun = False,
    master: Master = "local[*]",
    conf: SparkSettings = None,
    as_json: Json = False,
) -> None:
    """Apply data intervals to a pipeline's state without Airflow, and take one checkpoint per interval.

    Each interval goes through the steps of the DAG: begin, snapshot in Spark, check, register. If one fails, its
    checkpoint is aborted, and no later interval is applied. An interval that the state has already is not applied
    again. If that is so for all intervals until --end, there is nothing to do, which is no failure. An interval whose
    events are not complete, by `ready` of its sources or because it is not over, is refused.

    With --group, each pipeline begins, is checked and is registered on its own. One that fails does not stop the
    others; the exit status is then 1. Without --end, a pipeline whose next interval is not over does not stop them
    either: it waits.

    If an interval fails, the JSON document of the error has `checkpoints`, too: those that are complete."""
    with errors(as_json):
        deployment = wiring.deployment()
        if pipeline is None or group is not None:
            grouped = planned_group(
                deployment, _only_group(pipeline, group), (start, end), whole=whole, assume_ready=assume_ready
            )
            if not dry_run:
                execute_group(deployment, grouped, (master, conf), owner=OWNER, assume_ready=assume_ready)
            _present_group(grouped, dry_run=dry_run, as_json=as_json)
            return
        definition = deployment.pipeline(pipeline)
        bounds = [None if text is None else moment(text, definition.zone) for text in (start, end)]
        with wiring.planning_deployment() as planner:
            chosen = next_intervals(planner, definition, bounds[0], bounds[1], whole=whole)
        check_over(definition, chosen, assume_ready=assume_ready)
        results: Results = []
        if not dry_run:
            results = _applied(
                deployment, definition, chosen, (master, conf), assume_ready=assume_ready, as_json=as_json
            )
    document: dict[str, object] = {"pipeline": pipeline, "group": None, "dry_run": dry_run, "intervals": chosen}
    document |= {"checkpoints": _documents(results), "errors": {}}
    present(document, _result_view(pipeline, chosen, results, dry_run=dry_run, end_ms=bounds[1]), as_json)


def _result_view(
    pipeline: str, chosen: Sequence[DataInterval], results: Results, *, dry_run: bool, end_ms: int | None
) -> Iterable[Block]:
    if not chosen:
        until = "of its schedule" if end_ms is None else f"that end by {when(end_ms)} UTC"
        return [Note(f"nothing to apply: the state of {pipeline} has all intervals {until}")]
    return _dry_run_view(chosen) if dry_run else [_checkpoint_table(pipeline, results)]


def _applied(
    deployment: Deployment,
    pipeline: Pipeline,
    intervals: Sequence[DataInterval],
    spark: tuple[str, list[str] | None],
    *,
    assume_ready: bool,
    as_json: bool,
) -> Results:
    """Apply the intervals one after the other. If one fails, show those that are complete. Without intervals, publish
    what is not published yet."""
    if not intervals:
        publish_tables(deployment, pipeline)
        return []
    require_for_runs([pipeline])
    results: Results = []
    try:
        with session(f"{pipeline.name} run", *spark) as running, ProgressBar(len(intervals)) as progress:
            from statelib.spark.snapshot.runs.whole_run import run_interval  # other commands start without Spark

            for interval in intervals:
                step = progress.next_piece(f"{pipeline.name} {minute(interval.start_ms)}")
                result = run_interval(
                    running, deployment, pipeline, interval, owner=OWNER, step=step, assume_ready=assume_ready
                )
                results.append(result)
    except StatelibError as error:
        failed = intervals[len(results)]
        unpublished = _registered(deployment, pipeline, failed)
        complete = [*results, *unpublished]
        if as_json:
            fail(error, as_json, checkpoints=_documents(complete))
        if unpublished:
            show([_checkpoint_table(pipeline.name, complete, last="not published")])
        elif results:
            show([_checkpoint_table(pipeline.name, results, failed=failed)])
        raise
    return results


def _registered(deployment: Deployment, pipeline: Pipeline, interval: DataInterval) -> Results:
    """Return the checkpoint of an interval that failed, if it is registered and only not published."""
    name = pipeline.name
    head = deployment.catalog().head(name).head
    record = None if head is None else deployment.catalog().get(name, head)
    return [(record, False)] if record is not None and record.interval == interval else []


def _documents(results: Results) -> list[dict[str, object]]:
    """Return the checkpoints for the JSON document of a run."""
    return [asdict(record) | {"already_completed": existed} for record, existed in results]


def _only_group(pipeline: str | None, group: str | None) -> str:
    if pipeline is not None or group is None:
        raise InvalidRequestError(
            "expected the name of a pipeline or --group, found " + ("none" if group is None else "both"),
            kind="pipeline-or-group",
            hint="statelib run sales, or statelib run --group hourly",
        )
    return group


def _present_group(run: GroupRun, *, dry_run: bool, as_json: bool) -> None:
    """Print the result. Raise typer.Exit with status 1 if a pipeline failed."""
    done = [] if dry_run else [_checkpoint_table(run.group, run.results, pipeline=False)]
    shown = run.plan() if dry_run else done
    present(run.document(dry_run), [*shown, *run.failures()], as_json)
    if run.errors:
        raise typer.Exit(1)


def _dry_run_view(intervals: Sequence[DataInterval]) -> Iterator[Block]:
    for interval in intervals:
        yield Line(f"{when(interval.start_ms)} to {when(interval.end_ms)} UTC")
    yield Note(f"dry run: {amount(len(intervals), 'interval')} would be applied")


def _checkpoint_table(
    title: str, results: Results, *, pipeline: bool = True, failed: DataInterval | None = None, last: str = ""
) -> TextTable:
    """Return a row per checkpoint. ``pipeline``: whether the checkpoints are of the pipeline in the title; otherwise
    each row names its own. ``failed``: the interval that was not applied because of an error; None if there is none.
    ``last``: what became of the last one, if that is not plain."""
    columns = (
        TableColumn("id", right=True), TableColumn("interval (UTC)"), TableColumn("events", right=True),
        TableColumn("keys", right=True), TableColumn("entries", right=True), TableColumn("size", right=True),
        TableColumn(""),
    )  # fmt: skip
    rows = [
        [
            str(record.checkpoint_id) if pipeline else f"{record.pipeline}/{record.checkpoint_id}",
            minute(record.interval.start_ms) if record.interval else "-",
            count(record.events.applied) if record.events else "-",
            count(record.keys),
            count(record.entries),
            size(record.size_bytes),
            "was there already" if existed else "completed",
        ]
        for record, existed in results
    ]
    if last:
        rows[-1][-1] = last
    if failed is not None:
        rows.append(["-", minute(failed.start_ms), *["-"] * 4, "failed"])
    return TextTable(title, columns, rows)


def create(
    pipeline: PipelineArgument,
    *,
    target: Target = None,
    form: Form = "canonical",
    remark: Remark = "",
    master: Master = "local[*]",
    conf: SparkSettings = None,
    as_json: Json = False,
) -> None:
    """Write a savepoint of a pipeline's present state. It belongs to you: retention never deletes it."""
    with errors(as_json):
        check_format(form)
        deployment = wiring.begun_deployment()
        definition = deployment.pipeline(pipeline)
        record = new_savepoint(
            deployment, definition, form=form, target=target, note=remark, owner=SAVEPOINT_OWNER, spark=(master, conf)
        )
    name = f"{pipeline}/{record.checkpoint_id}"
    present(record, [Line(f"{name} holds {contents(record)}"), Line(record.directory)], as_json)


def contents(record: CheckpointRecord) -> str:
    """Return the keys, entries and size of a savepoint as text. Keys are left out if nobody counted them."""
    return f"{keys_and_entries(record.keys, record.entries)}, {size(record.size_bytes)}"


def new_savepoint(
    deployment: Deployment,
    pipeline: Pipeline,
    *,
    form: str,
    target: str | None,
    note: str,
    owner: str,
    spark: tuple[str, list[str] | None],
    stop: StopMode | None = None,
) -> CheckpointRecord:
    """Take a savepoint in a Spark session of its own. ``target``: the directory or URI as the user typed it; ``spark``:
    the master and the settings of the session.

    Raise what :func:`~statelib.spark.snapshot.runs.whole_run.take_savepoint` raises."""
    require_for_runs([pipeline])
    with session(f"{pipeline.name} savepoint", *spark) as running, ProgressBar(1) as progress:
        from statelib.spark.snapshot.runs.whole_run import take_savepoint  # other commands start without Spark

        return take_savepoint(
            running, deployment, pipeline, form=form, target=None if target is None else absolute_target(target),
            note=note, owner=owner, step=progress.next_piece(f"savepoint of {pipeline.name}"), stop=stop,
        )  # fmt: skip


def check_format(form: str) -> None:
    """Raise InvalidRequestError (``bad-format``) unless ``form`` is a format of savepoints."""
    if form not in FORMATS:
        raise InvalidRequestError(f"format {form!r}: expected {' or '.join(FORMATS)}", kind="bad-format")
