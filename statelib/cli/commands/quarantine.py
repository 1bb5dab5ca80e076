"""``statelib checkpoints release``, and how what the gate said is shown."""

from collections.abc import Iterator, Sequence
from typing import Annotated

import typer

from statelib.cli.output import Json, count, errors, line, print_json
from statelib.flows.restore import quarantine as flow
from statelib.flows.views.inspection import parse_checkpoint
from statelib.flows.wiring import begun_deployment
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
    checkpoint: Annotated[str, typer.Argument(help="<pipeline>/<id>")],
    note: Annotated[str, typer.Option("--note", "-m", help="Why it is good after all; kept with it.")],
    as_json: Json = False,
) -> None:
    """Take a checkpoint in quarantine as good: the pipeline goes on from it."""
    with errors(as_json):
        record = flow.release(begun_deployment(), *parse_checkpoint(checkpoint), OWNER, note)
    if as_json:
        print_json(record)
    else:
        line(f"{record.pipeline}/{record.checkpoint_id} is {record.state.lower()}: the next run builds on it")


def gate_cell(record: CheckpointRecord, summary: GateSummary | None) -> str:
    """A word for a table: how the newest run of the gate ended."""
    if summary is None:
        return "-"
    if record.state is CheckpointState.QUARANTINED:
        return "quarantine"
    if summary.failed:
        return "released" if record.note.startswith("released by ") else "failed"
    return f"{count(summary.warned)} warned" if summary.warned else "ok"


def gate_lines(results: Sequence[QualityResult]) -> Iterator[str]:
    """The verdict, then what did not hold and what is to be known."""
    if not results:
        return
    yield f"{'gate':<12} {amount(len(results), 'check')}: {_VERDICTS[verdict(results)]}"
    for result in results:
        mark = "ok" if result.passed else result.severity.lower()
        if result.sentences:
            yield f"  {mark:<10} {result.name}"
            yield from (f"  {'':<10}   {sentence}" for sentence in result.sentences)
