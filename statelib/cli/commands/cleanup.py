"""``statelib gc | orphans | why | savepoint dispose``: what may go, what goes, and why a file is there."""

import re
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from statelib.cli import completion
from statelib.cli.output import (
    Column,
    Json,
    PipelineOption,
    confirmed,
    count,
    end_in_trouble,
    errors,
    line,
    note,
    print_json,
    size,
    table,
    working,
)
from statelib.errors import InvalidRequestError
from statelib.flows.cleanup import explanation, garbage, retention
from statelib.flows.cleanup import orphans as sweep
from statelib.flows.cleanup.each_pipeline import Troubles
from statelib.flows.cleanup.without_file import WithoutFile, without_file
from statelib.flows.cleanup.without_file import discard as discard_pipeline
from statelib.flows.views.inspection import check_pipeline, parse_checkpoint
from statelib.flows.views.metrics import garbage_collected, orphans_found
from statelib.flows.wiring import Deployment, begun_deployment, telemetry
from statelib.model.amounts import amount
from statelib.model.ids import PipelineName
from statelib.storage.objects.uris import advice_on_unfinished

OWNER = "statelib pipelines discard"
UNITS_MS = {"h": 3_600_000, "d": 86_400_000}

DryRun = Annotated[bool, typer.Option("--dry-run", "-n", help="Say what would be deleted, change nothing.")]
savepoint = typer.Typer(no_args_is_help=True, help="Savepoints belong to their users: only dispose deletes them.")


def gc(pipeline: PipelineOption = None, dry_run: DryRun = False, as_json: Json = False) -> None:
    """Apply retention (checkpoint.retain of the pipeline files), then delete what nothing needs any more."""
    with errors(as_json):
        here = begun_deployment()
        name = _known(here, pipeline)
        troubles = Troubles()
        retired = retention.retire(here, name, dry_run=dry_run, troubles=troubles)
        also = {r.pipeline: r.checkpoints for r in retired} if dry_run else {}
        with working("collecting garbage"):
            collected = garbage.collect_garbage(here, name, dry_run=dry_run, also=also, troubles=troubles)
        offered = without_file(here, name, troubles)
        if not collected:
            troubles.check()
        if not dry_run:
            with telemetry() as receiver:
                garbage_collected(receiver, collected)
    if as_json:
        print_json(
            {
                "dry_run": dry_run,
                "retired": [asdict(r) for r in retired],
                "collected": _plain(collected),
                "without_file": [asdict(each) for each in offered],
                "troubles": [asdict(trouble) for trouble in troubles.found()],
            }
        )
    else:
        gone = {each.pipeline for each in offered}
        for r in retired:
            if r.policy is None and r.pipeline not in gone:
                note(f"{r.pipeline}: no valid pipeline file, retention was not applied")
            elif dry_run and r.kept:
                _print_kept(r)
        _print_collected(collected, dry_run)
        for each in offered:
            _note_offer(each)
    _note_unfinished(here)
    end_in_trouble(troubles)
    _refused(collected)


def orphans(
    pipeline: PipelineOption = None,
    delete: Annotated[bool, typer.Option("--delete", help="Delete them; without it they are only listed.")] = False,
    grace: Annotated[
        str, typer.Option("--grace", help="How old a file that the catalog knows nothing of must be: 36h, 7d.")
    ] = "7d",
    force: Annotated[bool, typer.Option("--force", help="Accept a short grace period, or very many orphans.")] = False,
    as_json: Json = False,
) -> None:
    """List files that aborted and crashed attempts left behind, and that no checkpoint will ever need."""
    with errors(as_json):
        here = begun_deployment()
        name = _known(here, pipeline)
        troubles = Troubles()
        grace_ms = _milliseconds(grace)
        found = sweep.orphans(here, name, grace_ms=grace_ms, dry_run=not delete, force=force, troubles=troubles)
        if not found:
            troubles.check()
        with telemetry() as receiver:
            orphans_found(receiver, found)
    _note_unfinished(here)
    if as_json:
        print_json(found)
    else:
        _print_orphans(found, delete)
    end_in_trouble(troubles)


def _print_orphans(found: Sequence[sweep.Orphans], delete: bool) -> None:
    rows = [[o.pipeline, uri] for o in found for uri in o.files]
    if rows:
        table("Orphans", [Column("pipeline"), Column("file")], rows)
    total = sum(o.size_bytes for o in found)
    told = "deleted" if delete else "found, nothing was deleted"
    line(f"{amount(len(rows), 'orphan')}, {size(total)}: {told}")
    left_alone = {
        "within the grace period": sum(len(o.young) for o in found),
        "not statelib's": sum(len(o.foreign) for o in found),
    }
    for meant, number in left_alone.items():
        if number:
            note(f"left alone: {amount(number, 'more file')}, {meant}")


def why(
    file: Annotated[str, typer.Argument(help="Path or URI of a file in the checkpoint storage.")],
    as_json: Json = False,
) -> None:
    """Say which checkpoints need a file, and what gc will do with it."""
    with errors(as_json):
        found = explanation.why(begun_deployment(), file if ":" in file else str(Path(file).absolute()))
    if as_json:
        print_json(found)
        return
    fields = {"file": found.file, "state": found.state.lower(), "owner": found.owner.lower()}
    fields |= {"created by": found.created_by, "needed by": ", ".join(found.needed_by), "so": found.explanation}
    for field, value in fields.items():
        if value:
            line(f"{field:<12} {value}")


@savepoint.command(epilog="Example: statelib savepoint dispose aircraft_activity/5 --dry-run")
def dispose(
    checkpoint: Annotated[
        str,
        typer.Argument(metavar="SAVEPOINT", help="<pipeline>/<id>", autocompletion=completion.savepoints),
    ],
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Delete a savepoint, or a checkpoint in quarantine, for good, wherever it lies; files that others need stay."""
    with errors(as_json):
        collected = garbage.dispose(begun_deployment(), *parse_checkpoint(checkpoint), dry_run=dry_run)
    if as_json:
        print_json({"dry_run": dry_run, "collected": _plain([collected])})
    else:
        _print_collected([collected], dry_run)
    _refused([collected])


def _print_kept(retired: retention.Retired) -> None:
    """What stays of a pipeline, and why: one line per reason."""
    reasons: dict[str, list[str]] = {}
    for each in retired.kept:
        reasons.setdefault(each.because, []).append(str(each.checkpoint_id))
    rows = [[", ".join(ids), reason] for reason, ids in reasons.items()]
    table(f"{retired.pipeline}: kept", [Column("checkpoints", wraps=True), Column("because", wraps=True)], rows)


def _note_offer(offer: WithoutFile) -> None:
    """Tell of a pipeline whose file is gone, and how its checkpoints are deleted."""
    what = f"{count(len(offer.checkpoints))} checkpoints, {count(offer.files)} files, {size(offer.size_bytes)}"
    how = f"{offer.command} deletes them" if offer.command else offer.reason
    note(f"{offer.pipeline} has no pipeline file, retention was not applied: {what} stay; {how}")


def discard(
    pipeline: Annotated[
        str, typer.Argument(help="Name of a pipeline whose file is gone.", autocompletion=completion.pipelines)
    ],
    *,
    dry_run: DryRun = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: Json = False,
) -> None:
    """Delete all checkpoints of a pipeline whose file is gone, for good; savepoints of users stay."""
    with errors(as_json):
        here = begun_deployment()
        name = PipelineName(check_pipeline(here, pipeline))
        collected = discard_pipeline(here, name, OWNER, dry_run=True)
        if not dry_run:
            if not as_json:
                _print_collected([collected], dry_run=True)
            confirmed("Delete them?", yes, as_json)
            collected = discard_pipeline(here, name, OWNER)
    if as_json:
        print_json({"dry_run": dry_run, "collected": _plain([collected])})
    else:
        _print_collected([collected], dry_run)
    _refused([collected])


def _note_unfinished(here: Deployment) -> None:
    """What no sweep can find: the client library does not list them."""
    advice = advice_on_unfinished(here.root_uri())
    if advice:
        note(f"parts of uploads whose writer was killed cannot be listed here: {advice}")


def _known(here: Deployment, pipeline: str | None) -> str | None:
    return check_pipeline(here, pipeline) if pipeline else None


def _plain(collected: Sequence[garbage.CollectedGarbage]) -> list[dict[str, Any]]:
    return [asdict(c) for c in collected]


def _print_collected(collected: Sequence[garbage.CollectedGarbage], dry_run: bool) -> None:
    rows = [
        [c.pipeline, ", ".join(map(str, c.checkpoints)) or "-", count(len(c.files)), size(c.size_bytes)]
        for c in collected
        if c.checkpoints or c.files
    ]
    if not rows:
        line("nothing to delete")
        return
    columns = [Column("pipeline"), Column("checkpoints", wraps=True), Column("files", right=True)]
    table("Would be deleted" if dry_run else "Deleted", [*columns, Column("size", right=True)], rows)


def _refused(collected: Sequence[garbage.CollectedGarbage]) -> None:
    """Files that the catalog wants gone but that lie where gc does not reach: a problem, hence exit status 1."""
    refused = [uri for c in collected for uri in c.refused]
    for uri in refused:
        note(f"left alone, it lies outside the checkpoint storage: {uri}")
    if refused:
        raise typer.Exit(1)


def _milliseconds(text: str) -> int:
    match = re.fullmatch(r"([0-9]{1,6})([hd])", text)
    if not match:
        raise InvalidRequestError(
            f"grace period {text!r}: expected a number of hours or days", kind="bad-grace", hint="such as 36h or 7d"
        )
    return int(match[1]) * UNITS_MS[match[2]]
