"""Continue the state of a pipeline after it was renamed in its file."""

from statelib.definition.pipeline import Pipeline
from statelib.flows.restore.steps import apply_restore, plan_restore
from statelib.flows.wiring import Deployment
from statelib.model.ids import PipelineName
from statelib.model.record import ClaimMode, PipelineHead


def adopt_former(deployment: Deployment, pipeline: Pipeline, owner: str) -> PipelineHead | None:
    """Let a pipeline that never ran under its present name go on from where it stood under an earlier one.

    The newest checkpoint of the earlier name becomes its head, as a NO_CLAIM restore from its path would make
    it; None where no earlier name has one."""
    catalog = deployment.catalog()
    for name in pipeline.renamed_from:
        former = catalog.head(PipelineName(name))
        if former.head is not None:
            directory = catalog.get(former.pipeline, former.head).directory
            parallelism = former.parallelism or pipeline.parallelism
            plan = plan_restore(deployment, pipeline, directory, parallelism, ClaimMode.NO_CLAIM)
            return apply_restore(deployment, pipeline, plan, owner)
    return None
