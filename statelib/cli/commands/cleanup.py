"""``statelib gc``, ``orphans``, ``why``, ``savepoint dispose`` and ``pipelines discard``: delete what nothing needs."""

import re
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Annotated

import typer

from statelib.cli import completion
from statelib.cli.ending import confirmed, end_in_trouble, errors
from statelib.cli.options import DryRun, Json, PipelineOption, Yes
from statelib.cli.paths import absolute_target, in_storage
from statelib.cli.presenters.blocks import Block, Fields, Line, Note, TableColumn, TextTable, present, show
from statelib.cli.presenters.console import working
from statelib.cli.presenters.values import count, size
from statelib.errors import InvalidRequestError
from statelib.flows import wiring
from statelib.flows.cleanup import explanation, garbage, retention
from statelib.flows.cleanup import orphans as sweep
from statelib.flows.cleanup.each_pipeline import Troubles
from statelib.flows.cleanup.without_file import WithoutFile, without_file
from statelib.flows.cleanup.without_file import discard as discard_pipeline
from statelib.flows.views.inspection import check_pipeline, parse_checkpoint
from statelib.flows.views.metrics import garbage_collected, orphans_found
from statelib.flows.wiring import Deployment
from statelib.model.amounts import amount
from statelib.model.ids import PipelineName
from statelib.model.record import Owner
from statelib.storage.registry import PLACES

OWNER = "statelib pipelines discard"
UNITS_MS = {"h": 3_600_000, "d": 86_400_000}

savepoint = typer.Typer(
    no_args_is_help=True, help="Savepoints. They belong to their users: only savepoint dispose deletes them."
)


def gc(pipeline: PipelineOption = None, dry_run: DryRun = False, as_json: Json = False) -> None:
    """Apply retention (checkpoint.retain of the pipeline files), then delete the files that nothing needs any more."""
    with errors(as_json):
        deployment = wiring.begun_deployment()
        name = check_pipeline(deployment, pipeline) if pipeline else None
        troubles = Troubles()
        retired = retention.retire(deployment, name, dry_run=dry_run, troubles=troubles)
        also = {r.pipeline: r.checkpoints for r in retired} if dry_run else {}
        with working("collecting garbage"):
            collected = garbage.collect_garbage(deployment, name, dry_run=dry_run, also=also, troubles=troubles)
        without_files = without_file(deployment, name, troubles)
        if not collected:
            troubles.check()
        if not dry_run:
            with wiring.telemetry() as receiver:
                garbage_collected(receiver, collected)
    document = {
        "dry_run": dry_run,
        "retired": retired,
        "collected": collected,
        "without_file": without_files,
        "troubles": troubles.in_order(),
    }
    present(document, _gc_view(retired, collected, without_files, dry_run), as_json)
    show(_notes_on_unfinished_uploads(deployment))
    end_in_trouble(troubles)
    _end_if_refused(collected)


def _gc_view(
    retired: Sequence[retention.Retired],
    collected: Sequence[garbage.CollectedGarbage],
    without_files: Sequence[WithoutFile],
    dry_run: bool,
) -> Iterator[Block]:
    names = {pipeline.pipeline for pipeline in without_files}
    for pipeline in retired:
        if pipeline.policy is None and pipeline.pipeline not in names:
            yield Note(f"{pipeline.pipeline}: no valid pipeline file, retention was not applied")
        elif dry_run and pipeline.kept:
            yield _kept_table(pipeline)
    yield _collected_block(collected, dry_run)
    for discardable in without_files:
        yield _note_on_missing_file(discardable)


def _kept_table(retired: retention.Retired) -> TextTable:
    """Return the checkpoints of a pipeline that retention keeps, one row per reason."""
    ids_by_reason: dict[str, list[str]] = {}
    for checkpoint in retired.kept:
        ids_by_reason.setdefault(checkpoint.because, []).append(str(checkpoint.checkpoint_id))
    rows = [[", ".join(ids), reason] for reason, ids in ids_by_reason.items()]
    columns = [TableColumn("checkpoints", wraps=True), TableColumn("because", wraps=True)]
    return TextTable(f"{retired.pipeline}: kept", columns, rows)


def _note_on_missing_file(pipeline: WithoutFile) -> Note:
    """Return the note on a pipeline whose file is gone, with the command that deletes its checkpoints."""
    checkpoints, files = amount(len(pipeline.checkpoints), "checkpoint"), amount(pipeline.files, "file")
    contents = f"{checkpoints}, {files}, {size(pipeline.size_bytes)}"
    action = f"{pipeline.command} deletes them" if pipeline.command else pipeline.reason
    return Note(f"{pipeline.pipeline} has no pipeline file, retention was not applied: {contents} stay; {action}")


def orphans(
    pipeline: PipelineOption = None,
    delete: Annotated[bool, typer.Option("--delete", help="Delete them. Without it they are only listed.")] = False,
    grace: Annotated[
        str, typer.Option("--grace", help="Minimum age of files that the catalog has no record of, such as 36h or 7d.")
    ] = "7d",
    force: Annotated[
        bool, typer.Option("--force", help="Accept a short grace period, and a large share of orphans.")
    ] = False,
    as_json: Json = False,
) -> None:
    """List files that aborted and crashed attempts left behind, and that no checkpoint will ever need."""
    with errors(as_json):
        deployment = wiring.begun_deployment()
        name = check_pipeline(deployment, pipeline) if pipeline else None
        troubles = Troubles()
        grace_ms = _milliseconds(grace)
        results = sweep.orphans(deployment, name, grace_ms=grace_ms, dry_run=not delete, force=force, troubles=troubles)
        if not results:
            troubles.check()
        with wiring.telemetry() as receiver:
            orphans_found(receiver, results)
    show(_notes_on_unfinished_uploads(deployment))
    present(results, _orphans_view(results, delete), as_json)
    end_in_trouble(troubles)


def _orphans_view(results: Sequence[sweep.Orphans], delete: bool) -> Iterator[Block]:
    rows = [[o.pipeline, uri] for o in results for uri in o.files]
    if rows:
        yield TextTable("Orphans", [TableColumn("pipeline"), TableColumn("file")], rows)
    total = sum(o.size_bytes for o in results)
    outcome = "deleted" if delete else "found, nothing was deleted"
    yield Line(f"{amount(len(rows), 'orphan')}, {size(total)}: {outcome}")
    left_alone = {
        "within the grace period": sum(len(o.young) for o in results),
        "not statelib's": sum(len(o.foreign) for o in results),
    }
    for reason, number in left_alone.items():
        if number:
            yield Note(f"left alone: {amount(number, 'more file')}, {reason}")


def why(
    file: Annotated[str, typer.Argument(help="Path or URI of a file in the checkpoint storage.")],
    as_json: Json = False,
) -> None:
    """Show which checkpoints need a file, and whether gc will delete it."""
    with errors(as_json):
        answer = explanation.why(wiring.begun_deployment(), in_storage(absolute_target(file)))
    fields = {
        "file": answer.file,
        "state": answer.state.lower(),
        "owner": answer.owner.lower(),
        "created by": answer.created_by,
        "needed by": ", ".join(answer.needed_by),
        "so": answer.explanation,
    }
    present(answer, [Fields([(label, value) for label, value in fields.items() if value])], as_json)


@savepoint.command(epilog="Example: statelib savepoint dispose aircraft_activity/5 --dry-run")
def dispose(
    checkpoint: Annotated[
        str,
        typer.Argument(metavar="SAVEPOINT", help="<pipeline>/<id>.", autocompletion=completion.savepoints),
    ],
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Delete a savepoint, or a checkpoint in quarantine, for good. Files that another checkpoint needs stay."""
    with errors(as_json):
        collected = garbage.dispose(wiring.begun_deployment(), *parse_checkpoint(checkpoint), dry_run=dry_run)
    _present_deleted(collected, dry_run, as_json)


def discard(
    pipeline: Annotated[
        str,
        typer.Argument(
            metavar="PIPELINE", help="Name of a pipeline whose file is gone.", autocompletion=completion.pipelines
        ),
    ],
    *,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Delete all checkpoints of a pipeline whose file is gone, for good. Savepoints of users stay."""
    with errors(as_json):
        deployment = wiring.begun_deployment()
        name = PipelineName(check_pipeline(deployment, pipeline))
        collected = discard_pipeline(deployment, name, OWNER, dry_run=True)
        if not dry_run:
            if collected.checkpoints or collected.files:
                if not as_json:
                    show([_collected_block([collected], dry_run=True)])
                confirmed("Delete them?", yes, as_json)
            collected = discard_pipeline(deployment, name, OWNER)
        show(_notes_on_holders(deployment, name))
    _present_deleted(collected, dry_run, as_json)


def _notes_on_holders(deployment: Deployment, pipeline: PipelineName) -> Iterator[Note]:
    """Yield a note per pipeline whose checkpoints need files of a discarded one, with the command that frees them."""
    for name, holders in groupby(deployment.catalog().cleanup.foreign_holders(pipeline), lambda holder: holder[0]):
        ids = [(f"{name}/{number}", owner) for _, number, owner in holders]
        advice = "".join(f"; statelib savepoint dispose {id_} gives it up" for id_, owner in ids if owner is Owner.USER)
        yield Note(f"files of {pipeline} stay, which are needed by {', '.join(id_ for id_, _ in ids)}{advice}")


def _present_deleted(collected: garbage.CollectedGarbage, dry_run: bool, as_json: bool) -> None:
    document = {"dry_run": dry_run, "collected": [collected]}
    present(document, [_collected_block([collected], dry_run)], as_json)
    _end_if_refused([collected])


def _notes_on_unfinished_uploads(deployment: Deployment) -> list[Note]:
    """Return a note on parts of uploads that no sweep finds, because the client library does not list them; nothing
    for a storage that has no such parts."""
    root = deployment.root_uri()
    advice = PLACES.kind(root).advice_on_unfinished(root)
    return [Note(f"parts of uploads whose writer was killed cannot be listed here: {advice}")] if advice else []


def _collected_block(collected: Sequence[garbage.CollectedGarbage], dry_run: bool) -> Block:
    rows = [
        [
            c.pipeline,
            ", ".join(map(str, c.checkpoints)) or "-",
            count(len(c.files) + len(c.metadata)),
            size(c.size_bytes),
        ]
        for c in collected
        if c.checkpoints or c.files
    ]
    if not rows:
        return Line("nothing to delete")
    columns = [TableColumn("pipeline"), TableColumn("checkpoints", wraps=True), TableColumn("files", right=True)]
    return TextTable("Would be deleted" if dry_run else "Deleted", [*columns, TableColumn("size", right=True)], rows)


def _end_if_refused(collected: Sequence[garbage.CollectedGarbage]) -> None:
    """Print a note per unneeded file that gc may not delete. End the command with exit status 1 if there is one."""
    refused = [f"{c.pipeline}: left alone, {garbage.REFUSED}: {uri}" for c in collected for uri in c.refused]
    show(map(Note, refused))
    if refused:
        raise typer.Exit(1)


def _milliseconds(text: str) -> int:
    match = re.fullmatch(r"([0-9]{1,6})([hd])", text)
    if not match:
        raise InvalidRequestError(
            f"grace period {text!r}: expected a number of hours or days", kind="bad-grace", hint="such as 36h or 7d"
        )
    return int(match[1]) * UNITS_MS[match[2]]
