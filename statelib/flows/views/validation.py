"""Whether pipeline files, as they are now, can go on from the state that their pipelines have."""

from collections.abc import Iterable, Iterator

from statelib.definition.pipeline import Pipeline
from statelib.definition.problems import DefinitionError
from statelib.errors import StatelibError
from statelib.flows.restore.continuation import continued_head
from statelib.flows.wiring import Deployment
from statelib.model.ids import PipelineName


def state_faults(deployment: Deployment, pipelines: Iterable[Pipeline]) -> Iterator[DefinitionError]:
    """Return what the next run of each pipeline would be refused for: its head, or that of its former name, is judged
    as the run will judge it. Nothing is written.

    Raises InvalidRequestError (``no-catalog``, ``catalog-not-migrated``)."""
    catalog = deployment.existing_catalog()
    for pipeline in pipelines:
        names = (pipeline.name, *pipeline.renamed_from)
        try:
            heads = [catalog.head(PipelineName(name)) for name in names]
            standing = next((head for head in heads if head.head is not None), heads[0])
            continued_head(deployment, pipeline, standing)
        except StatelibError as error:
            yield DefinitionError(pipeline.path, f"{pipeline.path}: {error}", error.hint)
