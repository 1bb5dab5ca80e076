"""Check whether pipelines, as their files define them now, can continue from the state that they have."""

from collections.abc import Iterable
from dataclasses import dataclass

from statelib.definition.pipeline import Pipeline
from statelib.definition.problems import DefinitionError
from statelib.errors import StatelibError
from statelib.flows.lifecycle.renaming import former_head
from statelib.flows.restore.continuation import continued_head
from statelib.flows.wiring import Deployment


@dataclass(frozen=True)
class StateEffects:
    """The effect of a pipeline file on the state that its pipeline has. ``states``: one line per state of the file.
    ``non_restored``: one line per stored state that is left out, because the file allows it."""

    pipeline: str
    states: tuple[str, ...]
    non_restored: tuple[str, ...]


def state_effects(
    deployment: Deployment, pipelines: Iterable[Pipeline]
) -> tuple[list[StateEffects], list[DefinitionError]]:
    """Return the effects on the pipelines that have state, and the errors with which the next run of the others would
    fail: the head of each, or that of its former name, is checked as the run checks it. Nothing is written.

    Raises InvalidRequestError (``no-catalog``, ``catalog-not-migrated``)."""
    catalog = deployment.existing_catalog()
    effects, faults = [], []
    for pipeline in pipelines:
        try:
            own = catalog.head(pipeline.name)
            continued = continued_head(deployment, pipeline, former_head(deployment, pipeline) or own)
            if continued is not None:
                effects.append(StateEffects(pipeline.name, continued.resolutions(), continued.non_restored()))
        except StatelibError as error:
            faults.append(DefinitionError(pipeline.path, f"{pipeline.path}: {error.message}", error.hint))
    return effects, faults
