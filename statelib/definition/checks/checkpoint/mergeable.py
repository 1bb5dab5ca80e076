"""The parts of a pipeline that make more of its state than merged accumulators of events."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from statelib.definition.declared import DeclaredPipeline


@dataclass(frozen=True)
class NotMergeable:
    """The parts of a pipeline for which the events of an interval cannot be computed without the state. ``of_states``:
    (state, what it has). ``others``: parts of the pipeline file."""

    of_states: tuple[tuple[str, str], ...]
    others: tuple[str, ...]


def not_mergeable(pipeline: DeclaredPipeline, kinds: Collection[str]) -> NotMergeable:
    """Return the parts of a pipeline that are not merged accumulators in states of one of the ``kinds``."""
    has_maps = any(state.kind == "map" for state in pipeline.states.values())
    others = {
        "delete_when with a map": pipeline.has_deletes and has_maps,
        "changes": pipeline.has_retractions,
    }
    return NotMergeable(tuple(_of_states(pipeline, kinds)), tuple(part for part, has in others.items() if has))


def _of_states(pipeline: DeclaredPipeline, kinds: Collection[str]) -> Iterator[tuple[str, str]]:
    for name, state in pipeline.states.items():
        parts = {
            f"the kind {state.kind}": state.kind not in kinds,
            "a user function": state.function is not None,
            "a window": state.window is not None,
            "a time to live": state.ttl is not None,
        }
        yield from ((name, part) for part, has in parts.items() if has)
