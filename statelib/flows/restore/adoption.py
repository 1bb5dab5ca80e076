"""Register a snapshot that is on storage but not in the catalog."""

from statelib.errors import UnsupportedError
from statelib.flows.catalog_behind import check_catalog_complete
from statelib.flows.wiring import Deployment
from statelib.model.ids import PipelineName
from statelib.model.record import CheckpointRecord
from statelib.savepoints.commit_facts import commit_facts
from statelib.savepoints.opened import Checkpoint
from statelib.savepoints.verification.held_files import check_files


def adopt_snapshot(deployment: Deployment, pipeline: PipelineName, opened: Checkpoint) -> CheckpointRecord:
    """Register the snapshot under a new id, and return its record. Its files belong to its user until a restore claims
    them.

    Raises ConflictError (``catalog-behind-storage``) if the new id may be that of a checkpoint on storage, which could
    not be registered any more, and as :func:`check_adoptable`."""
    check_adoptable(pipeline, opened)
    check_catalog_complete(deployment, pipeline)
    assert opened.manifest is not None
    return deployment.catalog().import_savepoint(
        pipeline,
        directory=opened.directory,
        strategy=opened.manifest.strategy,
        parallelism=opened.keyed_operator().parallelism,
        interval=opened.manifest.position.interval,
        facts=commit_facts(opened, ""),
    )


def check_adoptable(pipeline: PipelineName, opened: Checkpoint) -> None:
    """Raise UnsupportedError (``foreign-snapshot``) if statelib did not write the snapshot, or as
    :func:`~statelib.savepoints.verification.held_files.check_files` if it cannot be registered."""
    if opened.manifest is None:
        raise UnsupportedError(
            f"{opened.directory} has no statelib manifest: it cannot become the head of pipeline {pipeline}",
            kind="foreign-snapshot",
            hint="statelib inspect and statelib export read it",
        )
    check_files(opened)
