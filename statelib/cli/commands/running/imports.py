"""``statelib import-statestore``: turn the state of a Structured Streaming query into a savepoint of a pipeline."""

from typing import Annotated

import typer

from statelib.cli import completion
from statelib.cli.ending import errors
from statelib.cli.options import Json, Master, SparkSettings
from statelib.cli.pairs import pairs_of
from statelib.cli.presenters.blocks import Line, present
from statelib.cli.spark_session import session
from statelib.errors import InvalidRequestError
from statelib.flows import wiring
from statelib.flows.savepoint.imports import value_fields
from statelib.flows.views.metrics import checkpoint_completed
from statelib.model.amounts import keys_and_entries

OWNER = "statelib import-statestore"


Pipeline = Annotated[
    str,
    typer.Argument(
        metavar="PIPELINE",
        help="Name of a pipeline without state.",
        autocompletion=completion.pipelines,
    ),
]
Location = Annotated[str, typer.Argument(help="Checkpoint location of the streaming query.")]
State = Annotated[str, typer.Option("--state", help="State of the pipeline that the entries are written to.")]
Key = Annotated[
    list[str] | None,
    typer.Option(
        "--key",
        metavar="COLUMN=EXPRESSION",
        help="A column of the key, as an SQL expression over key and value. Repeatable.",
    ),
]
Value = Annotated[
    list[str] | None,
    typer.Option(
        "--value",
        metavar="[FIELD=]EXPRESSION",
        help="A field of the value, as an SQL expression; without FIELD= for a value that has no fields. Repeatable.",
    ),
]
UserKey = Annotated[
    str, typer.Option("--user-key", metavar="EXPRESSION", help="The user key of map state, as an SQL expression.")
]
SourceOption = Annotated[
    list[str] | None,
    typer.Option(
        "--option",
        metavar="NAME=VALUE",
        help="An option of Spark's statestore source, such as operatorId=1. Repeatable.",
    ),
]


def import_statestore(
    pipeline: Pipeline,
    location: Location,
    *,
    state: State,
    key: Key = None,
    value: Value = None,
    user_key: UserKey = "",
    option: SourceOption = None,
    master: Master = "local[*]",
    conf: SparkSettings = None,
    as_json: Json = False,
) -> None:
    """Write the state of a Structured Streaming query as a savepoint of a pipeline.

    The pipeline continues from it once it is restored with statelib restore."""
    with errors(as_json):
        deployment = wiring.deployment()
        definition = deployment.pipeline(pipeline)
        fields = value_fields(definition.schema().state(state))
        values = pairs_of("--value", value) if fields else _expression_without_field(value)
        from statelib.spark.imports import statestore_import as job  # here, so that other commands start without Spark
        from statelib.spark.imports.statestore import StateStoreMapping

        mapping = StateStoreMapping(state, pairs_of("--key", key), values, user_key)
        source = job.StateStoreImport(location, pairs_of("--option", option, may_be_empty=True), mapping)
        with session(f"{pipeline} import", master, conf) as spark:
            record = job.import_statestore(spark, deployment, definition, source, OWNER)
        with wiring.telemetry() as receiver:
            checkpoint_completed(receiver, record)
    contents = keys_and_entries(record.keys, record.entries)
    view = [
        Line(f"{pipeline}/{record.checkpoint_id} holds {contents}, in {record.directory}"),
        Line(f"next: statelib restore {pipeline} {record.checkpoint_id}"),
    ]
    present(record, view, as_json)


def _expression_without_field(texts: list[str] | None) -> dict[str, str]:
    if texts and len(texts) > 1:
        raise InvalidRequestError("--value: the value has no fields: expected one expression", kind="bad-mapping")
    return {"": texts[0]} if texts else {}
