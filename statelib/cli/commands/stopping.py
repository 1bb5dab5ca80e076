"""``statelib pipelines stop``: end a pipeline with a savepoint of its last state."""

from dataclasses import asdict
from typing import Annotated

import typer

from statelib.cli.commands.runs import Form, Name, Remark, Target, check_format, new_savepoint
from statelib.cli.output import Json, count, errors, line, print_json, size
from statelib.cli.sparks import Master, Settings
from statelib.errors import InvalidRequestError
from statelib.flows.lifecycle import suspension
from statelib.flows.views.metrics import counting_aborted
from statelib.flows.wiring import begun_deployment, telemetry
from statelib.model.termination import StopMode

OWNER = "statelib pipelines stop"


def stop(
    pipeline: Name,
    *,
    savepoint: Annotated[
        bool, typer.Option("--savepoint", help="Required: pipelines cancel stops without one.")
    ] = False,
    drain: Annotated[
        bool,
        typer.Option("--drain", help="Fire all event-time timers and close all windows first: no events will follow."),
    ] = False,
    target: Target = None,
    form: Form = "canonical",
    remark: Remark = "",
    master: Master = "local[*]",
    conf: Settings = None,
    as_json: Json = False,
) -> None:
    """Stop a pipeline with a savepoint of its last state.

    From one transaction on the pipeline begins no checkpoints, and a pending one is aborted, so that no interval comes
    between. If the savepoint fails, the pipeline goes on. A drained savepoint is for the end of a pipeline: timers that
    have fired and windows that are closed do not come back when it is restored."""
    with errors(as_json):
        check_format(form)
        _check_asked(pipeline, savepoint)
        here = begun_deployment()
        definition = here.pipeline(pipeline)
        mode = StopMode.DRAIN if drain else StopMode.SUSPEND
        with telemetry() as receiver, counting_aborted(receiver, here.catalog(), pipeline):
            record = new_savepoint(
                here, definition, form=form, target=target, note=remark, owner=OWNER, spark=(master, conf), stop=mode
            )
        head = suspension.status(here, definition).head
    if as_json:
        print_json({**asdict(head), "savepoint": record})
        return
    held = f"{count(record.entries)} entries, {size(record.size_bytes)}"
    line(f"{pipeline} is stopped; savepoint {pipeline}/{record.checkpoint_id} holds {held}")
    line(record.directory)
    line(f"to go on: statelib pipelines resume {pipeline}")


def _check_asked(pipeline: str, savepoint: bool) -> None:
    if not savepoint:
        raise InvalidRequestError(
            f"pipelines stop {pipeline} takes a savepoint: expected --savepoint",
            kind="savepoint-not-asked-for",
            hint=f"add --savepoint, or stop without one: statelib pipelines cancel {pipeline}",
        )
