"""Continue the state of a pipeline after it was renamed in its file."""

from statelib.coordinator.checkpoint_lifecycle import is_committed
from statelib.definition.pipeline import Pipeline
from statelib.flows.catalog_behind import check_catalog_complete
from statelib.flows.restore.steps import apply_restore, plan_restore
from statelib.flows.wiring import Deployment
from statelib.model.ids import PipelineName, is_pipeline_name
from statelib.model.record import ClaimMode, Owner, PipelineHead


def head_after_renaming(deployment: Deployment, pipeline: Pipeline, owner: str) -> PipelineHead:
    """Return the pipeline's head. A pipeline that has none under its present name first takes over the head of its
    former name, if that has one. Raises ConflictError (``catalog-behind-storage``) if the catalog does not have all
    checkpoints of a former name, and as :func:`~statelib.flows.restore.steps.plan_restore`."""
    head = deployment.catalog().head(pipeline.name)
    if head.head is not None:
        return head
    for former in filter(is_pipeline_name, pipeline.renamed_from):
        check_catalog_complete(deployment, PipelineName(former))
    return _take_over(deployment, pipeline, owner) or head


def former_head(deployment: Deployment, pipeline: Pipeline) -> PipelineHead | None:
    """Return the head of a former name that the next run continues from. None if no former name has a head, or if the
    pipeline has, or ever had, a checkpoint of its own: one whose state was deleted does not begin with an older one."""
    catalog, name = deployment.catalog(), pipeline.name
    if not pipeline.renamed_from or catalog.head(name).head is not None:
        return None
    if any(is_committed(record) for record in catalog.list(name) if record.owner is Owner.SYSTEM):
        return None
    heads = (catalog.head(PipelineName(former)) for former in pipeline.renamed_from)
    return next((head for head in heads if head.head is not None), None)


def _take_over(deployment: Deployment, pipeline: Pipeline, owner: str) -> PipelineHead | None:
    """Make the :func:`former_head` the pipeline's head, and return it; None if there is none. It is restored from its
    path in claim mode NO_CLAIM, so that its files still belong to the former name."""
    former = former_head(deployment, pipeline)
    if former is None or former.head is None:
        return None
    directory = deployment.catalog().get(former.pipeline, former.head).directory
    plan = plan_restore(deployment, pipeline, directory, former.parallelism, ClaimMode.NO_CLAIM)
    return apply_restore(deployment, pipeline, plan, owner)
