"""``statelib checkpoints release``, and the verdicts of the quality gate as text."""

from collections.abc import Iterator, Sequence
from typing import Annotated

import typer

from statelib.cli.ending import errors
from statelib.cli.options import CheckpointArgument, Json
from statelib.cli.presenters.blocks import LABEL_WIDTH, Line, present
from statelib.cli.presenters.values import count
from statelib.flows import wiring
from statelib.flows.restore import quarantine as flow
from statelib.flows.views.inspection import parse_checkpoint
from statelib.model.amounts import amount
from statelib.model.quality import GateSummary, QualityResult, Severity, verdict
from statelib.model.record import CheckpointRecord, CheckpointState

OWNER = "statelib checkpoints release"
_VERDICTS = {
    None: "passed",
    Severity.WARN: "passed, with warnings",
    Severity.QUARANTINE: "in quarantine",
    Severity.FAIL: "failed",
}


def release(
    checkpoint: CheckpointArgument,
    note: Annotated[
        str, typer.Option("--note", "-m", help="The reason why it is good. It is kept with the checkpoint.")
    ],
    as_json: Json = False,
) -> None:
    """Accept a checkpoint in quarantine as good: it becomes the head of its pipeline."""
    with errors(as_json):
        record = flow.release(wiring.begun_deployment(), *parse_checkpoint(checkpoint), OWNER, note)
    name = f"{record.pipeline}/{record.checkpoint_id}"
    present(record, [Line(f"{name} is {record.state.lower()}: the next run builds on it")], as_json)


def gate_cell(record: CheckpointRecord, summary: GateSummary | None) -> str:
    """Return a short form of the newest verdict of the gate, for a table."""
    if summary is None:
        return "-"
    if record.state is CheckpointState.QUARANTINED:
        return "quarantine"
    if summary.failed:
        return "released" if record.note.startswith("released by ") else "failed"
    return f"{count(summary.warned)} warned" if summary.warned else "ok"


def gate_lines(results: Sequence[QualityResult]) -> Iterator[Line]:
    """Yield the verdict, then each check that has something to report, with its sentences."""
    if not results:
        return
    yield Line(f"{'gate':<{LABEL_WIDTH}} {amount(len(results), 'check')}: {_VERDICTS[verdict(results)]}")
    for result in results:
        mark = "ok" if result.passed else result.severity.lower()
        if result.sentences:
            yield Line(f"  {mark:<10} {result.name}")
            yield from (Line(f"  {'':<10}   {sentence}") for sentence in result.sentences)
