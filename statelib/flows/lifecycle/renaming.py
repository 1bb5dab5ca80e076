"""Continue the state of a pipeline after it was renamed in its file."""

from statelib.definition.pipeline import Pipeline
from statelib.flows.restore.steps import apply_restore, plan_restore
from statelib.flows.wiring import Deployment
from statelib.model.ids import PipelineName
from statelib.model.record import ClaimMode, PipelineHead


def head_after_renaming(deployment: Deployment, pipeline: Pipeline, owner: str) -> PipelineHead:
    """Return the pipeline's head. A pipeline that has none under its present name first takes over the head of its
    former name, if that has one. Raises as :func:`~statelib.flows.restore.steps.plan_restore`."""
    head = deployment.catalog().head(PipelineName(pipeline.name))
    return head if head.head is not None else _take_over(deployment, pipeline, owner) or head


def _take_over(deployment: Deployment, pipeline: Pipeline, owner: str) -> PipelineHead | None:
    """Make the head of the pipeline's former name its head, and return it; None if no former name has a head. It is
    restored from its path in claim mode NO_CLAIM, so that its files still belong to the former name."""
    catalog = deployment.catalog()
    for name in pipeline.renamed_from:
        former = catalog.head(PipelineName(name))
        if former.head is not None:
            directory = catalog.get(former.pipeline, former.head).directory
            parallelism = former.parallelism or pipeline.parallelism
            plan = plan_restore(deployment, pipeline, directory, parallelism, ClaimMode.NO_CLAIM)
            return apply_restore(deployment, pipeline, plan, owner)
    return None
