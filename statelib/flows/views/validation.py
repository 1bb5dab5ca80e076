"""Check whether pipelines, as their files define them now, can continue from the state that they have."""

from collections.abc import Iterable, Iterator

from statelib.definition.pipeline import Pipeline
from statelib.definition.problems import DefinitionError
from statelib.errors import StatelibError
from statelib.flows.restore.continuation import continued_head
from statelib.flows.wiring import Deployment
from statelib.model.ids import PipelineName


def state_faults(deployment: Deployment, pipelines: Iterable[Pipeline]) -> Iterator[DefinitionError]:
    """Yield the errors with which the next run of each pipeline would fail: its head, or that of its former name, is
    checked as the run checks it. Nothing is written.

    Raises InvalidRequestError (``no-catalog``, ``catalog-not-migrated``)."""
    catalog = deployment.existing_catalog()
    for pipeline in pipelines:
        names = (pipeline.name, *pipeline.renamed_from)
        try:
            heads = [catalog.head(PipelineName(name)) for name in names]
            head = next((head for head in heads if head.head is not None), heads[0])
            continued_head(deployment, pipeline, head)
        except StatelibError as error:
            yield DefinitionError(pipeline.path, f"{pipeline.path}: {error}", error.hint)
