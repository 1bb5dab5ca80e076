"""Checks of ``checkpoint.blind``: nothing in the pipeline may need the state that its runs leave unread."""

from collections.abc import Iterator

from statelib.definition.checks.checkpoint.mergeable import not_mergeable
from statelib.definition.declared import DeclaredPipeline
from statelib.definition.problems import Problem

PLACE = ("checkpoint", "blind")


def check_blind(pipeline: DeclaredPipeline) -> Iterator[Problem]:
    """Yield a problem for each part of the pipeline for which a run has to read the state."""
    if not pipeline.checkpoint.blind:
        return
    parts = not_mergeable(pipeline, ("value", "map"))
    for state, part in parts.of_states:
        yield Problem(
            PLACE, f"a run has to read states.{state}, which has {part}: expected values and maps of aggregates alone"
        )
    drift = pipeline.checks.drift
    others = {
        "publish": bool(pipeline.publish),
        "checks.drift": bool(drift.entries or drift.null_rate or drift.distribution),
        "checks.expectations": bool(pipeline.checks.expectations),
    }
    for part in (*parts.others, *(part for part, has in others.items() if has)):
        yield Problem(PLACE, f"{part} needs the whole state in each run: leave one of the two out")
