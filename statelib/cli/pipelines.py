"""``statelib pipelines``: the pipeline files, and what is wrong with those that do not load."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from statelib.cli.output import Column, Json, errors, note, print_json, table
from statelib.definition.pipeline import Pipeline, load_pipelines
from statelib.definition.problems import DefinitionError
from statelib.flows.wiring import deployment

app = typer.Typer(no_args_is_help=True, help="Pipeline files.")
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
def validate(directory: Directory = None, as_json: Json = False) -> None:
    """Load every pipeline file; one line for each fault. Exit status 1 if there is one."""
    with errors(as_json):
        pipelines, faults = _load(directory)
    if as_json:
        print_json({"valid": [p.name for p in pipelines], "faults": [asdict(fault) for fault in faults]})
    else:
        for fault in faults:
            note(fault.message)
        note(f"{len(pipelines)} valid, {len(faults)} not")
    if faults:
        raise typer.Exit(1)


def _load(directory: Path | None) -> tuple[list[Pipeline], list[DefinitionError]]:
    return load_pipelines(directory or Path(deployment().pipelines_directory))
