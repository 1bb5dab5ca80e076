"""``statelib run`` and ``statelib savepoint create``: the flows of the DAGs, without Airflow."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from statelib.cli import completion
from statelib.cli.output import Column, Json, Steps, count, errors, line, note, print_json, size, table, when
from statelib.cli.sparks import Master, Settings, session
from statelib.definition.pipeline import Pipeline
from statelib.definition.source.intervals import moment
from statelib.errors import InvalidRequestError
from statelib.extras import require
from statelib.flows.checkpoint.next_intervals import next_intervals
from statelib.flows.savepoint.steps import FORMATS
from statelib.flows.wiring import Deployment, begun_deployment, deployment, planning_deployment
from statelib.model.amounts import amount, keys_and_entries
from statelib.model.record import CheckpointRecord
from statelib.model.termination import StopMode

OWNER, SAVEPOINT_OWNER = "statelib run", "statelib savepoint create"
Target = Annotated[
    str | None, typer.Option("--target", "-t", help="Directory or URI in which the savepoint gets its own.")
]
Form = Annotated[str, typer.Option("--format", help="canonical, which any backend and Flink restore; or native.")]
Remark = Annotated[str, typer.Option("--note", help="Kept with it: what it is for.")]
Name = Annotated[str, typer.Argument(help="Name of the pipeline.", autocompletion=completion.pipelines)]


def run(
    pipeline: Name,
    *,
    start: Annotated[
        str | None, typer.Option("--start", help="Where the first interval begins; by default where the state ends.")
    ] = None,
    end: Annotated[
        str | None, typer.Option("--end", help="Apply all intervals that end by then; by default just one.")
    ] = None,
    whole: Annotated[bool, typer.Option("--whole", help="The range is one interval, whatever the schedule.")] = False,
    assume_ready: Annotated[
        bool, typer.Option("--assume-ready", help="Do not look at source.ready: the events are complete.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", "-n", help="List the intervals, apply none.")] = False,
    master: Master = "local[*]",
    conf: Settings = None,
    as_json: Json = False,
) -> None:
    """Apply data intervals to a pipeline's state without Airflow, one checkpoint each.

    Begin, snapshot in Spark, check, register, as its DAG does. What fails is aborted, and nothing after it is run.
    An interval that the state holds already is not applied again. One whose events are not complete, as source.ready
    of the pipeline file says it, is refused, with what is missing."""
    with errors(as_json):
        here = deployment()
        definition = here.pipeline(pipeline)
        bounds = [None if text is None else moment(text) for text in (start, end)]
        with planning_deployment() as planner:
            chosen = next_intervals(planner, definition, bounds[0], bounds[1], whole=whole)
        done: list[tuple[CheckpointRecord, bool]] = []
        if not dry_run:
            require("spark", "quality")
            with session(f"{pipeline} run", master, conf) as spark, Steps(len(chosen)) as steps:
                from statelib.spark.snapshot.whole_run import run_interval  # other commands start without Spark

                for interval in chosen:
                    step = steps.of(f"{pipeline} {when(interval.start_ms)[:16]}")
                    result = run_interval(
                        spark, here, definition, interval, owner=OWNER, step=step, assume_ready=assume_ready
                    )
                    done.append(result)
    if as_json:
        print_json({"pipeline": pipeline, "dry_run": dry_run, "intervals": chosen, "checkpoints": _told(done)})
    elif dry_run:
        for interval in chosen:
            line(f"{when(interval.start_ms)} to {when(interval.end_ms)} UTC")
        note(f"dry run: {amount(len(chosen), 'interval')} would be applied")
    else:
        table(pipeline, _COLUMNS, [_row(record, before) for record, before in done])


def _told(done: list[tuple[CheckpointRecord, bool]]) -> list[dict[str, Any]]:
    return [asdict(record) | {"already_completed": before} for record, before in done]


_COLUMNS = (
    Column("id", right=True), Column("interval (UTC)"), Column("events", right=True), Column("keys", right=True),
    Column("entries", right=True),
    Column("size", right=True), Column(""),
)  # fmt: skip


def _row(record: CheckpointRecord, before: bool) -> list[str]:
    interval = when(record.interval.start_ms)[:16] if record.interval else "-"
    events = count(record.events.applied) if record.events else "-"
    told = "was there already" if before else "completed"
    return [
        str(record.checkpoint_id),
        interval,
        events,
        count(record.keys),
        count(record.entries),
        size(record.size_bytes),
        told,
    ]


def create(
    pipeline: Name,
    *,
    target: Target = None,
    form: Form = "canonical",
    remark: Remark = "",
    master: Master = "local[*]",
    conf: Settings = None,
    as_json: Json = False,
) -> None:
    """Write a pipeline's present state once more, as a savepoint that belongs to you: no retention ever removes it."""
    with errors(as_json):
        check_format(form)
        here = begun_deployment()
        definition = here.pipeline(pipeline)
        record = new_savepoint(
            here, definition, form=form, target=target, note=remark, owner=SAVEPOINT_OWNER, spark=(master, conf)
        )
    if as_json:
        print_json(record)
        return
    contents = keys_and_entries(record.keys, record.entries or 0)
    line(f"{pipeline}/{record.checkpoint_id} holds {contents}, {size(record.size_bytes)}")
    line(record.directory)


def new_savepoint(
    here: Deployment,
    pipeline: Pipeline,
    *,
    form: str,
    target: str | None,
    note: str,
    owner: str,
    spark: tuple[str, list[str] | None],
    stop: StopMode | None = None,
) -> CheckpointRecord:
    """Take a savepoint in a Spark session of its own. ``target``: as the user named it; ``spark``: the session's master
    and settings. Raises as :func:`~statelib.spark.snapshot.whole_run.take_savepoint`."""
    require("spark", "quality")
    with session(f"{pipeline.name} savepoint", *spark) as running, Steps(1) as steps:
        from statelib.spark.snapshot.whole_run import take_savepoint  # here, so that other commands start without Spark

        return take_savepoint(
            running, here, pipeline, form=form, target=_absolute(target), note=note, owner=owner,
            step=steps.of(f"savepoint of {pipeline.name}"), stop=stop,
        )  # fmt: skip


def check_format(form: str) -> None:
    """Raise InvalidRequestError (``bad-format``) unless ``form`` names a form of savepoints."""
    if form not in FORMATS:
        raise InvalidRequestError(f"format {form!r}: expected {' or '.join(FORMATS)}", kind="bad-format")


def _absolute(target: str | None) -> str | None:
    """The directory or URI that a user named, whatever the working directory of other processes is."""
    return target if target is None or ":" in target else str(Path(target).absolute())
