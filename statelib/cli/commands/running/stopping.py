"""``statelib pipelines stop``: end a pipeline with a savepoint of its last state."""

from dataclasses import asdict
from typing import Annotated

import typer

from statelib.cli.commands.running.runs import Form, Remark, Target, check_format, contents, new_savepoint
from statelib.cli.ending import errors
from statelib.cli.options import Json, Master, PipelineArgument, SparkSettings
from statelib.cli.presenters.blocks import Line, present
from statelib.errors import InvalidRequestError
from statelib.flows import wiring
from statelib.flows.lifecycle import suspension
from statelib.flows.views.metrics import counting_aborted
from statelib.model.termination import StopMode

OWNER = "statelib pipelines stop"


def stop(
    pipeline: PipelineArgument,
    *,
    savepoint: Annotated[
        bool, typer.Option("--savepoint", help="Required. To stop without a savepoint, use pipelines cancel.")
    ] = False,
    drain: Annotated[
        bool,
        typer.Option(
            "--drain", help="First fire all event-time timers and close all windows, because no events will follow."
        ),
    ] = False,
    target: Target = None,
    form: Form = "canonical",
    remark: Remark = "",
    master: Master = "local[*]",
    conf: SparkSettings = None,
    as_json: Json = False,
) -> None:
    """Stop a pipeline with a savepoint of its last state.

    One transaction stops the pipeline and aborts its pending checkpoint, so that no interval is applied before the
    savepoint. If the savepoint fails, the pipeline continues. Use --drain only at the end of a pipeline: timers that
    have fired and windows that are closed do not come back when the savepoint is restored."""
    with errors(as_json):
        check_format(form)
        _check_savepoint_is_asked_for(pipeline, savepoint)
        deployment = wiring.begun_deployment()
        definition = deployment.pipeline(pipeline)
        mode = StopMode.DRAIN if drain else StopMode.SUSPEND
        with wiring.telemetry() as receiver, counting_aborted(receiver, deployment.catalog(), pipeline):
            record = new_savepoint(
                deployment, definition, form=form, target=target, note=remark, owner=OWNER, spark=(master, conf),
                stop=mode,
            )  # fmt: skip
        head = suspension.status(deployment, definition).head
    view = [
        Line(f"{pipeline} is stopped; savepoint {pipeline}/{record.checkpoint_id} holds {contents(record)}"),
        Line(record.directory),
        Line(f"to go on: statelib pipelines resume {pipeline}"),
    ]
    present({**asdict(head), "savepoint": record}, view, as_json)


def _check_savepoint_is_asked_for(pipeline: str, savepoint: bool) -> None:
    if not savepoint:
        raise InvalidRequestError(
            f"pipelines stop {pipeline} takes a savepoint: expected --savepoint",
            kind="savepoint-not-asked-for",
            hint=f"add --savepoint, or stop without one: statelib pipelines cancel {pipeline}",
        )
