"""``statelib import-statestore``: the state of a Structured Streaming query becomes a pipeline's first state."""

import os
import sys
from typing import Annotated

import typer

from statelib.cli import completion
from statelib.cli.output import Json, errors, line, print_json
from statelib.errors import InvalidRequestError
from statelib.flows.savepoint.imports import value_fields
from statelib.flows.views.metrics import checkpoint_completed
from statelib.flows.wiring import deployment, telemetry
from statelib.model.amounts import keys_and_entries

OWNER = "statelib import-statestore"


def import_statestore(
    pipeline: Annotated[
        str,
        typer.Argument(help="Name of the pipeline; it must have no state yet.", autocompletion=completion.pipelines),
    ],
    location: Annotated[str, typer.Argument(help="Checkpoint location of the streaming query.")],
    *,
    state: Annotated[str, typer.Option("--state", help="State of the pipeline that takes the entries in.")],
    key: Annotated[
        list[str] | None, typer.Option("--key", help="COLUMN=EXPRESSION over key and value, for a column of the key.")
    ] = None,
    value: Annotated[
        list[str] | None, typer.Option("--value", help="FIELD=EXPRESSION, or EXPRESSION for a value without fields.")
    ] = None,
    user_key: Annotated[str, typer.Option("--user-key", help="EXPRESSION for the user key of map state.")] = "",
    option: Annotated[
        list[str] | None, typer.Option("--option", help="NAME=VALUE of Spark's statestore source, e.g. operatorId=1.")
    ] = None,
    master: Annotated[str, typer.Option("--master", help="Where Spark runs.")] = "local[*]",
    as_json: Json = False,
) -> None:
    """Take a Structured Streaming state store in as a savepoint of a pipeline; restore that to go on from it."""
    with errors(as_json):
        here = deployment()
        definition = here.pipeline(pipeline)
        fields = value_fields(definition.schema().state(state))
        values = _pairs("--value", value) if fields else _whole(value)
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        from statelib.spark.imports import statestore_import as job  # here, so that other commands start without Spark
        from statelib.spark.imports.statestore import StateStoreMapping
        from statelib.spark.session.local_session import borrowed_session

        mapping = StateStoreMapping(state, _pairs("--key", key), values, user_key)
        wanted = job.StateStoreImport(location, _pairs("--option", option), mapping)
        with borrowed_session(f"{pipeline} import", master) as spark:
            record = job.import_statestore(spark, here, definition, wanted, OWNER)
        with telemetry() as receiver:
            checkpoint_completed(receiver, record)
    if as_json:
        print_json(record)
        return
    contents = keys_and_entries(record.keys, record.entries or 0)
    line(f"{pipeline}/{record.checkpoint_id} holds {contents}, in {record.directory}")
    line(f"next: statelib restore {pipeline} {record.checkpoint_id}")


def _pairs(option: str, texts: list[str] | None) -> dict[str, str]:
    found = {}
    for text in texts or ():
        name, _, rest = text.partition("=")
        if not name or not rest:
            raise InvalidRequestError(f"{option} {text!r}: expected NAME=...", kind="bad-mapping")
        found[name] = rest
    return found


def _whole(texts: list[str] | None) -> dict[str, str]:
    if texts and len(texts) > 1:
        raise InvalidRequestError("--value: the value has no fields: expected one expression", kind="bad-mapping")
    return {"": texts[0]} if texts else {}
