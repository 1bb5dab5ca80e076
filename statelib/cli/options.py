"""Arguments and options that several commands share."""

from typing import Annotated

import typer

from statelib.cli import completion

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document for machines.")]
DryRun = Annotated[bool, typer.Option("--dry-run", "-n", help="Print what would be deleted, and delete nothing.")]
PlanOnly = Annotated[bool, typer.Option("--dry-run", "-n", help="Print the plan, and change nothing.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
PipelineArgument = Annotated[
    str, typer.Argument(metavar="PIPELINE", help="Name of the pipeline.", autocompletion=completion.pipelines)
]
PipelineOption = Annotated[
    str | None,
    typer.Option("--pipeline", "-p", help="Only this pipeline.", autocompletion=completion.pipelines),
]
CheckpointArgument = Annotated[
    str, typer.Argument(metavar="CHECKPOINT", help="<pipeline>/<id>.", autocompletion=completion.checkpoints)
]
NamedCheckpoint = Annotated[
    str,
    typer.Argument(
        metavar="CHECKPOINT",
        help="<pipeline>, which means its head, <pipeline>/<id>, <pipeline>/latest, or <pipeline>@<moment> for the "
        "state as of then.",
        autocompletion=completion.snapshots,
    ),
]
Master = Annotated[
    str,
    typer.Option(
        "--master",
        "--remote",
        envvar="SPARK_REMOTE",
        help="Spark's master, such as spark://host:7077 or yarn; local[*] is this machine. Or a Spark Connect server, "
        "such as sc://host:15002.",
    ),
]
SparkSettings = Annotated[
    list[str] | None,
    typer.Option("--conf", metavar="NAME=VALUE", help="A setting of Spark, as for spark-submit. Repeatable."),
]
