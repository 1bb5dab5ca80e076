"""The newest commit of a published table, as part of the history that this deployment has of the pipeline."""

from statelib.definition.pipeline import Pipeline
from statelib.errors import NotFoundError
from statelib.flows.wiring import Deployment
from statelib.model.record import CheckpointRecord
from statelib.publication.target import Commit, snapshot_hash


def followed_commit(deployment: Deployment, pipeline: Pipeline, newest: Commit | None) -> Commit | None:
    """Return the newest commit. Return None if there is none, or if it published a checkpoint that this deployment
    does not have: then another deployment published it, or this one has begun anew, or had another name.

    A checkpoint that the catalog does not have, as after a rebuild, is one of this deployment only if its id has been
    allocated here."""
    if newest is None or newest.pipeline not in ("", pipeline.name):
        return None
    record = record_of(deployment, pipeline, newest)
    if record is None:
        next_id = deployment.catalog().rebuilding.next_id(pipeline.name)
        return newest if newest.checkpoint_id < next_id else None
    hashes = {newest.snapshot, snapshot_hash(record.attempt)}
    return newest if "" in hashes or len(hashes) == 1 else None


def record_of(deployment: Deployment, pipeline: Pipeline, commit: Commit) -> CheckpointRecord | None:
    """Return the checkpoint with the id of a commit, None if the catalog has none, as after a rebuild."""
    try:
        return deployment.catalog().get(pipeline.name, commit.checkpoint_id)
    except NotFoundError:
        return None
