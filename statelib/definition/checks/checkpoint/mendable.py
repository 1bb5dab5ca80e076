"""Checks of ``checkpoint.mendable``: an interval must have the same effect whatever intervals come before it."""

from collections.abc import Iterator

from statelib.definition.checks.checkpoint.mergeable import not_mergeable
from statelib.definition.declared import DeclaredPipeline
from statelib.definition.problems import Problem

PLACE = ("checkpoint", "mendable")


def check_mendable(pipeline: DeclaredPipeline) -> Iterator[Problem]:
    """Yield a problem for each part of the pipeline for which no interval can be mended."""
    if pipeline.checkpoint.mendable is None:
        return
    for reason in reasons_not_to_mend(pipeline):
        yield Problem(PLACE, reason)


def reasons_not_to_mend(pipeline: DeclaredPipeline) -> Iterator[str]:
    """Yield the reasons in words why no interval of the pipeline can be mended."""
    parts = not_mergeable(pipeline, ("value", "map", "reducing", "aggregating"))
    for state, part in parts.of_states:
        yield f"states.{state} has {part}: expected aggregates alone"
    for part in parts.others:
        yield f"{part} has an effect that depends on earlier intervals"
    if pipeline.hooks.initialize_state or pipeline.hooks.snapshot_state:
        yield "hooks are user code, whose effects are not known"
    if pipeline.checkpoint.blind:
        yield "blind runs do not read the values that a correction begins with"
    for field, source in pipeline.inputs.items():
        if source.incremental:
            yield f"{field} is read by the commits of its table, so that an interval cannot be read again"
