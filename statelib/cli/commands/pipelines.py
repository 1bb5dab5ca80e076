"""``statelib pipelines``: check pipeline files, and stop and resume their pipelines."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from statelib.cli import completion
from statelib.cli.commands.publishing import standing_table
from statelib.cli.commands.running.stopping import stop
from statelib.cli.ending import errors
from statelib.cli.options import Json, Master, NamedCheckpoint, PipelineArgument, SparkSettings
from statelib.cli.presenters.blocks import Block, Fields, Line, Note, TableColumn, TextTable, present
from statelib.cli.presenters.console import working
from statelib.cli.presenters.values import count, size, when
from statelib.cli.spark_session import session
from statelib.definition.outside_checks import check_outside
from statelib.definition.pipeline import Pipeline, load_pipelines
from statelib.definition.problems import DefinitionError
from statelib.definition.reference.editor_schema import editor_schema
from statelib.definition.source.intervals import moment
from statelib.errors import NotFoundError
from statelib.flows import wiring
from statelib.flows.lifecycle import suspension
from statelib.flows.publication.steps import standings
from statelib.flows.savepoint.fork import fork
from statelib.flows.views.inspection import named_checkpoint
from statelib.flows.views.metrics import counting_aborted
from statelib.flows.views.next_run import SubtaskReading, next_run
from statelib.flows.views.validation import StateEffects, state_effects
from statelib.model.amounts import amount
from statelib.model.record import CheckpointRecord, PipelineHead

if TYPE_CHECKING:
    from statelib.cli.trial_runs import TriedSource

OWNER = "statelib pipelines"

app = typer.Typer(no_args_is_help=True, help="Pipeline files, and the state of their pipelines.")
Directory = Annotated[
    Path | None, typer.Option("--directory", help="Directory of the pipeline files. Default: STATELIB_PIPELINES.")
]


@app.command("list", epilog="Example: statelib pipelines list --json")
def list_(directory: Directory = None, as_json: Json = False) -> None:
    """List the pipelines whose files are valid."""
    with errors(as_json):
        pipelines, faults = _load(directory)
    present([_document(pipeline) for pipeline in pipelines], _list_view(pipelines, len(faults)), as_json)


def _list_view(pipelines: Sequence[Pipeline], faults: int) -> Iterator[Block]:
    columns = [
        TableColumn("pipeline"), TableColumn("backend"), TableColumn("key", wraps=True),
        TableColumn("states", wraps=True), TableColumn("parallelism", right=True),
    ]  # fmt: skip
    rows = [[p.name, p.backend, ", ".join(p.key), ", ".join(p.states), str(p.parallelism)] for p in pipelines]
    yield TextTable("Pipelines", columns, rows)
    if faults:
        yield Note(f"{faults} more do not load: statelib pipelines validate shows why")


def _document(pipeline: Pipeline) -> dict[str, Any]:
    return {
        "name": pipeline.name,
        "path": pipeline.path,
        "backend": pipeline.backend,
        "key": list(pipeline.key),
        "states": list(pipeline.states),
        "parallelism": pipeline.parallelism,
        "max_parallelism": pipeline.max_parallelism,
    }


Deep = Annotated[
    bool,
    typer.Option(
        "--deep",
        help="Also read events of each pipeline's next interval with Spark, or of its last one if the next one is not "
        "over, and try them.",
    ),
]


@app.command(epilog="Example: statelib pipelines validate --directory dags/pipelines")
def validate(
    pipeline: Annotated[
        list[str] | None,
        typer.Argument(help="Check only these pipelines.", autocompletion=completion.pipelines),
    ] = None,
    *,
    directory: Directory = None,
    state: Annotated[
        bool, typer.Option("--state", help="Also check whether each pipeline can continue from its head, and how.")
    ] = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="Treat warnings as faults. Use it on a host that has what the cluster has.")
    ] = False,
    deep: Deep = False,
    start: Annotated[str | None, typer.Option("--start", help="For --deep: the start of another interval.")] = None,
    end: Annotated[str | None, typer.Option("--end", help="For --deep: its end, if there is no schedule.")] = None,
    master: Master = "local[*]",
    conf: SparkSettings = None,
    as_json: Json = False,
) -> None:
    """Check pipeline files, and print one line per fault. Exit status 1 if there is a fault.

    Functions are imported and data formats are looked up. What is missing on this host is a warning only, because the
    cluster may have it. With --deep, up to 1000 events of each source are applied to an empty state in memory: this
    finds tables, columns and types that do not fit, and expressions and functions that fail."""
    with errors(as_json):
        pipelines, faults = _named(pipeline or (), *_load(directory))
        outside = check_outside(pipelines)
        warnings = [] if strict else list(outside.warnings)
        missing = [*outside.faults, *(outside.warnings if strict else ())]
        faults += missing
        pipelines = [p for p in pipelines if p.path not in {fault.path for fault in missing}]
        effects: list[StateEffects] = []
        if state:
            effects, unfit = state_effects(wiring.deployment(), pipelines)
            faults += unfit
            pipelines = [p for p in pipelines if p.path not in {fault.path for fault in unfit}]
        tried: list[TriedSource] = []
        if deep:
            tried, failed = _tried(pipelines, (start, end), master, conf)
            faults += failed
            pipelines = [p for p in pipelines if p.path not in {fault.path for fault in faults}]
    document = {"valid": [p.name for p in pipelines], "faults": faults, "warnings": warnings, "tried": tried}
    done = (*_effect_lines(effects), *_tried_lines(tried))
    present({**document, "states": effects}, _validate_view(len(pipelines), faults, warnings, done), as_json)
    if faults:
        raise typer.Exit(1)


def _named(
    names: Sequence[str], pipelines: list[Pipeline], faults: list[DefinitionError]
) -> tuple[list[Pipeline], list[DefinitionError]]:
    """Return the named pipelines, or all without names, and the faults that may concern them. A name that no file has
    is refused, unless there are files that do not load: one of them may be the file that is meant."""
    if not names:
        return pipelines, faults
    chosen = [pipeline for pipeline in pipelines if pipeline.name in names]
    missing = sorted(set(names) - {pipeline.name for pipeline in chosen})
    if missing and not faults:
        raise NotFoundError(
            f"no pipeline file has the name {', '.join(missing)}: expected some of "
            f"{', '.join(sorted(pipeline.name for pipeline in pipelines)) or 'none'}",
            kind="no-pipeline",
            hint="write the name of a pipeline, not a path; --directory names the directory of the pipeline files",
        )
    return chosen, faults if missing else [fault for fault in faults if any(map(fault.may_be, names))]


def _tried(
    pipelines: Sequence[Pipeline], bounds: tuple[str | None, str | None], master: str, conf: list[str] | None
) -> tuple[list["TriedSource"], list[DefinitionError]]:
    """Try each pipeline in one Spark session. Return (sources that could be applied, faults)."""
    from statelib.cli.trial_runs import try_pipeline  # here, so that other commands load no backend

    tried, faults = [], []
    with wiring.planning_deployment() as planner, session("pipelines validate", master, conf) as spark:
        for pipeline in pipelines:
            start_ms, end_ms = (None if text is None else moment(text, pipeline.zone) for text in bounds)
            applied, failed = try_pipeline(spark, planner, pipeline, (start_ms, end_ms))
            tried += applied
            faults += failed
    return tried, faults


def _effect_lines(effects: Sequence[StateEffects]) -> Iterator[str]:
    for each in effects:
        yield from (f"{each.pipeline}: {text}" for text in each.states)
        yield from (f"{each.pipeline}: not restored: {text}" for text in each.non_restored)


def _tried_lines(tried: Sequence["TriedSource"]) -> Iterator[str]:
    for source in tried:
        yield f"{source.pipeline}: {amount(source.events, 'event')} of {source.source} in {source.interval} applied"


def _validate_view(
    valid: int, faults: Sequence[DefinitionError], warnings: Sequence[DefinitionError], done: Sequence[str]
) -> Iterator[Block]:
    yield from map(Line, done)
    for fault in faults:
        yield from map(Note, fault.message.splitlines())
        if fault.hint:
            yield Note(f"  hint: {fault.hint}")
    for warning in warnings:
        yield from (Note(f"warning: {text}") for text in warning.message.splitlines())
    yield Note(f"{valid} valid, {len(faults)} not")


@app.command(epilog="Example: statelib pipelines schema > pipeline.schema.json")
def schema(as_json: Json = False) -> None:  # noqa: ARG001 - the answer is JSON with and without the option
    """Print the JSON schema of a pipeline file, for editors.

    Editors with a YAML language server use it if the first line of a pipeline file is
    # yaml-language-server: $schema=pipeline.schema.json"""
    present(editor_schema(), (), as_json=True)


@app.command("fork", epilog="Example: statelib pipelines fork aircraft_activity/4 aircraft_activity_v2")
def fork_(
    checkpoint: NamedCheckpoint,
    pipeline: Annotated[
        str,
        typer.Argument(
            metavar="PIPELINE",
            help="Name of the new pipeline. Its file must exist already.",
            autocompletion=completion.pipelines,
        ),
    ],
    *,
    verify: Annotated[bool, typer.Option(help="First read the whole state, to prove that it is undamaged.")] = True,
    copy: Annotated[
        bool, typer.Option("--copy", help="Copy the files, so that the new pipeline needs no file of the other one.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Start a new pipeline with the state of another pipeline's checkpoint.

    The new pipeline refers to the files of the other one. With --copy it gets copies of them."""
    with errors(as_json):
        deployment = wiring.begun_deployment()
        source = deployment.catalog().get(*named_checkpoint(deployment, checkpoint))
        definition = deployment.pipeline(pipeline)
        with working(f"forking {checkpoint}"):
            record = fork(deployment, definition, source, f"{OWNER} fork", read_data=verify, copy=copy)
    present(record, _fork_view(definition, record, f"{source.pipeline}/{source.checkpoint_id}"), as_json)


def _fork_view(pipeline: Pipeline, record: CheckpointRecord, checkpoint: str) -> Iterator[Block]:
    yield Line(f"the head of {record.pipeline} is {record.pipeline}/{record.checkpoint_id}, a fork of {checkpoint}")
    assert record.interval
    yield Line(f"next: the run of {pipeline.checkpoint_dag} that starts at {when(record.interval.end_ms)} UTC")


@app.command(epilog="Example: statelib pipelines status aircraft_activity --json")
def status(pipeline: PipelineArgument, as_json: Json = False) -> None:
    """Show whether a pipeline runs, its head, how many checkpoints failed in a row, and how far its published tables
    are behind."""
    with errors(as_json):
        deployment = wiring.begun_deployment()
        definition = deployment.pipeline(pipeline)
        current = suspension.status(deployment, definition)
        tables = standings(deployment, definition)
    tolerated = definition.checkpoint.tolerable_failures
    fields = [
        ("status", current.status.lower()),
        ("head", "none" if current.head.head is None else f"{pipeline}/{current.head.head}"),
        ("last", f"interval up to {when(current.last.end_ms)} UTC" if current.last else "no interval"),
        ("failures", f"{current.failures} in a row, {'any number' if tolerated is None else tolerated} tolerated"),
    ]
    view: list[Block] = [Fields(fields)]
    if tables:
        view.append(standing_table(tables))
    present(asdict(current) | {"tables": tables}, view, as_json)


@app.command(epilog="Example: statelib pipelines plan aircraft_activity")
def plan(pipeline: PipelineArgument, as_json: Json = False) -> None:
    """Show what each subtask of the next run reads of the state, and why."""
    with errors(as_json):
        deployment = wiring.begun_deployment()
        run = next_run(deployment, deployment.pipeline(pipeline))
    base = "nothing" if run.base is None else f"{pipeline}/{run.base}"
    columns = [
        TableColumn("subtask", right=True), TableColumn("key groups"), TableColumn("reads", wraps=True),
        TableColumn("state", right=True), TableColumn("because", wraps=True),
    ]  # fmt: skip
    rows = [
        [str(each.subtask), str(each.key_groups), _reads(each), size(each.size_bytes), each.because]
        for each in run.subtasks
    ]
    view = [Fields([("base", base), ("backend", run.backend), ("strategy", run.strategy)])]
    present(run, [*view, TextTable("Next run", columns, rows)], as_json)


def _reads(subtask: SubtaskReading) -> str:
    if subtask.fewer_keys_than is None:
        return subtask.reads
    return f"{subtask.reads} with events, if they are fewer than {count(subtask.fewer_keys_than)}; otherwise all"


@app.command(epilog="Example: statelib pipelines cancel aircraft_activity")
def cancel(pipeline: PipelineArgument, as_json: Json = False) -> None:
    """Stop a pipeline without a savepoint: it begins no more checkpoints, and the pending one is aborted.

    checkpoint.retain.after_termination of the pipeline file says whether its checkpoints are kept."""
    with errors(as_json):
        deployment = wiring.begun_deployment()
        with wiring.telemetry() as receiver, counting_aborted(receiver, deployment.catalog(), pipeline):
            head = suspension.cancel(deployment, pipeline, OWNER)
    present(head, [_head_line(head)], as_json)


app.command("stop", epilog="Example: statelib pipelines stop aircraft_activity --savepoint --target /srv/savepoints")(
    stop
)


@app.command(epilog="Example: statelib pipelines resume aircraft_activity")
def resume(
    pipeline: PipelineArgument,
    *,
    from_nothing: Annotated[
        bool, typer.Option("--from-nothing", help="Start with an empty state, after the old state was discarded.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Let a pipeline begin checkpoints again, after it was stopped or too many checkpoints failed."""
    with errors(as_json):
        head = suspension.resume(wiring.begun_deployment(), pipeline, OWNER, from_nothing=from_nothing)
    present(head, [_head_line(head)], as_json)


def _head_line(head: PipelineHead) -> Line:
    checkpoint = "it has no head" if head.head is None else f"its head is {head.pipeline}/{head.head}"
    return Line(f"{head.pipeline} {'is cancelled' if head.cancelled else 'runs'}, {checkpoint}")


def _load(directory: Path | None) -> tuple[list[Pipeline], list[DefinitionError]]:
    return load_pipelines(directory or Path(wiring.pipelines_directory()))
