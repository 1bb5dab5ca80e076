"""The checkpoints whose rows of an output are not published yet. Nothing else has these rows, so they are kept."""

from statelib.definition.pipeline import Pipeline
from statelib.errors import StatelibError
from statelib.flows.publication.newest_commit import followed_commit
from statelib.flows.publication.outputs import lineage_ids
from statelib.flows.publication.targets import open_target
from statelib.flows.wiring import Deployment
from statelib.model.ids import CheckpointId
from statelib.model.record import CheckpointRecord, CheckpointState
from statelib.savepoints.emitted_outputs import outputs_of
from statelib.storage.registry import new_attempt


def waiting_outputs(deployment: Deployment, pipeline: Pipeline) -> dict[CheckpointId, str]:
    """Return the checkpoints in the lineage of the head with rows of an output that its feed does not have yet, each
    with the reason to keep it in words. If a feed cannot be read, it is taken as empty."""
    name = pipeline.name
    head = deployment.catalog().head(name).head
    feeds = {table: each.output for table, each in pipeline.publish.items() if each.output is not None}
    if head is None or not feeds:
        return {}
    lineage = deployment.catalog().lineage(name, head)
    reasons: dict[CheckpointId, str] = {}
    for table, output in feeds.items():
        reason = f"its rows of output {output} are not published to table {table}: statelib publish {name}"
        try:
            published = _published(deployment, pipeline, table)
        except StatelibError as error:
            published = frozenset()
            reason = f"its rows of output {output} may not be published: table {table} cannot be read: {error.message}"
        for record in lineage:
            if record.checkpoint_id not in published and output in _outputs(deployment, record):
                reasons.setdefault(record.checkpoint_id, reason)
    return reasons


def _published(deployment: Deployment, pipeline: Pipeline, table: str) -> frozenset[CheckpointId]:
    """Return the checkpoints whose rows a feed has, and others that it does not need. The feed of another history has
    none. Raises as :meth:`statelib.publication.target.TableTarget.newest`."""
    newest = open_target(deployment, pipeline, table, new_attempt()).newest()
    followed = followed_commit(deployment, pipeline, newest)
    if followed is None:
        return frozenset()
    return lineage_ids(deployment, pipeline.name, followed.checkpoint_id) or frozenset()


def _outputs(deployment: Deployment, record: CheckpointRecord) -> tuple[str, ...]:
    return outputs_of(deployment.open(record)) if record.state is CheckpointState.COMPLETED else ()
