"""The explanation of one file: which checkpoints need it, and what cleanup will do with it."""

from collections.abc import Sequence
from dataclasses import dataclass

from statelib.catalog.tables.storage_facts import FileFacts
from statelib.coordinator.orphans import Verdict
from statelib.errors import NotFoundError, StatelibError
from statelib.flows.cleanup.each_pipeline import Troubles
from statelib.flows.cleanup.garbage import REFUSED, collect_garbage
from statelib.flows.cleanup.orphans import DEFAULT_GRACE_MS, survey
from statelib.flows.wiring import Deployment
from statelib.model.amounts import number_of
from statelib.model.record import CheckpointRecord, CheckpointState, Owner
from statelib.storage.names import METADATA_NAME
from statelib.storage.registry import PLACES


@dataclass(frozen=True)
class Why:
    """The explanation of a file. ``needed_by``: ``<pipeline>/<id>`` of each checkpoint that refers to it."""

    file: str
    state: str
    owner: str
    created_by: str
    needed_by: tuple[str, ...]
    explanation: str


def why(deployment: Deployment, file: str) -> Why:
    """Return which checkpoints need a file, and what gc will do with it. Raises NotFoundError (``unknown-file``)."""
    uri = PLACES.kind(file).normalised(file)
    facts = deployment.catalog().cleanup.file(uri)
    if facts is not None:
        return _of_recorded(deployment, facts)
    directory, _, last = uri.rpartition("/")
    catalog, troubles = deployment.catalog(), Troubles()
    listed = troubles.each(catalog.pipelines(), catalog.list)
    owners = [r for of_one in listed for r in of_one if r.directory.rstrip("/") == directory]
    if not owners:
        troubles.check()
    if last == METADATA_NAME and owners:
        return _of_metadata(uri, owners)
    return _of_listed(deployment, uri)


def _of_metadata(uri: str, owners: Sequence[CheckpointRecord]) -> Why:
    """Return the explanation of a ``_metadata``. ``owners``: the checkpoints and savepoints in its directory; there are
    several if the snapshot was restored by its path."""
    alive = [r for r in owners if r.state in (CheckpointState.COMPLETED, CheckpointState.QUARANTINED)]
    record, needed = (alive or owners)[0], tuple(f"{r.pipeline}/{r.checkpoint_id}" for r in alive)
    name = f"{record.pipeline}/{record.checkpoint_id}"
    explanation = f"metadata of {record.kind.lower()} {name}, which is {record.state}"
    return Why(uri, record.state, record.owner, name, needed, explanation)


def _of_recorded(deployment: Deployment, facts: FileFacts) -> Why:
    living = (r for r in facts.references if r.state is not CheckpointState.DELETING)
    needed = tuple(f"{r.pipeline}/{r.checkpoint_id}" for r in living)
    if needed:
        explanation = f"needed by {number_of(len(needed), 'checkpoint')}"
    elif facts.state == "LIVE":
        explanation = f"needed by none: {_fate(deployment, facts)}"
    else:
        explanation = "gc is about to delete it" if facts.state == "CONDEMNED" else "gc has deleted it"
    return Why(facts.uri, facts.state, facts.owner, f"{facts.pipeline}/{facts.created_by}", needed, explanation)


def _fate(deployment: Deployment, facts: FileFacts) -> str:
    """Return what the next gc does with a file that nothing needs."""
    if facts.owner is Owner.USER:
        return "it belongs to its user"
    try:
        (would,) = collect_garbage(deployment, facts.pipeline, dry_run=True)
    except StatelibError as error:
        return f"gc deletes nothing now, because {error.message}"
    return "the next gc deletes it" if facts.uri in would.files else f"gc leaves it alone, {REFUSED}"


_EXPLANATIONS = {
    Verdict.LIVE: "written by an attempt that is still running",
    Verdict.ORPHAN: "left by an attempt that has ended: statelib orphans --delete deletes it",
    Verdict.UNKNOWN_ATTEMPT: "written by an attempt that is not in the catalog: statelib orphans --delete deletes it",
    Verdict.YOUNG: "written by an attempt that is not in the catalog, within the grace period",
    Verdict.UNKNOWN_CHECKPOINT: "written for a checkpoint that is not in the catalog",
    Verdict.FOREIGN: "not named by statelib for this catalog, or put back by its user: never deleted",
}


def _of_listed(deployment: Deployment, uri: str) -> Why:
    for name in deployment.catalog().pipelines():
        for each in survey(deployment, name, DEFAULT_GRACE_MS, looks_only=True):
            if each.file.uri == uri:
                return Why(uri, each.verdict, "", "", (), _EXPLANATIONS[each.verdict])
    raise NotFoundError(
        f"{uri}: no checkpoint refers to it, and it is in no pipeline's directory",
        kind="unknown-file",
        hint="give the absolute path or URI of a file in the checkpoint storage",
    )
