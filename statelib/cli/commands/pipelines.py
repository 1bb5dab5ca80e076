"""``statelib pipelines``: the files, what is wrong with those that do not load, and stopping and resuming."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from statelib.cli import completion
from statelib.cli.commands.stopping import stop
from statelib.cli.output import Column, Json, errors, line, note, print_json, table, when, working
from statelib.definition.outside_checks import check_outside
from statelib.definition.pipeline import Pipeline, load_pipelines
from statelib.definition.problems import DefinitionError
from statelib.flows.lifecycle import suspension
from statelib.flows.savepoint.fork import fork
from statelib.flows.views.inspection import parse_checkpoint
from statelib.flows.views.metrics import counting_aborted
from statelib.flows.views.validation import state_faults
from statelib.flows.wiring import begun_deployment, deployment, telemetry
from statelib.model.record import PipelineHead

app = typer.Typer(no_args_is_help=True, help="Pipeline files, and whether their pipelines run.")
Directory = Annotated[Path | None, typer.Option("--directory", help="Default: STATELIB_PIPELINES.")]


@app.command("list", epilog="Example: statelib pipelines list --json")
def list_(directory: Directory = None, as_json: Json = False) -> None:
    """List the pipelines that load."""
    with errors(as_json):
        pipelines, faults = _load(directory)
    if as_json:
        print_json([_told(pipeline) for pipeline in pipelines])
        return
    columns = [Column("pipeline"), Column("backend"), Column("key", wraps=True), Column("states", wraps=True)]
    rows = [[p.name, p.backend, ", ".join(p.key), ", ".join(p.states), str(p.parallelism)] for p in pipelines]
    table("Pipelines", [*columns, Column("parallelism", right=True)], rows)
    if faults:
        note(f"{len(faults)} more do not load: statelib pipelines validate says why")


def _told(pipeline: Pipeline) -> dict[str, object]:
    return {
        "name": pipeline.name,
        "path": pipeline.path,
        "backend": pipeline.backend,
        "key": list(pipeline.key),
        "states": list(pipeline.states),
        "parallelism": pipeline.parallelism,
        "max_parallelism": pipeline.max_parallelism,
    }


@app.command(epilog="Example: statelib pipelines validate --directory dags/pipelines")
def validate(
    directory: Directory = None,
    *,
    state: Annotated[
        bool, typer.Option("--state", help="Also judge whether each pipeline can go on from its head.")
    ] = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="Take warnings for faults: this host has what the cluster has.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Load every pipeline file; one line for each fault. Exit status 1 if there is one.

    Functions are imported and formats looked up. What this host does not have is a warning: the cluster may have it."""
    with errors(as_json):
        pipelines, faults = _load(directory)
        outside = check_outside(pipelines)
        warnings = [] if strict else list(outside.warnings)
        unfound = [*outside.faults, *(outside.warnings if strict else ())]
        faults += unfound
        pipelines = [p for p in pipelines if p.path not in {fault.path for fault in unfound}]
        if state:
            unfit = list(state_faults(deployment(), pipelines))
            faults += unfit
            pipelines = [p for p in pipelines if p.path not in {fault.path for fault in unfit}]
    if as_json:
        print_json(
            {
                "valid": [p.name for p in pipelines],
                "faults": [asdict(fault) for fault in faults],
                "warnings": [asdict(warning) for warning in warnings],
            }
        )
    else:
        for fault in faults:
            note(fault.message)
        for warning in warnings:
            note("\n".join(f"warning: {text}" for text in warning.message.splitlines()))
        note(f"{len(pipelines)} valid, {len(faults)} not")
    if faults:
        raise typer.Exit(1)


@app.command("fork", epilog="Example: statelib pipelines fork aircraft_activity/4 aircraft_activity_v2")
def fork_(
    checkpoint: Annotated[
        str,
        typer.Argument(
            metavar="CHECKPOINT", help="<pipeline>/<id> to begin with.", autocompletion=completion.snapshots
        ),
    ],
    pipeline: Annotated[
        str,
        typer.Argument(
            help="Name of the new pipeline, whose file is there already.", autocompletion=completion.pipelines
        ),
    ],
    *,
    verify: Annotated[bool, typer.Option(help="Read the whole state first, to prove it.")] = True,
    copy: Annotated[
        bool, typer.Option("--copy", help="Copy the files, so that the fork needs nothing of the other pipeline.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Let a new pipeline begin with the state of another one's checkpoint. Its files are referred to, or copied with
    --copy."""
    with errors(as_json):
        here = begun_deployment()
        source = here.catalog().get(*parse_checkpoint(checkpoint))
        with working(f"forking {checkpoint}"):
            record = fork(here, here.pipeline(pipeline), source, "statelib pipelines fork", read_data=verify, copy=copy)
    if as_json:
        print_json(record)
        return
    line(f"{record.pipeline} stands on {record.pipeline}/{record.checkpoint_id}, a fork of {checkpoint}")
    assert record.interval
    line(f"next: the run of {record.pipeline}.checkpoint that starts at {when(record.interval.end_ms)} UTC")


Name = Annotated[str, typer.Argument(help="Name of the pipeline.", autocompletion=completion.pipelines)]
OWNER = "statelib pipelines"


@app.command(epilog="Example: statelib pipelines status aircraft_activity --json")
def status(pipeline: Name, as_json: Json = False) -> None:
    """Show whether a pipeline runs, what it stands on, and how many checkpoints failed in a row."""
    with errors(as_json):
        here = begun_deployment()
        told = suspension.status(here, here.pipeline(pipeline))
    if as_json:
        print_json(asdict(told))
        return
    tolerated = here.pipeline(pipeline).checkpoint.tolerable_failures
    line(f"{'status':<12} {told.status.lower()}")
    line(f"{'stands on':<12} {'nothing' if told.head.head is None else f'{pipeline}/{told.head.head}'}")
    line(f"{'last':<12} {f'interval up to {when(told.last.end_ms)} UTC' if told.last else 'no interval'}")
    line(f"{'failures':<12} {told.failures} in a row, {'any number' if tolerated is None else tolerated} tolerated")


@app.command(epilog="Example: statelib pipelines cancel aircraft_activity")
def cancel(pipeline: Name, as_json: Json = False) -> None:
    """Begin no checkpoints of a pipeline any more, and abort the pending one.

    What becomes of its checkpoints is said by checkpoint.retain.after_termination of the pipeline file."""
    with errors(as_json):
        here = begun_deployment()
        with telemetry() as receiver, counting_aborted(receiver, here.catalog(), pipeline):
            head = suspension.cancel(here, pipeline, OWNER)
    _print_head(head, as_json)


app.command("stop", epilog="Example: statelib pipelines stop aircraft_activity --savepoint --target /srv/savepoints")(
    stop
)


@app.command(epilog="Example: statelib pipelines resume aircraft_activity")
def resume(
    pipeline: Name,
    *,
    from_nothing: Annotated[
        bool, typer.Option("--from-nothing", help="Start with an empty state: the old one was discarded.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Begin checkpoints again, after a cancellation or too many failures."""
    with errors(as_json):
        head = suspension.resume(begun_deployment(), pipeline, OWNER, from_nothing=from_nothing)
    _print_head(head, as_json)


def _print_head(head: PipelineHead, as_json: bool) -> None:
    if as_json:
        print_json(asdict(head))
        return
    state = "nothing" if head.head is None else f"{head.pipeline}/{head.head}"
    line(f"{head.pipeline} {'is cancelled' if head.cancelled else 'runs'}, it stands on {state}")


def _load(directory: Path | None) -> tuple[list[Pipeline], list[DefinitionError]]:
    return load_pipelines(directory or Path(deployment().pipelines_directory))
