"""Checks of ``checkpoint.blind``: nothing in the pipeline may need the state that its runs leave unread."""

from collections.abc import Iterator

from statelib.definition.declared import DeclaredPipeline
from statelib.definition.problems import Problem

PLACE = ("checkpoint", "blind")


def check_blind(pipeline: DeclaredPipeline) -> Iterator[Problem]:
    """Yield a problem for each part of the pipeline for which a run has to read the state."""
    if not pipeline.checkpoint.blind:
        return
    for name, state in pipeline.states.items():
        parts = {
            f"the kind {state.kind}": state.kind not in ("value", "map"),
            "a user function": state.function is not None,
            "a window": state.window is not None,
            "a time to live": state.ttl is not None,
        }
        for part in (part for part, has in parts.items() if has):
            yield Problem(PLACE, f"a run has to read states.{name}, which has {part}: expected aggregates alone")
    drift = pipeline.checks.drift
    has_maps = any(state.kind == "map" for state in pipeline.states.values())
    others = {
        "delete_when with a map": pipeline.has_deletes and has_maps,
        "changes": any(source.changes is not None for source in pipeline.inputs.values()),
        "publish": bool(pipeline.publish),
        "checks.drift": bool(drift.entries or drift.null_rate or drift.distribution),
        "checks.expectations": bool(pipeline.checks.expectations),
    }
    for part in (part for part, has in others.items() if has):
        yield Problem(PLACE, f"{part} needs the whole state in each run: leave one of the two out")
