"""``statelib pipelines``: the pipeline files, and what is wrong with those that do not load."""

from pathlib import Path
from typing import Annotated

import typer

from statelib.cli.output import Json, err, errors, print_json, table
from statelib.definition.pipeline import load_pipelines
from statelib.flows.wiring import deployment

app = typer.Typer(no_args_is_help=True, help="Pipeline files.")
Directory = Annotated[Path | None, typer.Option("--directory", help="Default: STATELIB_PIPELINES.")]


@app.command("list")
def list_(directory: Directory = None, as_json: Json = False) -> None:
    """List the pipelines that load."""
    with errors(as_json):
        pipelines, _ = load_pipelines(directory or Path(deployment().pipelines_directory))
        rows = [[p.name, p.backend, ", ".join(p.key), ", ".join(p.states), str(p.parallelism)] for p in pipelines]
        if as_json:
            keys = ("name", "backend", "key", "states", "parallelism")
            print_json([dict(zip(keys, row, strict=True)) for row in rows])
            return
        table(
            "Pipelines",
            [("pipeline", ""), ("backend", ""), ("key", ""), ("states", ""), ("parallelism", "right")],
            rows,
        )


@app.command()
def validate(directory: Directory = None, as_json: Json = False) -> None:
    """Load every pipeline file; one line for each fault. Exit status 1 if there is one."""
    with errors(as_json):
        pipelines, faults = load_pipelines(directory or Path(deployment().pipelines_directory))
    if as_json:
        print_json({"valid": [p.name for p in pipelines], "faults": [str(fault) for fault in faults]})
    else:
        for fault in faults:
            err.print(str(fault), markup=False)
        err.print(f"{len(pipelines)} valid, {len(faults)} not")
    if faults:
        raise typer.Exit(1)
