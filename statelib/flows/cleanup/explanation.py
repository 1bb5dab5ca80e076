"""The explanation of one file: which checkpoints need it, and what cleanup will do with it."""

from dataclasses import dataclass

from statelib.catalog.tables.storage_facts import FileFacts
from statelib.coordinator.orphans import METADATA_NAME, Verdict
from statelib.errors import NotFoundError
from statelib.flows.cleanup.each_pipeline import Troubles
from statelib.flows.cleanup.orphans import DEFAULT_GRACE_MS, survey
from statelib.flows.wiring import Deployment
from statelib.model.amounts import number_of
from statelib.model.record import CheckpointState
from statelib.storage.registry import PLACES


@dataclass(frozen=True)
class Why:
    """What is known of a file. ``needed_by``: ``<pipeline>/<id>`` of each checkpoint that refers to it."""

    file: str
    state: str
    owner: str
    created_by: str
    needed_by: tuple[str, ...]
    explanation: str


def why(deployment: Deployment, file: str) -> Why:
    """Which checkpoints need a file, and what gc will do with it. NotFoundError (``unknown-file``)."""
    uri = PLACES.kind(file).normalised(file)
    facts = deployment.catalog().cleanup.file(uri)
    if facts is not None:
        return _of_recorded(facts)
    directory, _, last = uri.rpartition("/")
    catalog, troubles = deployment.catalog(), Troubles()
    listed = troubles.each(catalog.pipelines(), catalog.list)
    owners = [r for of_one in listed for r in of_one if r.directory.rstrip("/") == directory]
    if not owners:
        troubles.check()
    if last == METADATA_NAME and owners:
        record = owners[0]
        name = f"{record.pipeline}/{record.checkpoint_id}"
        alive = record.state in (CheckpointState.COMPLETED, CheckpointState.QUARANTINED)
        said = f"metadata of {record.kind.lower()} {name}, which is {record.state}"
        return Why(uri, record.state, record.owner, name, (name,) if alive else (), said)
    return _of_listed(deployment, uri)


def _of_recorded(facts: FileFacts) -> Why:
    needed = tuple(f"{r.pipeline}/{r.checkpoint_id}" for r in facts.references)
    if needed:
        said = f"needed by {number_of(len(needed), 'checkpoint')}"
    elif facts.state == "LIVE":
        said = "needed by none: the next gc removes it" if facts.owner == "SYSTEM" else "needed by none, its user's"
    else:
        said = "gc is about to remove it" if facts.state == "CONDEMNED" else "gc has removed it"
    return Why(facts.uri, facts.state, facts.owner, f"{facts.pipeline}/{facts.created_by}", needed, said)


_EXPLANATIONS = {
    Verdict.LIVE: "of an attempt that is still running",
    Verdict.ORPHAN: "of an attempt that has ended without it: statelib orphans --delete removes it",
    Verdict.UNKNOWN_ATTEMPT: "of an attempt that the catalog does not know: statelib orphans --delete removes it",
    Verdict.YOUNG: "of an attempt that the catalog does not know, within the grace period",
    Verdict.UNKNOWN_CHECKPOINT: "of a checkpoint that the catalog does not know",
    Verdict.TASK_OWNED: "state that a task owns: only its task removes it",
    Verdict.FOREIGN: "not named by statelib: never deleted",
}


def _of_listed(deployment: Deployment, uri: str) -> Why:
    for name in deployment.catalog().pipelines():
        for found in survey(deployment, name, DEFAULT_GRACE_MS, looks_only=True):
            if found.file.uri == uri:
                return Why(uri, found.verdict, "", "", (), _EXPLANATIONS[found.verdict])
    raise NotFoundError(
        f"{uri}: no checkpoint refers to it, and it lies in no pipeline's directory",
        kind="unknown-file",
        hint="give the absolute path or URI of a file in the checkpoint storage",
    )
